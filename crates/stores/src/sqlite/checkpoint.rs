//! The checkpoint thread: copies the write-ahead log into the file, off the writer's way.

use std::{
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::{Connection, DEFAULT_NAME, ErrorCode, wal::CheckpointMode};

use super::{
    connect::{Role, connect},
    error::Fault,
    gate::Gate,
    prefill::FRAME_BYTES,
    room,
};

/// How long a checkpoint that has the writer wait will wait for readers. Ours are done in milliseconds; a shell
/// that keeps a read transaction open must not stop the server.
const READERS_TIMEOUT: Duration = Duration::from_millis(25);

/// How long to wait after a checkpoint that a reader kept from its end.
const RETRY_BUSY_AFTER: Duration = Duration::from_millis(200);

/// How long to wait after a checkpoint that failed.
const RETRY_FAILED_AFTER: Duration = Duration::from_secs(1);

/// Passes beside the writer in one checkpoint. Each copies what was written during the one before, so a few
/// bring it down to little; more would only be in vain.
const PASSES_MAX: usize = 6;

/// When the log is copied, in frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// From here on beside the writer. Late enough that a page that is written often is copied once.
    pub(super) start: u32,
    /// From here on the writer waits, so that the log does not outgrow its pre-filled size; and where the log
    /// cannot be copied, it writes no more, so that there is room in it for a start on a full disk.
    pub(super) hold: u32,
    /// When so little is left, the writer may as well wait for it.
    rest: u32,
}

impl Limits {
    /// The limits for a log of this many bytes.
    pub(super) fn new(wal_bytes: u64) -> Self {
        let frames = u32::try_from(wal_bytes / FRAME_BYTES).unwrap_or(u32::MAX).max(16);
        Self { start: frames / 2, hold: frames / 8 * 7, rest: frames / 32 }
    }
}

/// Starts the thread. It ends when the gate is closed.
pub(super) fn start(path: PathBuf, gate: Arc<Gate>, limits: Limits) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name("sqlite-checkpoint".to_owned()).spawn(move || {
        let mut connection = None;
        while gate.wait_for_frames(limits.start) {
            let opened = match connection.take() {
                Some(opened) => Ok(opened),
                None => connect(&path, Role::Checkpointer),
            };
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    failed(&gate, error.into());
                    continue;
                }
            };
            match checkpoint(&opened, &gate, limits) {
                Ok(()) => connection = Some(opened),
                // The copy begins anew next time, from the first frame that was not synced, on a new connection.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                    tracing::debug!("a reader keeps the write-ahead log from being started over");
                    gate.copying_unfinished();
                    gate.wait(RETRY_BUSY_AFTER);
                }
                Err(error) => failed(&gate, room::fault_of_copying(&opened, &path, error)),
            }
        }
    })
}

fn failed(gate: &Gate, fault: Fault) {
    tracing::warn!(error = %fault, "the write-ahead log was not copied; trying again");
    gate.copying_failed(fault);
    gate.wait(RETRY_FAILED_AFTER);
}

/// Copies the whole log, in passes beside the writer until little is left, and that while it waits.
fn checkpoint(connection: &Connection, gate: &Gate, limits: Limits) -> rusqlite::Result<()> {
    connection.busy_timeout(READERS_TIMEOUT)?;
    for _ in 0..PASSES_MAX {
        connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::PASSIVE)?;
        let (log, copied) = connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::NOOP)?;
        let frames = |count: i32| u32::try_from(count).unwrap_or(0);
        if frames(log - copied) <= limits.rest || frames(log) >= limits.hold {
            break;
        }
    }
    gate.hold(|| {
        connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::RESTART)?;
        gate.start_over();
        Ok(())
    })
}
