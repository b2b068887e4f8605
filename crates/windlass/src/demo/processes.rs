//! The processes of the demo: a server and workers, started with the command lines that users have.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::modules::GUARD_COMMAND;

/// What the server prints when it is ready, before its address.
const READY: &str = "listening on ";

/// A server that is not ready by then will not be.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// For how long a process may bring itself to its end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The guard that also ends what a killed worker leaves behind: it kills all groups it was told of once this
/// process is gone, however that came.
#[derive(Debug)]
struct Guard {
    process: std::process::Child,
}

impl Guard {
    fn start(program: &Path) -> std::io::Result<Self> {
        let mut command = std::process::Command::new(program);
        command.arg(GUARD_COMMAND).process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Self { process: command.spawn()? })
    }

    /// From now on the group of `child` ends with this process.
    fn begin(&mut self, child: &Child) -> anyhow::Result<()> {
        let group = child.id().context("a process has ended at once")?;
        let groups = self.process.stdin.as_mut().context("the guard has ended")?;
        writeln!(groups, "+{group}").context("the guard has ended")
    }

    /// The group has ended: its number may be another one's soon.
    fn over(&mut self, group: Option<u32>) {
        if let (Some(group), Some(groups)) = (group, self.process.stdin.as_mut()) {
            // A guard that has ended kills nobody.
            let _ = writeln!(groups, "-{group}");
        }
    }

    /// Ends it, and what is left of the groups.
    fn end(&mut self) {
        drop(self.process.stdin.take());
        // It ends at once, and if it had ended before, that is as well.
        let _ = self.process.wait();
    }
}

/// All processes of the demo, in the folder they work in.
#[derive(Debug)]
pub(super) struct Processes {
    program: PathBuf,
    folder: PathBuf,
    guard: Guard,
    running: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    name: String,
    child: Child,
    /// Kept open: a server whose output nobody takes would fail at its next line.
    _output: Option<Lines<BufReader<ChildStdout>>>,
}

impl Processes {
    /// None yet but the guard of those to come.
    pub(super) fn new(program: PathBuf, folder: PathBuf) -> anyhow::Result<Self> {
        let guard = Guard::start(&program).context("cannot start the guard of the demo's processes")?;
        Ok(Self { program, folder, guard, running: Vec::new() })
    }

    /// The program that they run.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// The folder they work in.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a server on a free port and gives its address once it is ready.
    pub(super) async fn start_server(&mut self) -> anyhow::Result<String> {
        let arguments = ["server", "--listen", "127.0.0.1:0", "--store", "sqlite:windlass.db"];
        let mut command = self.command("server", &arguments)?;
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start the server")?;
        self.guard.begin(&child)?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = line.strip_prefix(READY) {
                    return Ok(address.trim().to_owned());
                }
            }
            bail!("the server ended at once: {}", self.log("server"))
        };
        let address = tokio::time::timeout(START_TIMEOUT, ready).await.unwrap_or_else(|_| {
            bail!("the server is not ready after {START_TIMEOUT:?}: {}", self.log("server"))
        })?;
        self.running.push(Process { name: "server".to_owned(), child, _output: Some(lines) });
        Ok(address)
    }

    /// Starts a worker that serves the modules of the folder; gives its process id.
    pub(super) fn start_worker(&mut self, name: &str, server: &str) -> anyhow::Result<u32> {
        let arguments = ["worker", "--server", server, "--modules", "modules", "--name", name];
        let child = self
            .command(name, &arguments)?
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        self.guard.begin(&child)?;
        let pid = child.id().unwrap_or_default();
        self.running.push(Process { name: name.to_owned(), child, _output: None });
        Ok(pid)
    }

    /// Runs a command of the client to its end and gives what it printed.
    pub(super) async fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self.bare_command(arguments).output().await.context("cannot start a command")?;
        let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("`windlass {}` failed: {printed}{}", arguments.join(" "), error.trim());
        }
        Ok(printed)
    }

    /// Sends SIGKILL to a process and waits until it is gone.
    pub(super) async fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let index = self.running.iter().position(|process| process.name == name);
        let mut process = self.running.swap_remove(index.with_context(|| format!("there is no {name}"))?);
        let group = process.child.id();
        process.child.kill().await.with_context(|| format!("cannot kill {name}"))?;
        self.guard.over(group);
        Ok(())
    }

    /// An error if a process has ended that nobody told to.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let ended = self.running.iter_mut().find_map(|process| {
            let status = process.child.try_wait().ok()??;
            Some((process.name.clone(), status))
        });
        match ended {
            Some((name, status)) => bail!("{name} has ended ({status}): {}", self.log(&name)),
            None => Ok(()),
        }
    }

    /// Ends all of them, workers first.
    pub(super) async fn end(&mut self) {
        while let Some(mut process) = self.running.pop() {
            let group = process.child.id();
            if let Some(pid) = process.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
                // It may have ended by itself just now.
                let _ = rustix::process::kill_process(pid, Signal::TERM);
            }
            if tokio::time::timeout(END_TIMEOUT, process.child.wait()).await.is_err() {
                let _ = process.child.kill().await;
            }
            self.guard.over(group);
        }
        self.guard.end();
    }

    /// A command whose log goes to a file of its own.
    fn command(&self, name: &str, arguments: &[&str]) -> anyhow::Result<Command> {
        let path = self.log_path(name);
        let log = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut command = self.bare_command(arguments);
        command.stderr(log);
        Ok(command)
    }

    /// Settings of the user's own servers must not lead the demo to them. A Ctrl-C is for the demo alone, which
    /// then ends its processes in order.
    fn bare_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"WINDLASS_") {
                command.env_remove(name);
            }
        }
        command
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// The last lines of a log, for an error message.
    fn log(&self, name: &str) -> String {
        let text = fs::read_to_string(self.log_path(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}
