//! The stub: how a command is tied to the life of its worker before it runs a single instruction.
//!
//! The worker starts every command as `windlass module-exec WORKER_PID CGROUP COMMAND`. The stub asks the kernel
//! for SIGKILL when the worker dies, makes sure that the worker has not died already, enters a control group of its own
//! where the worker has some (CGROUP is empty otherwise), waits until the guard knows the process group, and then
//! becomes the command. A command cannot be tied from outside in safe code:
//! the death signal can only be set by the process itself.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, anyhow, bail};
use rustix::event::{PollFd, PollFlags};

use super::cgroup::Cgroup;

/// The hidden subcommand that runs the stub.
pub const EXEC_COMMAND: &str = "module-exec";

/// What a shell ends with when a command is there but cannot be run.
const EXIT_CANNOT_RUN: u8 = 126;

/// Runs the stub with the arguments after [`EXEC_COMMAND`]; it returns only if the command could not be
/// started, having said why on stderr.
#[must_use]
pub fn exec_main(args: &[OsString]) -> ExitCode {
    let error = exec_stub(args);
    eprintln!("{error:#}");
    ExitCode::from(EXIT_CANNOT_RUN)
}

/// Becomes the command; returns only if that failed.
pub fn exec_stub(args: &[OsString]) -> anyhow::Error {
    match prepare(args) {
        Ok(mut command) => {
            let error = command.exec();
            let path = command.get_program().display();
            let hint = match error.kind() {
                std::io::ErrorKind::NotFound => " (is the interpreter that its first line names installed?)",
                _ => "",
            };
            anyhow!("cannot start {path}: {error}{hint}")
        }
        Err(error) => error,
    }
}

fn prepare(args: &[OsString]) -> anyhow::Result<Command> {
    let [worker, cgroup, command] = args else {
        bail!(
            "`windlass {EXEC_COMMAND}` is run by `windlass worker` only: it needs a process id, a control group and a command"
        );
    };
    let worker: i32 = worker
        .to_str()
        .and_then(|text| text.parse().ok())
        .with_context(|| format!("`{}` is not a process id", worker.display()))?;
    die_with_parent()?;
    // Had the worker died before the signal was set, it would never come.
    if rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(worker) {
        bail!("the worker that wanted {} is gone", command.display());
    }
    if !cgroup.is_empty()
        && let Err(error) = Cgroup::at(cgroup.into()).enter()
    {
        // A limit of the system on control groups is no reason not to run the command: one line of its log says so.
        eprintln!(
            "windlass: processes that leave this command's group can outlive it: no control group: {error}"
        );
    }
    wait_for_input()?;
    Ok(Command::new(command))
}

#[cfg(target_os = "linux")]
fn die_with_parent() -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .context("cannot set the parent-death signal")
}

/// Elsewhere the guard alone ends what a dead worker leaves behind.
#[cfg(not(target_os = "linux"))]
fn die_with_parent() -> anyhow::Result<()> {
    Ok(())
}

/// The worker writes to stdin only once the guard knows this process group, so nothing that the command starts
/// can be missed. Nothing is read here: the document is the command's.
fn wait_for_input() -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for the input"),
        }
    }
}
