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
//! If the guard dies, the worker starts another one and reports all groups to it. The demo uses a guard for
//! its server and its workers in the same way.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::process::{Pid, RawPid, Signal};
use tokio::signal::unix::{SignalKind, signal};

use super::cgroup::Cgroup;

/// The hidden subcommand that runs the guard.
pub const GUARD_COMMAND: &str = "module-guard";

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
    let left_behind = read_groups(std::io::stdin().lock());
    let left_behind: Vec<Pid> = left_behind.into_iter().filter_map(Pid::from_raw).collect();
    for group in &left_behind {
        // An error means that the group has already ended.
        let _ = rustix::process::kill_process_group(*group, Signal::KILL);
    }
    if let Some(cgroup) = cgroup.map(Cgroup::at) {
        cgroup.end(&left_behind);
    }
    drop(context);
    ExitCode::SUCCESS
}

fn refuse(error: &std::io::Error) -> ExitCode {
    eprintln!("the guard cannot start: {error}");
    ExitCode::FAILURE
}

/// The groups that were added and not removed by the end of the input.
fn read_groups(mut input: impl BufRead) -> BTreeSet<RawPid> {
    let mut groups = BTreeSet::new();
    let mut line = Vec::new();
    // A line without its end was cut off by the worker's death: its number may be incomplete.
    while input.read_until(b'\n', &mut line).is_ok() && line.pop() == Some(b'\n') {
        match parse(&line) {
            Some((b'+', group)) => drop(groups.insert(group)),
            Some((_, group)) => drop(groups.remove(&group)),
            None => {}
        }
        line.clear();
    }
    groups
}

fn parse(line: &[u8]) -> Option<(u8, RawPid)> {
    let (sign, digits) = line.split_first()?;
    let group: RawPid = std::str::from_utf8(digits).ok()?.parse().ok()?;
    // Group 1 is the system's or the container's first process: never a command's.
    (matches!(sign, b'+' | b'-') && group > 1).then_some((*sign, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(input: &str) -> Vec<RawPid> {
        read_groups(input.as_bytes()).into_iter().collect()
    }

    #[test]
    fn what_was_added_and_not_removed_is_left() {
        assert_eq!(groups("+10\n+20\n-10\n+30\n"), [20, 30]);
        assert_eq!(groups(""), Vec::<i32>::new());
    }

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        assert_eq!(groups("+0\n+1\n+-5\n10\n*7\n\n+\n+x\n+44\n"), [44]);
    }

    #[test]
    fn a_line_cut_short_names_no_group() {
        assert_eq!(groups("+44\n+123"), [44]);
    }
}
