//! MariaDB, from Debian's package `mariadb-server` or from the `PATH`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
};

use anyhow::Result;
use rustix::process::Signal;

use super::sql::{self, SqlProduct};
use crate::{
    product::{Place, Product, finish},
    server::Server,
};

/// The statements that the server runs at its start. Without them, the administrator could connect only by the local
/// socket.
const FIRST: &str = "CREATE USER IF NOT EXISTS root@'127.0.0.1';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
";

/// The file with these statements, in the data directory. Its name must not look like a database or a table.
const FIRST_FILE: &str = "first.sql";

/// The size of the log. The default of 96 MiB would be copied for every server.
const LOG_SIZE: &str = "--innodb-log-file-size=32M";

/// MariaDB as it is installed on this machine.
#[derive(Debug)]
pub struct MariaDbProduct {
    server: PathBuf,
    client: PathBuf,
    installer: PathBuf,
}

impl Product for MariaDbProduct {
    const NAME: &'static str = "MariaDB";
    const PACKAGE: &'static str = "mariadb-server";
    const USER: &'static str = "mysql";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    const QUICK: &'static [&'static str] = &[
        "innodb-flush-log-at-trx-commit=0",
        "innodb-flush-method=nosync",
        "innodb-doublewrite=OFF",
        // All tables go into one file: creating and dropping files takes most of the time of a short test.
        "innodb-file-per-table=OFF",
        "sync-frm=OFF",
    ];
    const HAS_TEMPLATE: bool = true;

    fn find() -> Option<Self> {
        let in_path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&in_path).collect();
        // Servers are in `/usr/sbin`, which is not in the `PATH` of every account.
        folders.push("/usr/sbin".into());
        let find = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        Some(Self {
            server: find("mariadbd")?,
            client: find("mariadb")?,
            installer: find("mariadb-install-db")?,
        })
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<MariaDbProduct>>> = Mutex::new(None);
        &SLOT
    }

    fn program(&self) -> &Path {
        &self.server
    }

    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()> {
        let mut command = run(&self.installer);
        command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        command.arg(temporary(data));
        command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
        command.arg(LOG_SIZE);
        finish(command)?;
        Ok(fs::write(data.join(FIRST_FILE), FIRST)?)
    }

    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()> {
        let Place { data, port, settings } = *place;
        let file = |name: &str, file: &str| format!("--{name}={}", data.join(file).display());
        command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        command.arg(temporary(data));
        command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=300"]);
        command.args(["--innodb-buffer-pool-size=64M", LOG_SIZE]).arg(format!("--port={port}"));
        command.arg(file("init-file", FIRST_FILE)).arg(file("pid-file", "pid"));
        // The path is relative to the data directory, because an absolute path may be too long for a socket.
        command.arg("--socket=socket");
        command.args(settings.iter().map(|setting| format!("--{setting}")));
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _process: u32) -> Result<bool> {
        sql::answers(self, place)
    }
}

/// Where a server has its temporary tables. At its start it deletes those that it finds, also those of another server that
/// has the same folder.
fn temporary(data: &Path) -> String {
    format!("--tmpdir={}", data.display())
}

impl SqlProduct for MariaDbProduct {
    const DIRECTORY: &'static str = "select trim(trailing '/' from @@datadir)";
    const DATABASE: &'static str = "mysql";

    fn ask(&self, port: u16, database: &str, statement: &str) -> Command {
        let mut command = Command::new(&self.client);
        command.arg("--no-defaults").args(["--protocol=tcp", "--host=127.0.0.1", "--user=root"]);
        command
            .args(["--connect-timeout=30", "--skip-column-names", "--batch"])
            .arg(format!("--port={port}"));
        command.arg(format!("--database={database}")).arg("--execute").arg(statement).stdin(Stdio::null());
        command
    }

    fn url(port: u16, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{port}/{database}")
    }

    fn drop_database(name: &str) -> String {
        format!("drop database if exists {name}")
    }
}
