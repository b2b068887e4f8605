//! Starts and ends the processes of the demo and of benchmarks. They end with the program, however it ends.

use std::{
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time,
};

use crate::modules::GUARD_COMMAND;

/// The line that a ready server prints, up to its address.
const READY: &str = "listening on ";

/// The most time a server may take to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The most time a process may take to end after SIGTERM; then it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// The number of log lines in an error message.
const LOG_LINES: usize = 5;

/// Starts processes, and ends them.
#[derive(Debug)]
pub(crate) struct Supervisor {
    guard: Guard,
    running: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    name: String,
    /// The process id, which is that of its group. The child forgets it once its end was seen.
    group: Option<u32>,
    child: Child,
    /// The file for its standard error; none if that is inherited.
    log: Option<PathBuf>,
    /// Kept open: a server with a closed standard output would fail at its next line.
    _output: Option<Lines<BufReader<ChildStdout>>>,
}

impl Supervisor {
    /// A supervisor without processes. `program` is this program: it also runs the guard.
    ///
    /// # Errors
    /// When the guard does not start.
    pub(crate) fn new(program: &Path) -> anyhow::Result<Self> {
        let guard = Guard::start(program).context("cannot start the guard of the processes")?;
        Ok(Self { guard, running: Vec::new() })
    }

    /// Starts a process under this name. With `log` its standard error goes to that file.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start(
        &mut self,
        name: &str,
        command: Command,
        log: Option<PathBuf>,
    ) -> anyhow::Result<u32> {
        let child = self.spawn(name, command, log.as_deref())?;
        let group = child.id();
        self.running.push(Process { name: name.to_owned(), group, child, log, _output: None });
        Ok(group.unwrap_or_default())
    }

    /// Starts a server, and returns its address once it is ready.
    ///
    /// # Errors
    /// When it does not start, with the end of its log.
    pub(crate) async fn start_server(
        &mut self,
        name: &str,
        mut command: Command,
        log: Option<PathBuf>,
    ) -> anyhow::Result<String> {
        command.stdout(Stdio::piped());
        let mut child = self.spawn(name, command, log.as_deref())?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = line.strip_prefix(READY) {
                    return Ok(address.trim().to_owned());
                }
            }
            bail!("{name} ended at once{}", end_of(log.as_deref()))
        };
        let address = time::timeout(START_TIMEOUT, ready).await.unwrap_or_else(|_| {
            bail!("{name} is not ready after {START_TIMEOUT:?}{}", end_of(log.as_deref()))
        });
        // Also where it is not ready: it is ended with the others.
        let group = child.id();
        self.running.push(Process { name: name.to_owned(), group, child, log, _output: Some(lines) });
        address
    }

    /// The ids of the processes whose names start with `prefix`.
    pub(crate) fn pids(&self, prefix: &str) -> Vec<u32> {
        let processes = self.running.iter().filter(|process| process.name.starts_with(prefix));
        processes.filter_map(|process| process.child.id()).collect()
    }

    /// Fails if a process has ended by itself.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        for process in &mut self.running {
            if let Some(status) = process.child.try_wait().context("cannot read the status of a process")? {
                bail!("{} has ended ({status}){}", process.name, end_of(process.log.as_deref()));
            }
        }
        Ok(())
    }

    /// Sends SIGKILL to a process and waits until it is gone.
    ///
    /// # Errors
    /// When there is no process of this name.
    pub(crate) async fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let index = self.running.iter().position(|process| process.name == name);
        let index = index.with_context(|| format!("there is no process {name}"))?;
        let mut process = self.running.swap_remove(index);
        process.child.kill().await.with_context(|| format!("cannot kill {name}"))?;
        self.guard.forget(process.group);
        Ok(())
    }

    /// Ends all processes by SIGTERM, the last one first, and kills those that do not end. Returns how each
    /// ended, by name.
    pub(crate) async fn end(&mut self) -> Vec<(String, Option<ExitStatus>)> {
        let mut ends = Vec::new();
        while let Some(mut process) = self.running.pop() {
            if let Some(pid) = process.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
                // It may have ended by itself just now.
                let _ = rustix::process::kill_process(pid, Signal::TERM);
            }
            let status = match time::timeout(END_TIMEOUT, process.child.wait()).await {
                Ok(status) => status.ok(),
                Err(_) => process.child.kill().await.err().and(None),
            };
            self.guard.forget(process.group);
            ends.push((process.name, status));
        }
        self.guard.end();
        ends
    }

    /// Each process has its own group: a Ctrl-C only reaches this program, which then ends the others in
    /// order.
    fn spawn(&mut self, name: &str, mut command: Command, log: Option<&Path>) -> anyhow::Result<Child> {
        if let Some(log) = log {
            let file =
                std::fs::File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
            command.stderr(file);
        }
        command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        self.guard.watch(&child)?;
        Ok(child)
    }
}

/// The last lines of a log, for an error message.
fn end_of(log: Option<&Path>) -> String {
    let Some(log) = log else { return ": its reason is above".to_owned() };
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    format!(": {}", lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"))
}

/// The guard process, for the case that this program is killed: it kills all groups that it watches once this
/// process is gone.
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
    fn watch(&mut self, child: &Child) -> anyhow::Result<()> {
        let group = child.id().context("a process has ended at once")?;
        let groups = self.process.stdin.as_mut().context("the guard has ended")?;
        writeln!(groups, "+{group}").context("the guard has ended")
    }

    /// The group has ended; its id may be reused soon.
    fn forget(&mut self, group: Option<u32>) {
        if let (Some(group), Some(groups)) = (group, self.process.stdin.as_mut()) {
            // A guard that has ended kills nothing.
            let _ = writeln!(groups, "-{group}");
        }
    }

    /// Ends the guard and the remaining groups.
    fn end(&mut self) {
        drop(self.process.stdin.take());
        // The guard ends at once; an error means that it had already ended.
        let _ = self.process.wait();
    }
}
