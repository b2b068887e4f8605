//! The row sink: its threads, and the port over them.

use std::{
    fmt,
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use async_trait::async_trait;
use futures_channel::oneshot;
use windlass_core::{Alarm, AlarmId, Event, Name, TaskId, Timestamp};
use windlass_store::{
    DamagedTask, JournalEntry, JournalQuery, JournalSize, LogLine, Now, Page, Retention, SizeQuery,
    StoreError, StoredAlarm, SubmitKey, TaskQuery, Unannounced, UniqueKey,
    resident::{Batch, Line, LinePlace, Params, ReadTask, Recovered, Room, RowSink, WakePlace, Written},
};

use super::{
    checkpoint::{self, Limits},
    directory::Directory,
    gate::Gate,
    inode_lock::behind_links,
    list,
    lock::LockFile,
    open::{OpenError, SqliteOptions, prepare},
    outbox, query,
    readers::Readers,
    record_rows, resting, unique_rows,
    writer::{Command, Writer},
};

/// How often a task is looked for whose events are asked for: one that comes back from its rest between two
/// steps of a look is in neither place.
const EVENTS_LOOKS: usize = 3;

/// Rows in a SQLite file.
///
/// It works with threads of its own and needs no runtime. Dropping it waits for what was given to it, and
/// leaves a file that needs no recovery.
pub struct SqliteSink {
    writer: mpsc::Sender<Command>,
    /// `None` once the store closes.
    readers: Option<Readers>,
    directory: Arc<Directory>,
    gate: Arc<Gate>,
    /// The writer's, then the readers', then that of the checkpoints.
    threads: Vec<JoinHandle<()>>,
    /// Given back last.
    _lock: LockFile,
}

impl SqliteSink {
    /// Opens the store at `path`, or makes a new one.
    ///
    /// # Errors
    /// When it is open already, is something else, is of a newer format, or the system refuses.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = &*behind_links(path);
        let (lock, connection) = prepare(path, &options)?;
        let (sender, inbox) = mpsc::channel();
        let gate = Arc::new(Gate::default());
        let limits = Limits::new(options.wal_bytes);
        let directory = Arc::new(Directory::default());
        let writer = Writer {
            path: path.to_owned(),
            options,
            limits,
            directory: directory.clone(),
            gate: gate.clone(),
            inbox,
            next: None,
            epoch_begun: false,
        };
        let io = |error| OpenError::io("start the threads for", path, error);
        let mut threads = vec![writer.start(connection).map_err(io)?];
        let (readers, reader_threads) = Readers::start(path).map_err(io)?;
        threads.extend(reader_threads);
        threads.push(checkpoint::start(path.to_owned(), gate.clone(), limits).map_err(io)?);
        Ok(Self { writer: sender, readers: Some(readers), directory, gate, threads, _lock: lock })
    }

    /// Finishes what was given to it, ends its threads and copies the log into the file.
    pub fn close(self) {}

    fn readers(&self) -> Result<&Readers, StoreError> {
        self.readers.as_ref().ok_or_else(closed)
    }

    /// Has the writer do something and waits for its answer.
    async fn tell<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.writer.send(command(sender)).map_err(|_| closed())?;
        receiver.await.unwrap_or_else(|oneshot::Canceled| Err(closed()))
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store's threads have ended".to_owned())
}

impl Drop for SqliteSink {
    fn drop(&mut self) {
        // The writer ends last: it is the one that can leave the file whole, and only without others beside it.
        self.gate.close();
        self.readers = None;
        while let Some(thread) = self.threads.pop() {
            if self.threads.is_empty() {
                let _ = self.writer.send(Command::Close);
            }
            // A thread that panicked has said so; the file is as its last commit left it.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for SqliteSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteSink").finish_non_exhaustive()
    }
}

#[async_trait]
impl RowSink for SqliteSink {
    async fn recover(&self, room: Room) -> Result<Recovered, StoreError> {
        self.tell(|reply| Command::Recover(room, reply)).await
    }

    fn write(&self, batch: Arc<Batch>, written: Written) {
        if let Err(mpsc::SendError(Command::Write(_, written))) =
            self.writer.send(Command::Write(batch, written))
        {
            written(Err(closed()));
        }
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<ReadTask>>, StoreError> {
        let ids = ids.to_vec();
        self.readers()?.look_up(move |connection| query::load(connection, &ids)).await
    }

    async fn load_active(&self, ids: &[TaskId]) -> Result<Vec<Option<ReadTask>>, StoreError> {
        let (ids, directory) = (ids.to_vec(), self.directory.clone());
        self.readers()?.look_up(move |connection| query::load_active(connection, &directory, &ids)).await
    }

    async fn ended_page(&self, query: &TaskQuery) -> Result<Page<ReadTask, TaskId>, StoreError> {
        let query = query.clone();
        self.readers()?.ask(move |connection| list::ended_page(connection, &query)).await
    }

    async fn resting_page(
        &self,
        before: TaskId,
        limit: usize,
        params: Params,
    ) -> Result<Vec<ReadTask>, StoreError> {
        self.readers()?.ask(move |connection| resting::resting_page(connection, before, limit, params)).await
    }

    async fn line_page(
        &self,
        line: &Line,
        after: LinePlace,
        limit: usize,
        room: Room,
    ) -> Result<Vec<(LinePlace, ReadTask)>, StoreError> {
        let line = line.clone();
        let look = move |connection: &_| resting::line_page(connection, &line, after, limit, room);
        self.readers()?.look_up(look).await
    }

    async fn line_count(&self, line: &Line, after: LinePlace, before: LinePlace) -> Result<u64, StoreError> {
        let line = line.clone();
        self.readers()?.ask(move |connection| resting::line_count(connection, &line, after, before)).await
    }

    async fn waking(
        &self,
        after: WakePlace,
        until: Timestamp,
        limit: usize,
        room: Room,
    ) -> Result<Vec<(WakePlace, ReadTask)>, StoreError> {
        let look = move |connection: &_| resting::waking(connection, after, until, limit, room);
        self.readers()?.look_up(look).await
    }

    async fn submit_keys(&self, scopes: &[[u8; 32]]) -> Result<Vec<Option<(TaskId, SubmitKey)>>, StoreError> {
        let scopes = scopes.to_vec();
        self.readers()?.look_up(move |connection| query::submit_keys(connection, &scopes)).await
    }

    async fn unique_tasks(&self, keys: &[UniqueKey]) -> Result<Vec<Option<TaskId>>, StoreError> {
        let keys = keys.to_vec();
        self.readers()?.look_up(move |connection| unique_rows::unique_tasks(connection, &keys)).await
    }

    async fn have_tasks(&self, flows: &[Name]) -> Result<Vec<bool>, StoreError> {
        let flows = flows.to_vec();
        self.readers()?.ask(move |connection| query::have_tasks(connection, &flows)).await
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        for _ in 0..EVENTS_LOOKS {
            let directory = self.directory.clone();
            let look = move |connection: &_| query::events(connection, &directory, task, after, limit);
            if let Some(events) = self.readers()?.ask(look).await? {
                return Ok(events);
            }
        }
        Ok(Vec::new())
    }

    async fn unannounced(
        &self,
        above: TaskId,
        limit: usize,
    ) -> Result<Vec<Result<Unannounced, DamagedTask>>, StoreError> {
        self.readers()?.ask(move |connection| outbox::unannounced(connection, above, limit)).await
    }

    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError> {
        self.readers()?.ask(move |connection| query::logs(connection, task, after, limit)).await
    }

    async fn journal(&self, query: &JournalQuery) -> Result<Vec<(u64, JournalEntry)>, StoreError> {
        let query = query.clone();
        self.readers()?.ask(move |connection| record_rows::journal(connection, &query)).await
    }

    async fn journal_sizes(&self, query: SizeQuery) -> Result<Vec<JournalSize>, StoreError> {
        self.readers()?.ask(move |connection| record_rows::journal_sizes(connection, query)).await
    }

    async fn alarm(&self, id: &AlarmId) -> Result<Option<StoredAlarm>, StoreError> {
        let id = id.clone();
        self.readers()?.look_up(move |connection| query::alarm(connection, &id)).await
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Result<Alarm, DamagedTask>>, StoreError> {
        self.readers()?.ask(move |connection| query::alarms(connection, all, limit)).await
    }

    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError> {
        let retention = *retention;
        self.tell(|reply| Command::Sweep(retention, now, limit, reply)).await
    }
}
