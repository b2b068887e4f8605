//! Mosquitto, from Debian's packages `mosquitto` and `mosquitto-clients`.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::{
    process::LOOK_EVERY,
    product::{Place, Product, finish},
    server::Server,
};

/// The server's log file, in its data directory.
const LOG: &str = "mosquitto.log";

/// The file of the server's stored data, in its data directory.
const STORED: &str = "mosquitto.db";

/// How long a save may take.
const SAVE_MAX: Duration = Duration::from_secs(30);

/// Mosquitto as it is installed on this machine. Its settings are `login=USER:PASSWORD`, without which everybody may
/// connect, and lines of its configuration: `name=value`.
#[derive(Debug)]
pub struct MosquittoProduct {
    server: PathBuf,
    publish: PathBuf,
    subscribe: PathBuf,
    passwd: PathBuf,
}

impl Product for MosquittoProduct {
    const NAME: &'static str = "Mosquitto";
    const PACKAGE: &'static str = "mosquitto mosquitto-clients";
    const USER: &'static str = "mosquitto";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    const QUICK: &'static [&'static str] = &[];
    // Mosquitto needs only an empty directory.
    const HAS_TEMPLATE: bool = false;

    fn find() -> Option<Self> {
        let in_path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&in_path).collect();
        // Servers are in `/usr/sbin`, which is not in the `PATH` of every account.
        folders.push("/usr/sbin".into());
        let find = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        Some(Self {
            server: find("mosquitto")?,
            publish: find("mosquitto_pub")?,
            subscribe: find("mosquitto_sub")?,
            passwd: find("mosquitto_passwd")?,
        })
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<MosquittoProduct>>> = Mutex::new(None);
        &SLOT
    }

    fn program(&self) -> &Path {
        &self.server
    }

    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()> {
        let mut command = run(Path::new("mkdir"));
        command.arg("--").arg(data);
        finish(command).map(drop)
    }

    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()> {
        let data = place.data.display();
        // Without `autosave_interval`, a kill loses up to half an hour of data.
        let mut text = format!(
            "listener {} 127.0.0.1\npersistence true\npersistence_location {data}/\n\
             autosave_interval 1\nmax_queued_messages 100000\nlog_dest file {data}/{LOG}\n",
            place.port
        );
        match login(place.settings) {
            Some((user, password)) => {
                let file = place.data.join("passwords");
                let mut command = Command::new(&self.passwd);
                command.arg("-b").arg("-c").arg(&file).args([user, password]).stdin(Stdio::null());
                finish(command)?;
                // The server runs as another user, who must be able to read the file.
                fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
                text.push_str(&format!("password_file {}\n", file.display()));
            }
            None => text.push_str("allow_anonymous true\n"),
        }
        for setting in place.settings.iter().filter(|setting| !setting.starts_with("login=")) {
            text.push_str(&setting.replacen('=', " ", 1));
            text.push('\n');
        }
        let log = place.data.join(LOG);
        if log.exists() {
            fs::remove_file(&log).with_context(|| format!("cannot remove {}", log.display()))?;
        }
        let file = place.data.join("mosquitto.conf");
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        command.arg("-c").arg(&file);
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _process: u32) -> Result<bool> {
        let mut command = self.command(&self.publish, place.port, place.settings);
        command.args(["-t", "windlass/probe", "-m", "x"]);
        finish(command)?;
        // The server logs the port before it listens there, and ends if another server uses the port.
        let log = fs::read_to_string(place.data.join(LOG)).unwrap_or_default();
        let opens = format!("Opening ipv4 listen socket on port {}.", place.port);
        Ok(log.lines().any(|line| line.contains(&opens)))
    }
}

impl MosquittoProduct {
    /// A client program with QoS 1.
    fn command(&self, program: &Path, port: u16, settings: &[String]) -> Command {
        let mut command = Command::new(program);
        command.args(["-h", "127.0.0.1", "-q", "1", "-p"]).arg(port.to_string()).stdin(Stdio::null());
        if let Some((user, password)) = login(settings) {
            command.args(["-u", user, "-P", password]);
        }
        command
    }
}

/// The user and the password that clients need.
fn login(settings: &[String]) -> Option<(&str, &str)> {
    settings.iter().find_map(|setting| setting.strip_prefix("login="))?.split_once(':')
}

impl Server<MosquittoProduct> {
    /// The URL of the server.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The URL by way of another port, such as that of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, port: u16) -> String {
        match login(self.settings()) {
            Some((user, password)) => format!("mqtt://{user}:{password}@127.0.0.1:{port}"),
            None => format!("mqtt://127.0.0.1:{port}"),
        }
    }

    /// Publishes a message at QoS 1 with Mosquitto's own client.
    ///
    /// # Errors
    /// When the client fails, with its output.
    pub fn publish(&self, topic: &str, payload: &str, retain: bool) -> Result<()> {
        let product = self.product();
        let mut command = product.command(&product.publish, self.port(), self.settings());
        command.args(["-t", topic, "-m", payload]);
        if retain {
            command.arg("-r");
        }
        finish(command).map(drop)
    }

    /// Subscribes at QoS 1 with Mosquitto's own client. Each message is a line of its standard output: the topic and the
    /// payload. The caller ends the process.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn subscribe(&self, filters: &[&str]) -> Result<Child> {
        let product = self.product();
        let mut command = product.command(&product.subscribe, self.port(), self.settings());
        command.arg("-v").stdout(Stdio::piped());
        for filter in filters {
            command.args(["-t", filter]);
        }
        command.spawn().context("cannot start mosquitto_sub")
    }

    /// Makes the server store its data now, and waits until it has. A later kill loses nothing that the server had confirmed before
    /// this call.
    ///
    /// # Errors
    /// When it is not running, or does not store its data in time.
    pub fn save(&self) -> Result<()> {
        let stored = self.data().join(STORED);
        let stored_at = || fs::metadata(&stored).and_then(|file| file.modified()).ok();
        let before = stored_at();
        // At this signal Mosquitto writes a new file, which replaces the old one.
        self.signal_all(Signal::USR1)?;
        let until = Instant::now() + SAVE_MAX;
        while stored_at() == before {
            ensure!(Instant::now() < until, "Mosquitto did not store its data within {SAVE_MAX:?}");
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Removes the server's stored data. The server must have ended.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn wipe(&self) -> Result<()> {
        let stored = self.data().join(STORED);
        if stored.exists() {
            fs::remove_file(&stored).with_context(|| stored.display().to_string())
        } else {
            Ok(())
        }
    }
}
