//! The stub: ties a command to the life of its worker before the command runs its first instruction.
//!
//! The worker starts every command as `windlass module-exec WORKER_PID CGROUP COMMAND [ARGUMENT…]`. The stub asks the
//! kernel for SIGKILL when the worker dies, checks that the worker has not died already, enters a new control
//! group if the worker has one (otherwise CGROUP is empty), waits until the guard knows the process group,
//! and then becomes the command. In safe code this cannot be done from outside: only the process itself can
//! set its death signal.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, anyhow, bail};
use rustix::event::{PollFd, PollFlags};

use super::cgroup::Cgroup;

/// The hidden subcommand that runs the stub.
pub const EXEC_COMMAND: &str = "module-exec";

/// The exit code of shells for a command that exists but cannot be run.
const EXIT_CANNOT_RUN: u8 = 126;

/// Runs the stub with the arguments after [`EXEC_COMMAND`]. Returns only if the command could not be started,
/// after it has printed the reason to stderr.
#[must_use]
pub fn exec_main(args: &[OsString]) -> ExitCode {
    let error = exec_stub(args);
    eprintln!("{error:#}");
    ExitCode::from(EXIT_CANNOT_RUN)
}

/// Becomes the command. Returns only if that failed.
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
    let [worker, cgroup, command, arguments @ ..] = args else {
        bail!(
            "`windlass {EXEC_COMMAND}` is run by `windlass worker` and `windlass lead` only: it needs a process id, a control group and a command"
        );
    };
    let worker: i32 = worker
        .to_str()
        .and_then(|text| text.parse().ok())
        .with_context(|| format!("`{}` is not a process id", worker.display()))?;
    die_with_parent()?;
    // If the worker died before the signal was set, the signal would never come.
    if rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(worker) {
        bail!("the worker that wanted {} is gone", command.display());
    }
    if !cgroup.is_empty()
        && let Err(error) = Cgroup::at(cgroup.into()).enter()
    {
        // A system limit on control groups must not stop the command: its log gets one line about it.
        eprintln!(
            "windlass: processes that leave this command's group can outlive it: no control group: {error}"
        );
    }
    wait_for_input()?;
    let mut command = Command::new(command);
    command.args(arguments);
    Ok(command)
}

#[cfg(target_os = "linux")]
fn die_with_parent() -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .context("cannot set the parent-death signal")
}

/// On other systems only the guard ends the commands of a dead worker.
#[cfg(not(target_os = "linux"))]
fn die_with_parent() -> anyhow::Result<()> {
    Ok(())
}

/// The worker writes to stdin only after the guard knows this process group, so the guard misses no process
/// of the command. Reads nothing: the document is for the command.
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
