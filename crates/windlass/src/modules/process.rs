//! The processes of one attempt, from their start to the end of the last one.
//!
//! The command runs in its own process group. Writing its document and reading its output happen
//! concurrently, so that neither side can block the other. It ends by itself, or by a stop (cancel or
//! timeout): SIGTERM to the group and SIGKILL after [`TERM_GRACE`]. It is also killed when it prints too
//! much. After the command has ended, the rest of its group is killed. A pipe that a process outside the
//! group still has open is read for at most [`PIPE_GRACE`]. Only a service that left the group (`setsid`)
//! survives an attempt, and only if its command ended by itself. Without control groups it survives a stop as
//! well.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use super::output::{LogLines, ResultBuffer};
use super::spawner::Group;

/// The time between SIGTERM and SIGKILL.
pub const TERM_GRACE: Duration = Duration::from_secs(5);

/// How long the pipes of an ended command are read. They already contain the command's own output, so this
/// time only passes in full when a process that left the group keeps them open.
const PIPE_GRACE: Duration = Duration::from_millis(500);

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its exit code or the signal that ended it.
    pub(super) status: ExitStatus,
    /// Its output on stdout.
    pub(super) output: ResultBuffer,
    /// The last line on its stderr.
    pub(super) last_line: Option<String>,
    /// Whether it was stopped before it ended.
    pub(super) stopped: bool,
}

/// Runs a command to its end. Dropping the future kills the group at once.
///
/// # Errors
/// When the operating system cannot report how the command ended.
pub(super) async fn see_through(
    mut child: Child,
    mut group: Group,
    document: &[u8],
    stop: impl Future<Output = ()>,
    log: &mut (dyn FnMut(String) + Send),
) -> io::Result<Ended> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut output = ResultBuffer::default();
    let mut lines = LogLines::default();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command may end, or close its stdin, without reading it.
            let _ = stdin.write_all(document).await;
        }
    };
    let collect = async {
        if let Some(stdout) = stdout {
            output.read(stdout).await;
        }
        if output.is_flooded() {
            group.kill_all();
        }
    };
    let listen = async {
        if let Some(stderr) = stderr {
            lines.read(stderr, log).await;
        }
    };
    let (status, stopped) = {
        let mut streams = pin!(async { tokio::join!(feed, collect, listen) });
        let mut end = pin!(wait(&mut child, &group, stop));
        tokio::select! {
            ended = &mut end => {
                group.signal(Signal::KILL);
                // A timeout is fine here: the command has ended, and its own output has been read.
                let _ = tokio::time::timeout(PIPE_GRACE, streams).await;
                ended?
            }
            _ = &mut streams => end.await?,
        }
    };
    if !stopped && !output.is_flooded() {
        group.ended_by_itself();
    }
    let last_line = lines.into_last(log);
    Ok(Ended { status, output, last_line, stopped })
}

/// Waits for the end of the command, and ends it after a stop.
async fn wait(
    child: &mut Child,
    group: &Group,
    stop: impl Future<Output = ()>,
) -> io::Result<(ExitStatus, bool)> {
    tokio::select! {
        status = child.wait() => return Ok((status?, false)),
        () = stop => group.signal(Signal::TERM),
    }
    let status = match tokio::time::timeout(TERM_GRACE, child.wait()).await {
        Ok(status) => status?,
        Err(_) => {
            group.kill_all();
            child.wait().await?
        }
    };
    Ok((status, true))
}
