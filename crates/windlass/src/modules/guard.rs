//! The guard: one small process beside each worker that ends the commands of a dead worker.
//!
//! The parent-death signal (see the stub) reaches a command, but not the processes that the command has
//! started. So the worker reports to its guard every process group that it starts and every one that has
//! ended, as lines `+PGID` and `-PGID` on the guard's stdin. However the worker ends, the kernel closes that
//! pipe. The guard then sends SIGKILL to every group still listed, and exits. It has its own process group
//! and ignores SIGTERM, SIGINT and SIGHUP, so that a Ctrl-C or a closing terminal cannot end it before the
//! worker.
//!
//! If the worker has a control group, its path is the guard's argument. The guard then also kills the control
//! groups of the listed process groups, and removes everything.
//!
//! A process that may run its commands only while it leads also sends `@TERM KILL` after each renewal: the
//! times at which every listed group gets SIGTERM and SIGKILL unless another such line comes. So the commands
//! end in time even when their worker is stopped or hangs, and cannot end them.
//!
//! If the guard dies, the worker starts another one and reports all groups to it. The demo uses a guard for
//! its server and its workers in the same way.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use tokio::signal::unix::{SignalKind, signal};

use super::cgroup::Cgroup;
use super::deadline::machine_ms;
use super::groups::Groups;

/// The hidden subcommand that runs the guard.
pub const GUARD_COMMAND: &str = "module-guard";

/// The most bytes of lines that are read at once.
const READ_BYTES: usize = 4096;

/// Runs the guard: reads stdin to its end, then kills every process group still listed. `cgroup` is the
/// worker's control group, if it has one.
#[must_use]
pub fn guard_main(cgroup: Option<PathBuf>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&error),
    };
    let context = runtime.enter();
    // A handler stays installed for the life of the process; its signals are ignored.
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        if let Err(error) = signal(kind) {
            return refuse(&error);
        }
    }
    let cgroup = cgroup.map(Cgroup::at);
    let left_behind: Vec<Pid> = watch(cgroup.as_ref()).left().filter_map(Pid::from_raw).collect();
    for group in &left_behind {
        // An error means that the group has already ended.
        let _ = rustix::process::kill_process_group(*group, Signal::KILL);
    }
    if let Some(cgroup) = cgroup {
        cgroup.end(&left_behind);
    }
    drop(context);
    ExitCode::SUCCESS
}

fn refuse(error: &io::Error) -> ExitCode {
    eprintln!("the guard cannot start: {error}");
    ExitCode::FAILURE
}

/// Keeps the list of groups until the end of the input, and ends them at their deadline.
fn watch(cgroup: Option<&Cgroup>) -> Groups {
    let mut groups = Groups::default();
    let mut line = Vec::new();
    let mut buffer = [0; READ_BYTES];
    // Past the buffer of the standard library, which hides lines from the poll.
    let stdin = io::stdin();
    loop {
        for (group, signal) in groups.due(machine_ms()) {
            let Some(group) = Pid::from_raw(group) else { continue };
            // An error means that the group has already ended.
            let _ = rustix::process::kill_process_group(group, signal);
            if let Some(cgroup) = cgroup.filter(|_| signal == Signal::KILL) {
                cgroup.kill(group);
            }
        }
        if !wait_for_input(&groups) {
            continue;
        }
        let read = match rustix::io::read(&stdin, &mut buffer) {
            Ok(read @ 1..) => buffer.get(..read).unwrap_or_default(),
            Err(Errno::INTR) => continue,
            // A line without its end was cut off by the worker's death: its number may be incomplete.
            Ok(0) | Err(_) => return groups,
        };
        for byte in read {
            if *byte == b'\n' {
                groups.read(&line);
                line.clear();
            } else {
                line.push(*byte);
            }
        }
    }
}

/// Waits for input or its end. False if something else is due first.
fn wait_for_input(groups: &Groups) -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let quiet = groups.quiet_ms(machine_ms()).map(Duration::from_millis);
    let timeout = quiet.and_then(|quiet| Timespec::try_from(quiet).ok());
    // After an error of the poll, the read returns it.
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(ready) => ready > 0,
        Err(error) => error != Errno::INTR,
    }
}
