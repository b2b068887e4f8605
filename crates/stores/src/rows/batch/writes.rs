//! The rows that a decided batch writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{
    Alarm, AlarmId, Json, Lock, LockName, LockWaiter, Message, Name, Task, TaskId, Timestamp, Waiting,
};
use windlass_store::{
    Announced, JournalEntry, Limit, LogLine, MessageId, QueuePause, Record, RecordKind, StoredFlow,
    SubmitKey, UniqueKey,
};

/// What a transaction writes. Several changes of one aggregate come to one row.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// Tasks, as the batch leaves them.
    pub(crate) tasks: BTreeMap<TaskId, TaskWrite>,
    /// Events: the task, the number of the last one, and the events encoded.
    pub(crate) history: Vec<(TaskId, u64, Vec<u8>)>,
    /// Those of them that are to be announced: the task, and the numbers of the event before them and of the last one.
    pub(crate) unannounced: Vec<(TaskId, u64, u64)>,
    /// What was announced.
    pub(crate) announced: Vec<Announced>,
    /// Idempotency keys of submits.
    pub(crate) submit_keys: Vec<SubmitKeyWrite>,
    /// The newest tasks of unique keys, and whether the key had one before.
    pub(crate) unique: BTreeMap<UniqueKey, (TaskId, bool)>,
    /// Messages that are sent, encoded later.
    pub(crate) sent: BTreeMap<MessageId, Message>,
    /// Messages that are consumed.
    pub(crate) consumed: BTreeSet<MessageId>,
    /// Locks, and whether they were kept before; nothing = kept no more.
    pub(crate) locks: BTreeMap<LockName, (Option<Lock>, bool)>,
    /// The new floor of locks, if it rises.
    pub(crate) lock_floor: Option<u64>,
    /// Who waits for locks at which place; nothing = that place is free.
    pub(crate) lock_waiters: BTreeMap<(LockName, u64), Option<LockWaiter>>,
    /// Alarms, their versions, and whether they were there before.
    pub(crate) alarms: BTreeMap<AlarmId, (Alarm, u64, bool)>,
    /// New versions of flows.
    pub(crate) flows: Vec<StoredFlow>,
    /// Flows that new tasks brought along, each in its one version: written where it is not there any more.
    pub(crate) brought: BTreeMap<Name, StoredFlow>,
    /// Queues that are paused, or are not any more.
    pub(crate) queues: BTreeMap<Name, Option<QueuePause>>,
    /// Limits; nothing = removed.
    pub(crate) limits: BTreeMap<Name, Option<Limit>>,
    /// Records and whether they were there before; nothing = deleted.
    pub(crate) records: BTreeMap<(RecordKind, Name), (Option<Record>, bool)>,
    /// Entries of journals, in their order.
    pub(crate) journal: Vec<JournalEntry>,
    /// Log lines, in their order.
    pub(crate) logs: Vec<LogLine>,
    /// Somebody asks whether the database writes.
    pub(crate) probe: bool,
}

/// An idempotency key of a submit.
#[derive(Debug)]
pub(crate) struct SubmitKeyWrite {
    /// The key.
    pub(crate) key: SubmitKey,
    /// The task it names.
    pub(crate) task: TaskId,
    /// When it was submitted.
    pub(crate) created_at: Timestamp,
    /// It was submitted with another task, for which this one stands. It is kept as those are whose tasks were deleted.
    pub(crate) is_other: bool,
}

/// A task as the batch leaves it.
#[derive(Debug)]
pub(crate) struct TaskWrite {
    /// The task.
    pub(crate) task: Arc<Task>,
    /// It is new.
    pub(crate) is_new: bool,
    /// The idempotency key it was submitted under.
    pub(crate) scope: Option<[u8; 32]>,
    /// Members that changed, by step and number.
    pub(crate) members: BTreeSet<(usize, u32)>,
    /// What acts returned.
    pub(crate) results: BTreeMap<i64, Json>,
    /// What became of rows of waits, by [`wakeup_code`](crate::rows::wakeup_code). Those of a task that has ended go together.
    pub(crate) waits: BTreeMap<i64, WaitWrite>,
}

/// What becomes of a row of waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitWrite {
    /// It says this. A row that was there keeps the attempt handed out last.
    Put {
        /// What is waited for.
        waiting: Waiting,
        /// The row before.
        before: WaitBefore,
    },
    /// It goes.
    Delete,
    /// Nothing is waited for, but the row stays: it knows that the parked attempt was handed out before.
    Rest {
        /// That attempt.
        attempt: u32,
    },
}

/// A row of waits before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitBefore {
    /// There was none.
    Absent,
    /// It loses its claim, if it has one.
    Unclaimed,
    /// The session that has the attempt still has it.
    Claimed,
}

impl Writes {
    /// Whether nothing is to be written.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            tasks,
            history,
            unannounced,
            announced,
            submit_keys,
            unique,
            sent,
            consumed,
            locks,
            lock_floor,
            lock_waiters,
            alarms,
            flows,
            brought,
            queues,
            limits,
            records,
            journal,
            logs,
            probe,
        } = self;
        tasks.is_empty()
            && history.is_empty()
            && unannounced.is_empty()
            && announced.is_empty()
            && submit_keys.is_empty()
            && unique.is_empty()
            && sent.is_empty()
            && consumed.is_empty()
            && locks.is_empty()
            && lock_floor.is_none()
            && lock_waiters.is_empty()
            && alarms.is_empty()
            && flows.is_empty()
            && brought.is_empty()
            && queues.is_empty()
            && limits.is_empty()
            && records.is_empty()
            && journal.is_empty()
            && logs.is_empty()
            && !probe
    }

    /// The modules whose queues get attempts that may be handed out.
    pub(crate) fn modules(&self) -> BTreeSet<Name> {
        let waits = self.tasks.values().flat_map(|write| write.waits.values());
        let modules = waits.filter_map(|wait| match wait {
            WaitWrite::Put { waiting, .. } => waiting.ready.as_ref().map(|ready| ready.module.clone()),
            WaitWrite::Delete | WaitWrite::Rest { .. } => None,
        });
        modules.collect()
    }
}
