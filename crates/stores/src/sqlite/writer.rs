//! The writer thread: the only one that changes the file.
//!
//! Batches come through a channel. The writer takes all that wait into one transaction, commits, and only then
//! answers each of them, in order. While it commits, the next ones gather: this is the group commit, and it needs
//! no timer. The channel has no limit of its own; the engine admits no more work than it has room for.
//!
//! **When a transaction fails**, its batches fail, and so does everything after them until the state is read
//! again ([`Command::Recover`]): nothing may be built on a hole. A failed sync is never tried again, because the
//! system may have dropped what it could not write. The connection is closed instead, and the next one first
//! has the log copied whole into the file, which writes and syncs every page of it afresh.
//!
//! Only the first reading begins a new epoch. Later ones write nothing: on a full disk what is there can be read.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use futures_channel::oneshot;
use rusqlite::{Connection, DEFAULT_NAME, wal::CheckpointMode};
use windlass_store::{
    Now, Retention, StoreError,
    resident::{Batch, Recovered, Room, Written},
};

use super::{
    checkpoint::Limits,
    connect::{Role, connect, limit_size},
    directory::Directory,
    error::{Fault, describe},
    gate::Gate,
    open::SqliteOptions,
    prefill::{bury_unfinished, prefill_wal, trim_wal},
    recover::{begin_epoch, recover},
    room,
    rows::Rows,
    sweep::Sweeper,
    touched::Touched,
};

/// Most changes in one transaction, but for a single batch that has more. It bounds how long the first of them
/// waits for the last.
const CHANGES_MAX: usize = 2_000;

/// How much of its end the log gives back for a start on a full disk.
const SPARE_BYTES: u64 = 256 << 10;

/// Who waits for the state that is read.
type StateReply = oneshot::Sender<Result<Recovered, StoreError>>;

/// What the writer is asked to do.
pub(super) enum Command {
    /// Write a batch.
    Write(Arc<Batch>, Written),
    /// Read what is active, the first time in a new epoch.
    Recover(Room, StateReply),
    /// Delete what is kept too long.
    Sweep(Retention, Now, usize, oneshot::Sender<Result<u64, StoreError>>),
    /// End the thread.
    Close,
}

/// What the writer thread works with.
pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) options: SqliteOptions,
    pub(super) limits: Limits,
    pub(super) directory: Arc<Directory>,
    pub(super) gate: Arc<Gate>,
    pub(super) inbox: mpsc::Receiver<Command>,
    /// A command that was taken from the inbox and is not done yet.
    pub(super) next: Option<Command>,
    /// The epoch of this process is on disk: claim numbers go on in it, whatever fails later.
    pub(super) epoch_begun: bool,
}

impl Writer {
    /// Starts the thread on a connection that was just opened.
    pub(super) fn start(self, connection: Connection) -> std::io::Result<JoinHandle<()>> {
        thread::Builder::new().name("sqlite-writer".to_owned()).spawn(move || self.run(connection))
    }

    fn run(mut self, connection: Connection) {
        let mut connection = Some(connection);
        let mut fault = Fault::unavailable("the store was not read yet");
        while let Some((room, reply)) = self.wait_for_recover(&fault) {
            let opened = match connection.take() {
                Some(connection) => Ok(connection),
                None => self.reopen(&fault),
            };
            match opened {
                Ok(opened) => match self.serve(&opened, (room, reply)) {
                    Some(failed) => fault = failed,
                    None => return,
                },
                Err(error) => drop(reply.send(Err(error.into()))),
            }
        }
    }

    /// The next command. `None`: the store closes.
    fn receive(&mut self) -> Option<Command> {
        self.next.take().or_else(|| self.inbox.recv().ok())
    }

    /// Refuses everything until the state is to be read. `None`: the store closes.
    fn wait_for_recover(&mut self, fault: &Fault) -> Option<(Room, StateReply)> {
        loop {
            match self.receive() {
                Some(Command::Write(_, written)) => written(Err(fault.clone().into())),
                Some(Command::Sweep(.., reply)) => drop(reply.send(Err(fault.clone().into()))),
                Some(Command::Recover(room, reply)) => return Some((room, reply)),
                Some(Command::Close) | None => return None,
            }
        }
    }

    /// A new connection after a failure.
    fn reopen(&self, fault: &Fault) -> Result<Connection, Fault> {
        let connection = connect(&self.path, Role::Writer)?;
        limit_size(&connection, self.options.file_bytes_max)?;
        if fault.distrusts_disk() {
            self.gate.hold(|| connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::TRUNCATE))?;
            self.gate.start_over();
            prefill_wal(&self.path, self.options.wal_bytes)
                .map_err(|error| Fault::unavailable(format!("cannot fill the write-ahead log: {error}")))?;
        }
        if let Some(frames) = frames(&connection)? {
            let buried = bury_unfinished(&self.path, frames);
            buried.map_err(|error| Fault::unavailable(format!("cannot write to the log: {error}")))?;
            if let Err(error) = trim_wal(&self.path, frames, self.options.wal_bytes) {
                tracing::debug!(%error, "the write-ahead log stays larger than it need be");
            }
        }
        Ok(connection)
    }

    /// Reads the state, then writes until a transaction fails, which is what it returns. `None`: the store
    /// closes.
    fn serve(&mut self, connection: &Connection, (room, reply): (Room, StateReply)) -> Option<Fault> {
        let mut rows = match self.recover(connection, room) {
            Ok((recovered, rows)) => {
                // The caller may have gone; the state is read nevertheless.
                let _ = reply.send(Ok(recovered));
                rows
            }
            Err(fault) => {
                let _ = reply.send(Err(fault.clone().into()));
                return Some(fault);
            }
        };
        let mut sweeper = Sweeper::default();
        loop {
            match self.receive() {
                Some(Command::Write(batch, written)) => {
                    let batches = self.gather(batch, written);
                    if let Err(fault) = self.gate.wait_for_room(self.limits.hold) {
                        tell(batches, &Err(fault.clone()));
                        // Nothing was begun, so this connection goes on.
                        let asked = self.wait_for_recover(&fault);
                        let recover = |(room, reply)| Command::Recover(room, reply);
                        self.next = Some(asked.map_or(Command::Close, recover));
                        continue;
                    }
                    let result =
                        self.commit(connection, &mut rows, batches.iter().map(|(batch, _)| &**batch));
                    let result = result.map_err(|fault| room::explain(connection, &self.path, fault));
                    tell(batches, &result);
                    if let Err(fault) = result {
                        return Some(fault);
                    }
                }
                Some(Command::Sweep(retention, now, limit, reply)) => {
                    if let Err(fault) = self.gate.wait_for_room(self.limits.hold) {
                        // Nothing was begun, and nothing is built on it.
                        let _ = reply.send(Err(fault.into()));
                        continue;
                    }
                    let sweep = || sweeper.sweep(connection, &self.directory, &retention, now, limit);
                    let result = self.transaction(connection, sweep);
                    let failed = result.as_ref().err().cloned();
                    let _ = reply.send(result.map_err(StoreError::from));
                    if failed.is_some() {
                        return failed;
                    }
                }
                Some(Command::Recover(room, reply)) => match self.recover(connection, room) {
                    Ok((recovered, fresh)) => {
                        rows = fresh;
                        let _ = reply.send(Ok(recovered));
                    }
                    Err(fault) => {
                        let _ = reply.send(Err(fault.clone().into()));
                        return Some(fault);
                    }
                },
                Some(Command::Close) | None => {
                    leave_whole(connection);
                    return None;
                }
            }
        }
    }

    fn recover<'c>(
        &mut self,
        connection: &'c Connection,
        room: Room,
    ) -> Result<(Recovered, Rows<'c>), Fault> {
        let mut recovered = self.read_state(connection, room);
        if !self.epoch_begun {
            if recovered.as_ref().is_err_and(Fault::is_full) && self.give_spare_room(connection) {
                recovered = self.read_state(connection, room);
            }
            recovered = recovered.map_err(|fault| fault.at_start(&self.path));
        }
        let recovered = recovered?;
        self.epoch_begun = true;
        Ok((recovered, Rows::new(connection)?))
    }

    fn read_state(&self, connection: &Connection, room: Room) -> Result<Recovered, Fault> {
        self.transaction(connection, || {
            let mended = if self.epoch_begun { Vec::new() } else { begin_epoch(connection)? };
            recover(connection, &self.directory, mended, room)
        })
    }

    /// Gives a little of the end of the log back to the file system. The first transaction of a start has its room
    /// in the log, but the index of the log may have to grow for it, by a piece of 32 KiB.
    fn give_spare_room(&self, connection: &Connection) -> bool {
        let size = self.options.wal_bytes.saturating_sub(SPARE_BYTES);
        matches!(frames(connection), Ok(Some(frames)) if trim_wal(&self.path, frames, size).is_ok())
    }

    /// Takes the batches that wait, up to [`CHANGES_MAX`].
    fn gather(&mut self, batch: Arc<Batch>, written: Written) -> Vec<(Arc<Batch>, Written)> {
        let mut count = batch.changes.len();
        let mut batches = vec![(batch, written)];
        while count < CHANGES_MAX {
            match self.inbox.try_recv() {
                Ok(Command::Write(batch, written)) => {
                    count += batch.changes.len();
                    batches.push((batch, written));
                }
                Ok(other) => {
                    self.next = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        batches
    }

    fn commit<'b>(
        &self,
        connection: &Connection,
        rows: &mut Rows<'_>,
        batches: impl Iterator<Item = &'b Batch>,
    ) -> Result<(), Fault> {
        let touched = self.transaction(connection, || {
            let mut touched = Touched::default();
            for batch in batches {
                for change in &batch.changes {
                    rows.write(&mut touched, &self.directory, change, &batch.resting)?;
                }
                rows.write_limits(&batch.limits)?;
                rows.delete_flows(&batch.unused_flows)?;
                rows.claims.write(&batch.claims)?;
            }
            rows.finish(&touched)?;
            Ok(touched)
        })?;
        touched.publish(&self.directory);
        Ok(())
    }

    /// Runs `work` in a transaction, which is on disk when this returns without a fault.
    fn transaction<T>(
        &self,
        connection: &Connection,
        work: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.gate.enter();
        let result = in_transaction(connection, work);
        // Where the length of the log is not known, it counts as short: a checkpoint comes later then.
        let frames = frames(connection).ok().flatten().unwrap_or(0);
        self.gate.leave(frames, self.limits.start);
        result
    }
}

fn tell(batches: Vec<(Arc<Batch>, Written)>, result: &Result<(), Fault>) {
    for (_, written) in batches {
        written(result.clone().map_err(StoreError::from));
    }
}

/// How many frames the log has, if it has begun.
pub(super) fn frames(connection: &Connection) -> rusqlite::Result<Option<u32>> {
    let (log, _) = connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::NOOP)?;
    // It is -1 where there is no log yet.
    Ok(u32::try_from(log).ok())
}

/// Copies the log into the file and starts it over, so that the next start has next to nothing to read. What
/// fails here is made up for by that start.
fn leave_whole(connection: &Connection) {
    let copied = connection.wal_checkpoint_v2(DEFAULT_NAME, CheckpointMode::RESTART);
    // The log starts over with the first transaction after a checkpoint that writes something; SQLite does not
    // write a row that stays as it is.
    let there_and_back = "BEGIN IMMEDIATE; UPDATE meta SET latest_at = latest_at + 1;
                          UPDATE meta SET latest_at = latest_at - 1; COMMIT";
    let started_over = copied.and_then(|_| connection.execute_batch(there_and_back));
    if let Err(error) = started_over {
        tracing::debug!(
            error = describe(&error),
            "the write-ahead log was left to be read at the next start"
        );
    }
}

fn in_transaction<T>(connection: &Connection, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let result = work().and_then(|value| {
        connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(value)
    });
    if result.is_err() && !connection.is_autocommit() {
        // SQLite rolled some failures back by itself. Whatever is left of it goes with the connection.
        let _ = connection.execute_batch("ROLLBACK");
    }
    result
}
