//! Questions to a store, and what changes are built on besides tasks.

use async_trait::async_trait;
use windlass_core::{ActKey, Alarm, AlarmId, Event, Lock, LockName, Name, Ready, TaskId};

use super::{
    JournalEntry, JournalQuery, JournalSize, LimitState, Loaded, LogLine, Now, Page, QueueState, Record,
    RecordKind, SessionState, SizeQuery, StoreError, StoredAlarm, StoredFlow, TaskQuery,
};

/// Reads.
#[async_trait]
pub trait Queries: Send + Sync + 'static {
    /// The flow with this name: that version, or the newest.
    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError>;

    /// All flows, each in its newest version, by name.
    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError>;

    /// Tasks, newest first, as they are on disk. Items and results may be missing: [`Store::load`](super::Store::load) has
    /// them all. Tasks whose rows are damaged are left out.
    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError>;

    /// Events of a task with numbers above `after`, in order.
    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError>;

    /// Log lines of a task with numbers above `after`, in the order in which they came, each with its number. The numbers of
    /// a task's lines only grow, with gaps: none comes again once its line was deleted, and none becomes visible after a
    /// greater one.
    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError>;

    /// The alarms with these ids and their versions, in this order.
    async fn alarms_by_id(&self, ids: &[AlarmId]) -> Result<Vec<Option<StoredAlarm>>, StoreError>;

    /// The alarm with this id and its version.
    async fn alarm(&self, id: &AlarmId) -> Result<Option<StoredAlarm>, StoreError> {
        Ok(self.alarms_by_id(std::slice::from_ref(id)).await?.pop().flatten())
    }

    /// At most `limit` alarms, those raised last first; resolved ones only with `all`.
    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError>;

    /// The locks with these names, in this order, for changes to build on. A lock that is not stored is free and has the
    /// version of the store's floor.
    async fn locks_by_name(&self, names: &[LockName]) -> Result<Vec<Lock>, StoreError>;

    /// The lock with this name, if anybody has it or waits for it.
    async fn lock(&self, name: &LockName) -> Result<Option<Lock>, StoreError> {
        let lock = self.locks_by_name(std::slice::from_ref(name)).await?.pop();
        Ok(lock.filter(|lock| !lock.is_free()))
    }

    /// At most `limit` locks that somebody has or waits for, with names above `after`, by name.
    async fn locks(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<Lock>, StoreError>;

    /// At most `limit` locks that are stored and free, for the janitor to delete.
    async fn free_locks(&self, limit: usize) -> Result<Vec<Lock>, StoreError>;

    /// The floor of the store's locks: no deleted lock had a higher version, and no free lock that is stored has.
    async fn lock_floor(&self) -> Result<u64, StoreError>;

    /// The records of a kind with these names, in this order, for changes to build on.
    async fn records_by_name(
        &self,
        kind: RecordKind,
        names: &[Name],
    ) -> Result<Vec<Option<Record>>, StoreError>;

    /// At most `limit` records of a kind with names above `after`, by name. Damaged ones are left out.
    async fn records(
        &self,
        kind: RecordKind,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Entries of a journal, the newest first, each with its number. Numbers only grow, with gaps.
    async fn journal(&self, query: &JournalQuery) -> Result<Vec<(u64, JournalEntry)>, StoreError>;

    /// The sizes of entries of a journal, ordered by time, and by number where times are equal.
    async fn journal_sizes(&self, query: SizeQuery) -> Result<Vec<JournalSize>, StoreError>;

    /// All queues that hold or held an attempt, or are paused, by name.
    async fn queues(&self) -> Result<Vec<QueueState>, StoreError>;

    /// All sessions whose lease has not ended.
    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError>;

    /// All limits with what counts under them, by name.
    async fn limits(&self, now: Now) -> Result<Vec<LimitState>, StoreError>;

    /// The limits that keep a ready attempt like this one from being handed out, with what counts under its concurrency key.
    async fn keeping_back(&self, ready: &Ready, now: Now) -> Result<Vec<LimitState>, StoreError>;

    /// How many attempts are before this act's in the queue of its module; nothing when it is not in the queue.
    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError>;
}
