//! The checkpoint thread: copies the write-ahead log into the file, off the writer's way.

use std::{
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::{Connection, DEFAULT_NAME, Error, ErrorCode, wal::CheckpointMode};

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
                // The copy begins again next time, from the first frame that was not synced, on a new connection.
                Err(error) if is_busy(&error) => {
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
        match pass(connection) {
            Ok((log, left)) if left <= limits.rest || log >= limits.hold => break,
            // The writer was just writing the head of the index. Whether a reader is in the way is seen while it waits.
            Err(error) if !is_busy(&error) => return Err(error),
            _ => {}
        }
    }
    gate.hold(|| {
        connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::RESTART)?;
        gate.start_over();
        Ok(())
    })
}

/// Copies what is in the log by now. Returns how many frames the log has, and how many of them are left to copy.
fn pass(connection: &Connection) -> rusqlite::Result<(u32, u32)> {
    connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::PASSIVE)?;
    let (log, copied) = connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::NOOP)?;
    let frames = |count: i32| u32::try_from(count).unwrap_or(0);
    Ok((frames(log), frames(log - copied)))
}

fn is_busy(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, os::unix::fs::FileExt as _, thread};

    use super::*;
    use crate::sqlite::{connect::use_wal, writer::frames};

    /// Where the index of the log has the second copy of its head.
    const SECOND_HEAD: u64 = 48;

    /// The writer writes the two copies of the head of the index one after the other. A checkpoint that reads them in
    /// between fails as busy.
    #[test]
    fn a_writer_that_is_writing_the_index_is_no_reader_in_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("some.db");
        let writer = connect(&path, Role::Writer).unwrap();
        use_wal(&writer).unwrap();
        writer.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
        let checkpointer = connect(&path, Role::Checkpointer).unwrap();
        let gate = Gate::default();
        let limits = Limits::new(1 << 20);

        gate.enter();
        writer.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)").unwrap();
        let index = OpenOptions::new().write(true).open(directory.path().join("some.db-shm")).unwrap();
        index.write_all_at(&[0xff; 8], SECOND_HEAD).unwrap();
        let error = pass(&checkpointer).unwrap_err();
        assert!(is_busy(&error), "{error}");
        let result = thread::scope(|scope| {
            let held = &gate;
            let checkpoint = scope.spawn(move || checkpoint(&checkpointer, held, limits));
            while !gate.is_held() && !checkpoint.is_finished() {
                thread::yield_now();
            }
            // This writes both copies.
            writer.execute_batch("COMMIT").unwrap();
            gate.leave(frames(&writer).unwrap().unwrap(), limits.start);
            checkpoint.join().unwrap()
        });
        assert_eq!(result, Ok(()));
        writer.execute_batch("INSERT INTO t VALUES (3)").unwrap();
        assert_eq!(frames(&writer).unwrap(), Some(1), "the log was started over");
    }
}
