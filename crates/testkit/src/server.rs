//! A server for tests: its directory, its port, its process.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use crate::{
    account::Account,
    home, missing,
    port::free_port,
    process::{LOOK_EVERY, Process, last_lines},
    product::{self, Place, Product},
    template,
};

/// The timeout of a server's start. It takes a second, but the machine may be busy.
const START_MAX: Duration = Duration::from_secs(180);

/// The timeout of an orderly end, after which the server is killed.
const STOP_MAX: Duration = Duration::from_secs(30);

/// The name of the copy of the server's data, in its directory.
const COPY: &str = "copy";

/// A server for tests. When this is dropped, the server is stopped and its directory is removed.
///
/// The methods block: they are for tests and drills, not for programs.
#[derive(Debug)]
pub struct Server<P: Product> {
    product: P,
    account: Account,
    /// The directory of the server, with its data and its log.
    directory: PathBuf,
    settings: Vec<String>,
    port: u16,
    process: Mutex<Option<Process>>,
}

/// The result of an attempt to start.
enum Started {
    /// The server answers.
    Ready(Process),
    /// The server ended, or another server answers on its port.
    Failed(String),
}

impl<P: Product> Server<P> {
    /// Starts a server for this test alone, with the product's default durability. Returns nothing if it is not installed.
    ///
    /// # Errors
    /// When it cannot be started, or if it is not installed and `CI` is set.
    pub fn start() -> Result<Option<Self>> {
        Self::start_with(&[])
    }

    /// Like [`start`](Self::start), with settings of the product: `name=value` each.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(settings: &[&str]) -> Result<Option<Self>> {
        let Some(product) = P::find() else {
            missing::skip(P::NAME, &P::how_to_get())?;
            return Ok(None);
        };
        let account = product::account::<P>()?;
        let directory = home::directory(&P::NAME.to_lowercase(), &account)?;
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { product, account, directory, settings, port: 0, process: Mutex::new(None) };
        template::make(&server.product, &server.account, &server.data())
            .with_context(|| format!("cannot create a data directory of {}", P::NAME))?;
        let until = Instant::now() + START_MAX;
        loop {
            server.port = free_port()?;
            match server.attempt(until)? {
                Started::Ready(process) => {
                    *server.lock() = Some(process);
                    return Ok(Some(server));
                }
                Started::Failed(why) if Instant::now() >= until => bail!("cannot start {}: {why}", P::NAME),
                // Another program may have taken the port first.
                Started::Failed(_) => thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Whether the product is installed. If it is not, this is reported.
    ///
    /// # Errors
    /// When it is not installed and `CI` is set.
    pub fn is_installed() -> Result<bool> {
        let is_installed = P::find().is_some();
        if !is_installed {
            missing::skip(P::NAME, &P::how_to_get())?;
        }
        Ok(is_installed)
    }

    /// The server that all tests of this program share. It is quick; do not stop it. Returns nothing if it is not
    /// installed.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn shared() -> Result<Option<&'static Self>> {
        let mut slot = P::slot().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if slot.is_none() {
            *slot = Self::start_with(P::QUICK)?.map(|server| &*Box::leak(Box::new(server)));
        }
        Ok(*slot)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id, while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.lock().as_ref().map(Process::id)
    }

    /// Its directory, with its data, and its log in `log`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The last lines of its log.
    pub fn last_words(&self) -> String {
        last_lines(&self.directory.join("log"))
    }

    /// Kills the server with all its processes, as a failure of its machine would.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(&self) -> Result<()> {
        self.lock().take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Ends the server in good order.
    ///
    /// # Errors
    /// When it does not end in time, and is killed.
    pub fn stop(&self) -> Result<()> {
        let Some(mut process) = self.lock().take() else { return Ok(()) };
        process.signal(P::SIGNALS.0)?;
        match process.wait(STOP_MAX)? {
            Some(_) => Ok(()),
            None => bail!("{} did not end within {STOP_MAX:?}: {}", P::NAME, process.last_words()),
        }
    }

    /// Starts the server again with its data on its port, after [`kill`](Self::kill) or [`stop`](Self::stop).
    ///
    /// # Errors
    /// When it does not start, or is running.
    pub fn restart(&self) -> Result<()> {
        self.is_down()?;
        let mut process = self.lock();
        let until = Instant::now() + START_MAX;
        loop {
            match self.attempt(until)? {
                Started::Ready(started) => {
                    *process = Some(started);
                    return Ok(());
                }
                Started::Failed(why) if Instant::now() >= until => bail!("cannot start {}: {why}", P::NAME),
                // The killed server's memory may be in use for a moment.
                Started::Failed(_) => thread::sleep(LOOK_EVERY * 10),
            }
        }
    }

    /// Copies the data of a server that is not running. [`put_back`](Self::put_back) restores the copy.
    ///
    /// # Errors
    /// While it is running, or when the data cannot be copied.
    pub fn copy_data(&self) -> Result<()> {
        self.is_down()?;
        template::copy(&self.data(), &self.directory.join(COPY))
    }

    /// Replaces the data of a server that is not running by the copy. The server then has lost all later changes, like a
    /// replica that was behind when it was promoted.
    ///
    /// # Errors
    /// While it is running, or when there is no copy.
    pub fn put_back(&self) -> Result<()> {
        self.is_down()?;
        fs::remove_dir_all(self.data())?;
        Ok(fs::rename(self.directory.join(COPY), self.data())?)
    }

    fn is_down(&self) -> Result<()> {
        ensure!(self.lock().is_none(), "{} is running: stop it first", P::NAME);
        Ok(())
    }

    /// Stops all processes of the server with SIGSTOP. It neither answers nor closes connections until
    /// [`resume`](Self::resume).
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> Result<()> {
        self.signal_all(Signal::STOP)
    }

    /// Continues the server after [`pause`](Self::pause).
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self) -> Result<()> {
        self.signal_all(Signal::CONT)
    }

    /// Sends a signal to all processes of the server.
    pub(crate) fn signal_all(&self, signal: Signal) -> Result<()> {
        let process = self.lock();
        process.as_ref().with_context(|| format!("{} is not running", P::NAME))?.signal_all(signal)?;
        Ok(())
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub(crate) fn place<'s>(&'s self, data: &'s Path) -> Place<'s> {
        Place { data, port: self.port, settings: &self.settings }
    }

    pub(crate) fn product(&self) -> &P {
        &self.product
    }

    pub(crate) fn settings(&self) -> &[String] {
        &self.settings
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Starts the server once and waits until it answers or has ended.
    fn attempt(&self, until: Instant) -> Result<Started> {
        let mut command = self.account.command(P::SIGNALS.1, self.product.program());
        let data = self.data();
        let place = self.place(&data);
        self.product.arrange(&mut command, &place)?;
        command.current_dir(&self.directory);
        let mut process = Process::spawn(command, &self.directory.join("log"))?;
        loop {
            if let Some(status) = process.ended()? {
                return Ok(Started::Failed(format!("{status}: {}", process.last_words())));
            }
            let failure = match self.product.answers(&place, process.id()) {
                Ok(true) => return Ok(Started::Ready(process)),
                Ok(false) => return Ok(Started::Failed("another server has its port".to_owned())),
                Err(error) => error,
            };
            if Instant::now() >= until {
                return Ok(Started::Failed(format!("{failure:#}: {}", process.last_words())));
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl<P: Product> Drop for Server<P> {
    fn drop(&mut self) {
        // A destructor cannot return an error. The process of `home.rs` removes the rest.
        let _ = self.kill();
        self.product.tidy(&self.data());
        let _ = fs::remove_dir_all(&self.directory);
    }
}
