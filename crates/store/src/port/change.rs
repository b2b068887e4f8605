//! Changes: what is committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{
    ActKey, Actor, Alarm, Effect, Event, EventKind, Json, Lock, LockHolder, LockName, LockTransition,
    LockWaiter, Message, Name, ResolutionKind, Task, TaskId, Timestamp, Waiting, Wakeup,
    planted::{Bug, is_planted},
};

use super::{Announced, JournalEntry, LimitChange, LogLine, LostClaim, RecordChange, StoredFlow};
use crate::rules::Holder;

/// One unit of change: all of it is on disk, or none.
#[derive(Debug, Clone)]
pub enum Change {
    /// A task is new or has gone on.
    Task(Box<TaskChange>),
    /// An alarm was raised, acknowledged or resolved.
    Alarm(AlarmChange),
    /// A lock has another holder, or others wait for it.
    Lock(LockChange),
    /// A message found nothing to do: it is consumed.
    Consume(MessageId),
    /// A flow has a new version.
    Flow(StoredFlow),
    /// A queue is paused or not.
    Queue(QueueChange),
    /// A limit is set or removed.
    Limit(LimitChange),
    /// An idempotency key names a task that was there already.
    Key(KeyChange),
    /// A record is created, updated or deleted.
    Record(RecordChange),
    /// Entries of journals.
    Journal(Vec<JournalEntry>),
    /// An entry of the audit log about the change before it in the same commit. It is written with that change, or not at all:
    /// if that one fails, so does this one.
    Audit(JournalEntry),
    /// Log lines of attempts that go on.
    Logs(Vec<LogLine>),
    /// These were announced and leave the outbox. An event that has left it already does not conflict.
    Announced(Vec<Announced>),
    /// Nothing changes, but something is written nevertheless: a check whether the store can write.
    Probe,
}

impl Change {
    /// The idempotency key that it takes, if it takes one.
    #[must_use]
    pub fn submit_key(&self) -> Option<&SubmitKey> {
        match self {
            Self::Task(change) => change.submit_key.as_ref(),
            Self::Key(change) => Some(&change.key),
            _ => None,
        }
    }

    /// The message that it consumes, if it consumes one.
    #[must_use]
    pub fn consumes(&self) -> Option<&MessageId> {
        match self {
            Self::Task(change) => change.consumes.as_ref(),
            Self::Alarm(change) => change.consumes.as_ref(),
            Self::Lock(change) => change.consumes.as_ref(),
            Self::Consume(message) => Some(message),
            _ => None,
        }
    }
}

impl From<TaskChange> for Change {
    fn from(change: TaskChange) -> Self {
        Self::Task(Box::new(change))
    }
}

/// A task is new or has gone on.
#[derive(Debug, Clone)]
pub struct TaskChange {
    /// The number of events the task must have now; 0 for a new one.
    pub before: u64,
    /// The state of the store in which it was decided, as in [`Loaded::generation`](super::Loaded::generation).
    pub generation: u64,
    /// The task afterwards.
    pub task: Arc<Task>,
    /// What happened; the first has the number `before + 1`.
    pub events: Vec<Event>,
    /// What it waits for now: only [`Effect::Wait`] and [`Effect::Forget`], applied in order.
    pub waits: Vec<Effect>,
    /// Acts that were settled with a result in this change.
    pub results: Vec<(ActKey, Json)>,
    /// Log lines that came with the reports in it.
    pub logs: Vec<LogLine>,
    /// What the journals of devices say about it.
    pub journal: Vec<JournalEntry>,
    /// Messages it sends.
    pub messages: Vec<Envelope>,
    /// For a new task: the key under which it was submitted.
    pub submit_key: Option<SubmitKey>,
    /// The message that is consumed by this.
    pub consumes: Option<MessageId>,
    /// Claims that it takes from their sessions. If a session that was over was heard of since, or does not have the claim any
    /// more, nothing is changed: [`Outcome::Heard`].
    pub lost: Vec<LostClaim>,
    /// Acts of which workers report, and the numbers of the claims under which they do.
    pub reported: Vec<(ActKey, u64)>,
    /// Acts that queue publishers offer under these claims, as its author knew.
    pub offered: Vec<(ActKey, u64)>,
    /// Acts whose attempts a worker may have had, as its author knew.
    pub handed_out: Vec<ActKey>,
    /// Its events are to be announced: they stay in the outbox until [`Change::Announced`].
    pub announces: bool,
    /// The exclusive queue that the task has, and the fencing token under which it has it. If the lock is held under
    /// another token or by another task by now, the change is a conflict.
    pub fence: Option<(LockName, u64)>,
}

impl TaskChange {
    /// Whether the change is made without knowing that a session has this attempt under this claim: it ends the attempt
    /// without having it been handed out, or by the report of a worker that had it before. Then the change is a
    /// conflict: the rules must know what workers have. What a queue publisher offers nobody has begun, so such an attempt may end
    /// where its author knew that.
    #[must_use]
    pub(crate) fn overlooks(&self, key: ActKey, holder: Holder) -> bool {
        let Holder { attempt, claim, session } = holder;
        if self.reported.iter().any(|(reported, under)| *reported == key && *under < claim) {
            return true;
        }
        let started = EventKind::ActStarted { key, attempt };
        let is_known = session.is_publisher() && self.offered.contains(&(key, claim));
        !self.task.has_ready(key, attempt)
            && !is_known
            && self.events.iter().all(|event| event.kind != started)
    }

    /// Whether the change ends this attempt without knowing that a session had it, and gave it back. The rules must know that
    /// too: a worker may have begun it.
    #[must_use]
    pub(crate) fn forgets(&self, key: ActKey, attempt: u32) -> bool {
        let started = EventKind::ActStarted { key, attempt };
        !self.handed_out.contains(&key)
            && !self.task.has_current(key, attempt)
            && !self.offered.iter().any(|(offered, _)| *offered == key)
            && self.events.iter().all(|event| event.kind != started)
    }

    /// Whether a claim of this attempt survives the change.
    #[must_use]
    pub fn keeps_claim(&self, wakeup: Wakeup, attempt: u32) -> bool {
        matches!(wakeup, Wakeup::Act(key) if self.task.has_ready(key, attempt))
    }

    /// What becomes of each wait that the change names: what is waited for then, or nothing any more.
    #[must_use]
    pub fn waits_after(&self) -> BTreeMap<Wakeup, Option<&Waiting>> {
        let after = self.waits.iter().filter_map(|effect| match effect {
            Effect::Wait(waiting) => Some((waiting.key, Some(waiting))),
            Effect::Forget(wakeup) => Some((*wakeup, None)),
            Effect::Send(_) => None,
        });
        after.collect()
    }
    /// Whether the task has lost its exclusive queue meanwhile. `holder_of` is the holder of a lock now, if it is held.
    pub fn is_fenced_out(&self, holder_of: impl FnOnce(&LockName) -> Option<LockHolder>) -> bool {
        let fence = self.fence.as_ref().filter(|_| !is_planted(Bug::QueueFenceUnchecked));
        fence.is_some_and(|(name, fence)| {
            !holder_of(name).is_some_and(|holder| holder.leaves_it_to(self.task.id, *fence))
        })
    }

    /// The acts to which something happened, some of them several times. What workers have or had of all others is as
    /// it was, however many there are.
    pub fn acts(&self) -> impl Iterator<Item = ActKey> {
        self.events.iter().filter_map(|event| event.kind.act())
    }

    /// The members that are not as they were before it, by step and number: what is stored of a task with members
    /// beside its state.
    #[must_use]
    pub fn changed_members(&self) -> BTreeSet<(usize, u32)> {
        let mut changed = BTreeSet::new();
        for event in &self.events {
            let Some(key) = event.kind.act() else { continue };
            if key.is_member() {
                changed.insert((key.step, key.member));
            } else if let EventKind::ActResolved { resolution: ResolutionKind::Retry, .. } = event.kind
                && let Some(members) = &self.task.state.steps[key.step].members
            {
                // Those that failed are to begin again; those that have begun have events of their own.
                let again = &members.side(key.direction).again;
                changed.extend(again.iter().map(|number| (key.step, *number)));
            }
        }
        changed
    }
}

/// An idempotency key of a submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmitKey {
    /// Who, which flow and which key: a hash of them.
    pub scope: [u8; 32],
    /// A hash of what was submitted.
    pub fingerprint: [u8; 32],
}

/// An idempotency key names a task that was there already, to which the submitted one was deduplicated. A submit
/// under the key gets that task again, even once the task would no longer be found as a duplicate. The key is kept as those are whose
/// tasks were deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: SubmitKey,
    /// The task it names.
    pub task: TaskId,
    /// When it was submitted.
    pub at: Timestamp,
}

/// An alarm was raised, acknowledged or resolved.
#[derive(Debug, Clone)]
pub struct AlarmChange {
    /// The version it must have now; 0 for a new one.
    pub before: u64,
    /// The alarm afterwards; `None` = as it was (the message found nothing to do).
    pub alarm: Option<Alarm>,
    /// The message that is consumed by this.
    pub consumes: Option<MessageId>,
}

/// A lock has another holder, or others wait for it.
#[derive(Debug, Clone)]
pub struct LockChange {
    /// The version it must have now. A lock that is not stored has the version of the store's floor.
    pub before: u64,
    /// The state of the store in which it was decided, as [`Store::generation`](super::Store::generation) returned before the
    /// lock was read.
    pub generation: u64,
    /// The lock afterwards.
    pub lock: Lock,
    /// Whether the lock is stored afterwards. Otherwise it is deleted, and the store's floor rises to its version.
    pub kept: bool,
    /// When.
    pub at: Timestamp,
    /// Who waits for it now, at which place.
    pub joined: Option<(u64, LockWaiter)>,
    /// The place that is free now.
    pub left: Option<u64>,
    /// Messages it sends.
    pub messages: Vec<Envelope>,
    /// The message that is consumed by this.
    pub consumes: Option<MessageId>,
}

impl LockChange {
    /// What a transition of a lock that had the version `before` asks for, in the first generation.
    #[must_use]
    pub fn new(before: u64, transition: LockTransition, at: Timestamp, consumes: Option<MessageId>) -> Self {
        let LockTransition { lock, joined, left, messages } = transition;
        let sender = Sender::Lock(lock.name.clone());
        let envelope = |(n, message)| Envelope { id: MessageId { sender: sender.clone(), n }, message };
        let messages = messages.into_iter().map(envelope).collect();
        Self { before, generation: 0, lock, kept: true, at, joined, left, messages, consumes }
    }

    /// Deletes a free lock, in the first generation.
    #[must_use]
    pub fn delete(lock: Lock, at: Timestamp) -> Self {
        let (joined, left, messages, consumes) = (None, None, Vec::new(), None);
        let before = lock.version;
        Self { before, generation: 0, lock, kept: false, at, joined, left, messages, consumes }
    }

    /// The same, decided in this generation of the store.
    #[must_use]
    pub fn decided_in(self, generation: u64) -> Self {
        Self { generation, ..self }
    }
}

/// A queue is paused or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueChange {
    /// Which.
    pub name: Name,
    /// Since when and by whom it is paused; nothing = it is not.
    pub paused: Option<QueuePause>,
}

/// Since when and by whom a queue is paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePause {
    /// Since when.
    pub at: Timestamp,
    /// By whom.
    pub by: Option<Actor>,
}

/// Identifies a message: its sender, and a number that no other message of the sender has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The sender.
    pub sender: Sender,
    /// Grows from message to message of a sender.
    pub n: u64,
}

/// Who sends a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sender {
    /// A task.
    Task(TaskId),
    /// A lock.
    Lock(LockName),
}

/// Messages that one change of a task may send, as a number of bits: more than all its acts have locks.
const CHANGE_MESSAGES_BITS: u32 = 24;

impl MessageId {
    /// The id of the message of a task with this place in a change, whose first event has the number `first`.
    #[must_use]
    pub fn of_task(task: TaskId, first: u64, place: usize) -> Self {
        Self { sender: Sender::Task(task), n: (first << CHANGE_MESSAGES_BITS) + place as u64 }
    }
}

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Which.
    pub id: MessageId,
    /// What it says.
    pub message: Message,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is on disk.
    Committed,
    /// The aggregate has another version, or the message was consumed: load and try again.
    Conflict,
    /// A session from which a [`LostClaim`] was to be taken was heard of, or does not have it any more. Nothing was changed.
    Heard,
    /// The new task is deduplicated to a task that is the same.
    Repeats {
        /// That task.
        task: TaskId,
    },
    /// A task was submitted under this key before.
    KeyTaken {
        /// That task.
        task: TaskId,
        /// What was submitted then.
        fingerprint: [u8; 32],
    },
}
