//! The rows of the database that a batch touches.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use windlass_core::{ActKey, AlarmId, Lock, LockHolder, LockName, Millis, Name, Task, TaskId};
use windlass_store::{ClaimView, Holder, MessageId, RecordKind, RowView, SessionId, TaskChange, UniqueKey};

use crate::rows::act_code;

/// What the database has of what a batch touches, read and locked in the transaction that will write it. While the
/// batch is decided it becomes what the transaction leaves.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Versions of tasks.
    pub(crate) tasks: HashMap<TaskId, u64>,
    /// Rows of what they wait for, by [`wakeup_code`](crate::rows::wakeup_code).
    pub(crate) waits: HashMap<(TaskId, i64), FoundWait>,
    /// When the leases of sessions end.
    pub(crate) sessions: HashMap<SessionId, Millis>,
    /// Locks.
    pub(crate) locks: HashMap<LockName, FoundLock>,
    /// The floor of locks: the version of those that are not stored.
    pub(crate) lock_floor: u64,
    /// Versions of alarms.
    pub(crate) alarms: HashMap<AlarmId, u64>,
    /// Messages that were not consumed.
    pub(crate) messages: HashSet<MessageId>,
    /// Tasks that were submitted under keys, with their fingerprints.
    pub(crate) submit_keys: HashMap<[u8; 32], (TaskId, [u8; 32])>,
    /// The newest tasks of unique keys.
    pub(crate) unique: HashMap<UniqueKey, TaskId>,
    /// Those tasks, and whether a session has an attempt of them.
    pub(crate) firsts: HashMap<TaskId, (Arc<Task>, bool)>,
    /// Versions of records.
    pub(crate) records: HashMap<(RecordKind, Name), u64>,
    /// Highest versions of flows.
    pub(crate) flows: HashMap<Name, u32>,
}

/// A row of a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundLock {
    pub(crate) version: u64,
    /// Its holder; unknown if the row cannot be read.
    pub(crate) holder: Option<LockHolder>,
}

impl FoundLock {
    pub(crate) fn of(lock: &Lock) -> Self {
        Self { version: lock.version, holder: lock.holder }
    }
}

/// A row of what a task waits for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FoundWait {
    /// The database has the row.
    pub(crate) is_stored: bool,
    /// Number of the attempt.
    pub(crate) attempt: u32,
    /// The claim's number and session, if a session has it.
    pub(crate) claim: Option<(u64, SessionId)>,
    /// The last attempt that a session got.
    pub(crate) handed_out: Option<u32>,
    /// The attempt waits for a session, or a session has it.
    pub(crate) is_ready: bool,
}

impl RowView for Found {
    fn submitted(&self, scope: &[u8; 32]) -> Option<(TaskId, [u8; 32])> {
        self.submit_keys.get(scope).copied()
    }

    fn task_version(&self, id: TaskId) -> u64 {
        self.tasks.get(&id).copied().unwrap_or(0)
    }

    fn lock_version(&self, name: &LockName) -> u64 {
        self.locks.get(name).map_or(self.lock_floor, |lock| lock.version)
    }

    fn lock_holder(&self, name: &LockName) -> Option<LockHolder> {
        self.locks.get(name)?.holder
    }

    fn alarm_version(&self, id: &AlarmId) -> u64 {
        self.alarms.get(id).copied().unwrap_or(0)
    }

    fn record_version(&self, kind: RecordKind, name: &Name) -> u64 {
        self.records.get(&(kind, name.clone())).copied().unwrap_or(0)
    }

    fn flow_version(&self, name: &Name) -> u32 {
        self.flows.get(name).copied().unwrap_or(0)
    }

    fn has_message(&self, message: &MessageId) -> bool {
        self.messages.contains(message)
    }
}

impl ClaimView for Found {
    fn holder(&self, task: TaskId, key: ActKey) -> Option<Holder> {
        let wait = self.waits.get(&(task, act_code(key)))?;
        let (claim, session) = wait.claim?;
        Some(Holder { attempt: wait.attempt, claim, session })
    }

    fn handed_out(&self, change: &TaskChange) -> impl Iterator<Item = (ActKey, u32)> {
        change.acts().filter_map(|key| {
            let wait = self.waits.get(&(change.task.id, act_code(key)))?;
            let last = wait.handed_out.filter(|last| wait.is_ready && *last == wait.attempt)?;
            Some((key, last))
        })
    }

    fn is_over(&self, session: SessionId, at: Millis) -> bool {
        self.sessions.get(&session).is_none_or(|until| *until <= at)
    }

    fn first(&self, key: &UniqueKey) -> Option<(&Task, bool)> {
        let (first, is_held) = self.firsts.get(self.unique.get(key)?)?;
        Some((first, *is_held))
    }
}
