//! PostgreSQL, from Debian's package `postgresql` or from the `PATH`.

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

/// Debian's folder for PostgreSQL, with one folder for each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The administrator needs no password. All other users need one.
const HOSTS: &str = "\
host all         postgres 127.0.0.1/32 trust
host all         all      127.0.0.1/32 scram-sha-256
host replication postgres 127.0.0.1/32 trust
";

/// PostgreSQL as it is installed on this machine.
#[derive(Debug)]
pub struct PostgresProduct {
    server: PathBuf,
}

impl PostgresProduct {
    /// The path of another program of the same version.
    fn sibling(&self, name: &str) -> PathBuf {
        self.server.with_file_name(name)
    }
}

impl Product for PostgresProduct {
    const NAME: &'static str = "PostgreSQL";
    const PACKAGE: &'static str = "postgresql";
    const USER: &'static str = "postgres";
    // SIGKILL would leave the shared memory behind.
    const SIGNALS: (Signal, &'static str) = (Signal::INT, "QUIT");
    const QUICK: &'static [&'static str] = &["fsync=off", "full_page_writes=off"];
    const HAS_TEMPLATE: bool = true;

    fn find() -> Option<Self> {
        let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
        let mut versions: Vec<(u32, PathBuf)> = versions
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
            .collect();
        versions.sort();
        let in_path = std::env::var_os("PATH").unwrap_or_default();
        let folders = versions.into_iter().rev().map(|(_, path)| path.join("bin"));
        let mut folders = folders.chain(std::env::split_paths(&in_path));
        let is_whole =
            |folder: &PathBuf| ["postgres", "initdb", "psql"].iter().all(|name| folder.join(name).is_file());
        Some(Self { server: folders.find(is_whole)?.join("postgres") })
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<PostgresProduct>>> = Mutex::new(None);
        &SLOT
    }

    fn program(&self) -> &Path {
        &self.server
    }

    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()> {
        let mut command = run(&self.sibling("initdb"));
        command.arg("--pgdata").arg(data).args(["--username=postgres", "--auth=trust", "--encoding=UTF8"]);
        command.args(["--no-locale", "--no-sync"]);
        finish(command)?;
        Ok(fs::write(data.join("pg_hba.conf"), HOSTS)?)
    }

    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()> {
        let Place { data, port, settings } = *place;
        command.arg("-D").arg(data).arg("-p").arg(port.to_string());
        let ours = [
            "listen_addresses=127.0.0.1",
            // The path of a temporary directory may be too long for a socket.
            "unix_socket_directories=",
            "max_connections=300",
            "shared_buffers=64MB",
            "logging_collector=off",
            // A file in the data directory: after a kill, the system would keep other shared memory.
            "dynamic_shared_memory_type=mmap",
        ];
        for setting in ours.into_iter().chain(settings.iter().map(String::as_str)) {
            command.arg("-c").arg(setting);
        }
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _process: u32) -> Result<bool> {
        sql::answers(self, place)
    }

    fn tidy(&self, data: &Path) {
        // In the file of a running server, the seventh line is its shared memory segment: its key and its number.
        let running = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        let segment = running.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
        if let Some(segment) = segment {
            // The next start would reuse the segment. Without a next start it would stay until the machine stops.
            let mut remove = Command::new("ipcrm");
            let _ = remove.arg("-m").arg(segment).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

impl SqlProduct for PostgresProduct {
    const DIRECTORY: &'static str = "show data_directory";
    const DATABASE: &'static str = "postgres";

    fn ask(&self, port: u16, database: &str, statement: &str) -> Command {
        let mut command = Command::new(self.sibling("psql"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        command.env("PGCONNECT_TIMEOUT", "30").stdin(Stdio::null());
        command.args(["--no-psqlrc", "--tuples-only", "--no-align", "--quiet", "--set=ON_ERROR_STOP=1"]);
        command.args(["--host=127.0.0.1", "--username=postgres"]).arg(format!("--port={port}"));
        command.arg(format!("--dbname={database}")).arg("--command").arg(statement);
        command
    }

    fn url(port: u16, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/{database}")
    }

    fn drop_database(name: &str) -> String {
        format!("drop database if exists {name} with (force)")
    }
}
