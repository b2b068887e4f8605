//! A server of a test: its directory, its port, its process.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
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
    process::{LOOK_EVERY, Process, last_lines},
    product::{self, Place, Product},
    template,
};

/// Ports of servers: below those that the system gives to outgoing connections, any of which could take one that a
/// restarted server wants back.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How long a server may take until it answers. It takes a second; a machine may be busy.
const START_MAX: Duration = Duration::from_secs(60);

/// How long a server may take to end in good order before it is killed.
const STOP_MAX: Duration = Duration::from_secs(30);

/// Where the copy of a server's data is, in its directory.
const COPY: &str = "copy";

/// A server of a test. It is stopped, and its directory removed, when this is dropped.
///
/// Its methods block: they are for tests and drills, not for programs.
#[derive(Debug)]
pub struct Server<P: Product> {
    product: P,
    account: Account,
    /// Everything of it: its data and its log.
    directory: PathBuf,
    settings: Vec<String>,
    port: u16,
    process: Mutex<Option<Process>>,
}

/// What became of an attempt to start.
enum Started {
    /// It answers.
    Ready(Process),
    /// It ended, or a stranger answers on its port.
    Failed(String),
}

impl<P: Product> Server<P> {
    /// Starts a server for this test alone, as durable as the product is by itself. Nothing when it is not installed.
    ///
    /// # Errors
    /// When it cannot be started, and when it is not installed where `CI` is set.
    pub fn start() -> Result<Option<Self>> {
        Self::start_with(&[])
    }

    /// Like [`start`](Self::start), with settings of the product: `name=value` each.
    ///
    /// # Errors
    /// As there.
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
            .with_context(|| format!("cannot make a data directory of {}", P::NAME))?;
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

    /// Whether it is installed: where not, that is told.
    ///
    /// # Errors
    /// When it is not, where `CI` is set.
    pub fn is_installed() -> Result<bool> {
        let is_installed = P::find().is_some();
        if !is_installed {
            missing::skip(P::NAME, &P::how_to_get())?;
        }
        Ok(is_installed)
    }

    /// The server that all tests of this program share: quick, and to be left alone. Nothing when it is not installed.
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

    /// The port it listens on, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of its process, while there is one.
    pub fn process_id(&self) -> Option<u32> {
        self.lock().as_ref().map(Process::id)
    }

    /// Everything of it: its data, and its log in `log`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The last lines of its log.
    pub fn last_words(&self) -> String {
        last_lines(&self.directory.join("log"))
    }

    /// Kills it with all its processes, as a machine that dies would.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(&self) -> Result<()> {
        self.lock().take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Ends it in good order.
    ///
    /// # Errors
    /// When it has to be killed after all.
    pub fn stop(&self) -> Result<()> {
        let Some(mut process) = self.lock().take() else { return Ok(()) };
        process.signal(P::SIGNALS.0)?;
        match process.wait(STOP_MAX)? {
            Some(_) => Ok(()),
            None => bail!("{} did not end within {STOP_MAX:?}: {}", P::NAME, process.last_words()),
        }
    }

    /// Starts it again with its data on its port, after [`kill`](Self::kill) or [`stop`](Self::stop).
    ///
    /// # Errors
    /// When it does not start, and while it runs.
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
                // What is left of the killed one may hold its memory for a moment.
                Started::Failed(_) => thread::sleep(LOOK_EVERY * 10),
            }
        }
    }

    /// Copies the data of a server that does not run. [`put_back`](Self::put_back) makes it what it was then.
    ///
    /// # Errors
    /// While it runs, and when the data cannot be copied.
    pub fn copy_data(&self) -> Result<()> {
        self.is_down()?;
        template::copy(&self.data(), &self.directory.join(COPY))
    }

    /// Replaces the data of a server that does not run by their copy: it has lost all changes since then, as a replica
    /// has that was behind when it was promoted.
    ///
    /// # Errors
    /// While it runs, and when there is no copy.
    pub fn put_back(&self) -> Result<()> {
        self.is_down()?;
        fs::remove_dir_all(self.data())?;
        Ok(fs::rename(self.directory.join(COPY), self.data())?)
    }

    fn is_down(&self) -> Result<()> {
        ensure!(self.lock().is_none(), "{} runs: stop it first", P::NAME);
        Ok(())
    }

    /// Stops all its processes where they are: it neither answers nor closes anything, until [`resume`](Self::resume).
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self) -> Result<()> {
        self.signal_all(Signal::STOP)
    }

    /// Lets it go on after [`pause`](Self::pause).
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self) -> Result<()> {
        self.signal_all(Signal::CONT)
    }

    fn signal_all(&self, signal: Signal) -> Result<()> {
        let process = self.lock();
        process.as_ref().with_context(|| format!("{} does not run", P::NAME))?.signal_all(signal)?;
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

    /// Starts it once and waits until it answers, or has ended.
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
        // There is nobody left to tell; the janitor removes what is left.
        let _ = self.kill();
        self.product.tidy(&self.data());
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A port that nobody listens on now.
pub fn free_port() -> Result<u16> {
    for _ in 0..1000 {
        let port = fastrand::u16(PORTS);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("there is no free port in {PORTS:?}")
}
