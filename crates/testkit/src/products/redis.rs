//! Redis, from Debian's package `redis-server` or from the `PATH`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
};

use anyhow::Result;
use rustix::process::Signal;

use crate::{
    product::{Place, Product, finish},
    server::Server,
};

/// Redis as it is installed on this machine.
#[derive(Debug)]
pub struct RedisProduct {
    server: PathBuf,
    client: PathBuf,
}

impl Product for RedisProduct {
    const NAME: &'static str = "Redis";
    const PACKAGE: &'static str = "redis-server";
    const USER: &'static str = "redis";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    const QUICK: &'static [&'static str] = &["appendfsync=no"];
    // Redis needs only an empty directory.
    const HAS_TEMPLATE: bool = false;

    fn find() -> Option<Self> {
        let in_path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&in_path).collect();
        let find = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        Some(Self { server: find("redis-server")?, client: find("redis-cli")? })
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<RedisProduct>>> = Mutex::new(None);
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
        command.arg("--port").arg(place.port.to_string()).arg("--dir").arg(place.data);
        command.args(["--bind", "127.0.0.1", "--daemonize", "no", "--protected-mode", "no"]);
        // Every change goes to the log, so that messages outlive the process. There are no snapshots.
        command.args(["--save", "", "--appendonly", "yes"]);
        for setting in place.settings {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            command.arg(format!("--{name}")).arg(value);
        }
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, process: u32) -> Result<bool> {
        let server = finish(self.ask(place, &["INFO", "server"]))?;
        let persistence = finish(self.ask(place, &["INFO", "persistence"]))?;
        // While the server loads its log, it answers only queries about itself.
        anyhow::ensure!(
            persistence.lines().any(|line| line.trim_end() == "loading:0"),
            "the server is still loading its log"
        );
        Ok(server.lines().any(|line| line.trim_end() == format!("process_id:{process}")))
    }
}

impl RedisProduct {
    /// Sends a command as the default user with the password of the server's settings.
    fn ask(&self, place: &Place<'_>, words: &[&str]) -> Command {
        let mut command = Command::new(&self.client);
        command.args(["-h", "127.0.0.1", "-e", "-p"]).arg(place.port.to_string()).args(words);
        match password(place.settings) {
            Some(password) => command.env("REDISCLI_AUTH", password),
            None => command.env_remove("REDISCLI_AUTH"),
        };
        command.stdin(Stdio::null());
        command
    }
}

impl Server<RedisProduct> {
    /// Sends a command, given as words, and returns the plain answer.
    ///
    /// # Errors
    /// When the server returns an error.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let data = self.data();
        finish(self.product().ask(&self.place(&data), words))
    }

    /// The URL, with the password that the server was started with.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The URL by way of another port, such as that of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, port: u16) -> String {
        match password(self.settings()) {
            Some(password) => format!("redis://:{password}@127.0.0.1:{port}/0"),
            None => format!("redis://127.0.0.1:{port}/0"),
        }
    }
}

/// The password that these settings give to the default user.
fn password(settings: &[String]) -> Option<&str> {
    settings.iter().find_map(|setting| setting.strip_prefix("requirepass="))
}
