//! One attempt's processes, from their start to the end of the last of them.
//!
//! The command runs in a process group of its own. It is fed its document and read at the same time, so that
//! neither side can block the other. What ends it, in order of appearance: itself; a stop (cancel or timeout),
//! with SIGTERM to the group and SIGKILL after [`TERM_GRACE`]; more output than anyone will read. Once the
//! command itself has ended, the rest of its group is killed, and a pipe that something outside the group still holds
//! open is read for [`PIPE_GRACE`] at most. Only a service that left the group (`setsid`) survives an attempt, and only
//! one whose command ended by itself; where there are no control groups it survives a stop as well.

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

/// Between SIGTERM and SIGKILL.
pub const TERM_GRACE: Duration = Duration::from_secs(5);

/// For how long the pipes of a command that has ended are read. What it printed itself is in them already, so
/// this is only ever used up when a process that left the group keeps them open.
const PIPE_GRACE: Duration = Duration::from_millis(500);

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its exit code or the signal that ended it.
    pub(super) status: ExitStatus,
    /// What it printed on stdout.
    pub(super) output: ResultBuffer,
    /// The last line that it printed on stderr.
    pub(super) last_line: Option<String>,
    /// It was told to stop before it ended.
    pub(super) stopped: bool,
}

/// Sees a command through to its end. If this is dropped, the group is killed at once.
///
/// # Errors
/// When the system cannot say how the command ended.
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
            // A command may end, or close its stdin, without having read it.
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
                // The time running out is no error: the command has ended, and what it said is read.
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

/// Waits for the command's own end, and brings it about when told to stop.
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
