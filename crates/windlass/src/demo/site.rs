//! The processes of the demo: a server and workers in a folder, started with ordinary command lines.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::supervisor::Supervisor;

/// The server, the workers, and their working folder.
#[derive(Debug)]
pub(super) struct Site {
    program: PathBuf,
    folder: PathBuf,
    processes: Supervisor,
}

impl Site {
    /// A site without processes.
    pub(super) fn new(program: PathBuf, folder: PathBuf) -> anyhow::Result<Self> {
        let processes = Supervisor::new(&program)?;
        Ok(Self { program, folder, processes })
    }

    /// The program file of the processes.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// The working folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a server on a free port and returns its address once it is ready.
    pub(super) async fn start_server(&mut self) -> anyhow::Result<String> {
        let mut server =
            self.command(&["server", "--listen", "127.0.0.1:0", "--store", "sqlite:windlass.db"]);
        server.arg("--require-tokens=false");
        self.processes.start_server("server", server, Some(self.log("server"))).await
    }

    /// Starts a worker that serves the modules of the folder. Returns its process id.
    pub(super) fn start_worker(&mut self, name: &str, server: &str) -> anyhow::Result<u32> {
        let mut worker =
            self.command(&["worker", "--server", server, "--modules", "modules", "--name", name]);
        worker.stdout(Stdio::null());
        self.processes.start(name, worker, Some(self.log(name)))
    }

    /// Runs a client command to its end. Returns its output.
    pub(super) async fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = self.command(arguments);
        // A Ctrl-C is for the demo alone, which ends its processes in order.
        let output = command.stdin(Stdio::null()).process_group(0).kill_on_drop(true).output().await;
        let output = output.context("cannot start a command")?;
        let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("`windlass {}` failed: {printed}{}", arguments.join(" "), error.trim());
        }
        Ok(printed)
    }

    /// Sends SIGKILL to a process and waits until it has ended.
    pub(super) async fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        self.processes.kill(name).await
    }

    /// Fails if a process has ended by itself.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.processes.check()
    }

    /// Ends all processes, workers first.
    pub(super) async fn end(&mut self) {
        self.processes.end().await;
    }

    /// Removes the user's settings, which could lead the demo to the user's own servers.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.folder);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"WINDLASS_") {
                command.env_remove(name);
            }
        }
        command
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }
}
