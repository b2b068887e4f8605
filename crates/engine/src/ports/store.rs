//! The store: the one place where tasks are. The engine holds no task state of its own.
//!
//! A store keeps aggregates with versions, and what can be derived from them for finding work: ready attempts,
//! due times, messages. All of one [`Change`] is on disk or none of it, and every change has an outcome of its
//! own: a conflict or a taken key never fails its neighbours. Nothing is handed out that is not on disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use async_trait::async_trait;
use thiserror::Error;
use windlass_core::{
    ActKey, ActState, Actor, Alarm, AlarmId, Context, Effect, Event, EventKind, Flow, Json, Message, Millis, Name,
    Task, TaskId, TaskStatus, Timestamp, Wakeup, task_status,
};

use crate::ports::Now;

/// A store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What tokens are signed with. It stays the same as long as the store's data.
    fn token_key(&self) -> [u8; 32];

    /// In how long the store may have something due, where it knows: `due`, `lost` or `claim` may give more
    /// then. A store that shares its data with others cannot know, and gives nothing.
    fn next_wake(&self, now: Now) -> Option<Millis>;

    /// The tasks with these ids, in their order, with their results.
    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError>;

    /// Commits `changes`, each for itself. When this returns, what was committed is on disk.
    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Outcome>, StoreError>;

    /// Hands ready attempts to a session: of each wish at most its number, smallest rank first, none of a
    /// paused queue. Each gets a higher claim number than any time before.
    async fn claim(&self, session: SessionId, wishes: &[Wish], now: Now) -> Result<Vec<Claimed>, StoreError>;

    /// A session says that it has these attempts: those that are current and not known to be with another
    /// one are its own from now on. Tells for each whether it is the session's.
    async fn adopt(
        &self,
        session: SessionId,
        attempts: &[AttemptId],
        now: Now,
    ) -> Result<Vec<Adoption>, StoreError>;

    /// A session gives an attempt back that it did not begin; it is ready again.
    async fn release(&self, session: SessionId, attempt: AttemptId, now: Now) -> Result<(), StoreError>;

    /// A session was heard of.
    async fn renew(&self, session: SessionRenewal, now: Now) -> Result<(), StoreError>;

    /// Gives every session a full new lease: this server was away, so silence says nothing.
    async fn forgive(&self, now: Now) -> Result<(), StoreError>;

    /// At most `limit` attempts whose session's lease has ended. They are told again until they are settled.
    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError>;

    /// At most `limit` things that are due. They are told again until they are settled.
    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError>;

    /// At most `limit` messages between aggregates that were not consumed yet.
    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError>;

    /// The flow with this name: that version, or the newest.
    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError>;

    /// The newest versions of all flows, by name.
    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError>;

    /// Tasks, newest first, without their results.
    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError>;

    /// Events of a task with numbers above `after`, in order.
    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError>;

    /// Log lines of a task, in the order they came, after the first `skip`.
    async fn logs(&self, task: TaskId, skip: u64, limit: usize) -> Result<Vec<LogLine>, StoreError>;

    /// The alarm with this id and its version.
    async fn alarm(&self, id: &AlarmId) -> Result<Option<StoredAlarm>, StoreError>;

    /// At most `limit` alarms, those raised last first; resolved ones only with `all`.
    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError>;

    /// All queues that hold or held something, or are paused, by name.
    async fn queues(&self) -> Result<Vec<QueueState>, StoreError>;

    /// All sessions whose lease has not ended.
    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError>;

    /// How many attempts stand before the task's first ready one in its queue; nothing when none is ready.
    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError>;

    /// Deletes at most `limit` of what is kept too long. Tells how many rows went.
    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError>;
}

/// A task as the store knows it. Its version is its number of events.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The task.
    pub task: Arc<Task>,
    /// Which of its attempts sessions have.
    pub claims: Vec<Claim>,
    /// Acts whose current attempt a worker may have had, now or before.
    pub handed_out: BTreeSet<ActKey>,
}

impl Loaded {
    /// Acts whose current attempt a session has.
    #[must_use]
    pub fn held(&self) -> BTreeSet<ActKey> {
        self.claims.iter().map(|claim| claim.key).collect()
    }

    /// What the rules may know beside the task.
    #[must_use]
    pub fn context(&self, now: Timestamp) -> Context {
        Context { now, held: self.held(), handed_out: self.handed_out.clone() }
    }
}

/// An attempt that a session has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The act.
    pub key: ActKey,
    /// Number of the attempt.
    pub attempt: u32,
    /// Grows each time an attempt is handed out.
    pub number: u64,
    /// Who has it.
    pub session: SessionId,
    /// Since when.
    pub at: Timestamp,
}

/// A worker's session: the UUID it made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_u128(self.0).hyphenated().fmt(f)
    }
}

/// One attempt, as a token names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The task.
    pub task: TaskId,
    /// The act.
    pub key: ActKey,
    /// Number of the attempt.
    pub attempt: u32,
    /// Number of the claim.
    pub claim: u64,
}

/// What a session can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The module.
    pub module: Name,
    /// Only these commands; nothing = all.
    pub commands: Option<Vec<Name>>,
    /// How many at most.
    pub free: u32,
}

/// An attempt handed out, or lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Which.
    pub id: AttemptId,
    /// Who has it.
    pub session: SessionId,
    /// Since when.
    pub at: Timestamp,
    /// Its module.
    pub module: Name,
}

/// Whose an attempt is that a session says it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    /// The session's.
    Held,
    /// It is not current any more, or another session has it.
    Gone,
}

/// A session was heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRenewal {
    /// Which.
    pub session: SessionId,
    /// How long it may be silent from now.
    pub lease: Millis,
    /// Full length of its lease, given anew by [`Store::forgive`].
    pub lease_full: Millis,
    /// What it said of itself, where it said something new.
    pub worker: Option<WorkerState>,
}

/// What a worker says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerState {
    /// Its name.
    pub name: Box<str>,
    /// Its machine.
    pub host: Box<str>,
    /// Version of its program or library.
    pub version: Box<str>,
    /// Whether it keeps a poll open.
    pub attached: bool,
    /// The modules it serves.
    pub modules: Vec<Name>,
}

/// A session as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionState {
    /// Which.
    pub session: SessionId,
    /// What it says of itself.
    pub worker: WorkerState,
    /// How many attempts it has.
    pub running: u32,
    /// When it was last heard of.
    pub last_seen_at: Timestamp,
}

/// Something that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// A start, retry or deadline of a task.
    Wake {
        /// The task.
        task: TaskId,
        /// What for.
        wakeup: Wakeup,
    },
    /// An attempt has run longer than its timeout, and its worker was given time to end it.
    TimeOut(Claimed),
}

/// How much longer than its timeout an attempt of an attached worker may run before the engine gives it up:
/// the worker ends it by itself (SIGTERM, 5 s, SIGKILL), and two attempts of a step should not overlap.
pub const TIMEOUT_GRACE: Millis = Millis::from_secs(10);

/// How long attempts that were ready before a start wait for workers to come back and name what they hold.
pub const ADOPTION_GRACE: Millis = Millis(300);

/// One unit of change: all of it is on disk, or none.
#[derive(Debug, Clone)]
pub enum Change {
    /// A task is new or has gone on.
    Task(Box<TaskChange>),
    /// An alarm was raised, acknowledged or resolved.
    Alarm(AlarmChange),
    /// A flow has a new version.
    Flow(StoredFlow),
    /// A queue is paused or not.
    Queue(QueueChange),
    /// Log lines of attempts.
    Logs(Vec<LogLine>),
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
    /// The task afterwards.
    pub task: Arc<Task>,
    /// What happened; the first has the number `before + 1`.
    pub events: Vec<Event>,
    /// What it waits for now: only [`Effect::Wait`] and [`Effect::Forget`], applied in order.
    pub waits: Vec<Effect>,
    /// Acts that were settled with a result in this change.
    pub results: Vec<(ActKey, Json)>,
    /// Messages it sends.
    pub messages: Vec<Envelope>,
    /// For a new task: the key under which it was submitted.
    pub submit_key: Option<SubmitKey>,
}

impl TaskChange {
    /// Whether this attempt ends by the change without having been handed out, as far as its author knew. When
    /// a session has got it meanwhile, the change is a conflict: the rules must know what workers have.
    #[must_use]
    pub fn overlooks(&self, key: ActKey, attempt: u32) -> bool {
        let act = self.task.act(key);
        let goes_on = act.is_some_and(|act| act.state == ActState::Ready && act.attempt == attempt);
        let started = EventKind::ActStarted { key, attempt };
        !goes_on && self.events.iter().all(|event| event.kind != started)
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

/// Identifies a message: its sender and the number of the event that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The sender.
    pub task: TaskId,
    /// Its number among the sender's messages.
    pub n: u64,
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
    /// A task was submitted under this key before.
    KeyTaken {
        /// That task.
        task: TaskId,
        /// What was submitted then.
        fingerprint: [u8; 32],
    },
}

/// A flow in one version.
#[derive(Debug, Clone)]
pub struct StoredFlow {
    /// The flow, with its version in it.
    pub flow: Arc<Flow>,
    /// When it was applied.
    pub created_at: Timestamp,
}

/// An alarm and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAlarm {
    /// The alarm.
    pub alarm: Alarm,
    /// Grows with every change.
    pub version: u64,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskQuery {
    /// Only with one of these statuses; empty = any.
    pub statuses: Vec<TaskStatus>,
    /// Only of this flow.
    pub flow: Option<Name>,
    /// Only with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only accepted at or after this time.
    pub since: Option<Timestamp>,
    /// Only accepted before this time.
    pub until: Option<Timestamp>,
    /// Only older than this task.
    pub before: Option<TaskId>,
    /// At most this many.
    pub limit: usize,
}

impl TaskQuery {
    /// Whether a task meets the filters; `held` are the acts workers have.
    #[must_use]
    pub fn matches(&self, task: &Task, held: &BTreeSet<ActKey>) -> bool {
        let created_at = task.input.created_at;
        (self.statuses.is_empty() || self.statuses.contains(&task_status(task, held)))
            && self.flow.as_ref().is_none_or(|flow| *flow == task.flow.name)
            && self.labels.iter().all(|(name, value)| task.input.labels.get(name) == Some(value))
            && self.since.is_none_or(|since| created_at >= since)
            && self.until.is_none_or(|until| created_at < until)
    }
}

/// Most tasks looked at for one page: a filter that few tasks meet gives short pages with a cursor rather than
/// a request that reads everything.
pub const SCAN_MAX: usize = 10_000;

/// A page of a list.
#[derive(Debug, Clone)]
pub struct Page<T, C> {
    /// What was found; it may be less than asked for while there is more.
    pub items: Vec<T>,
    /// Where the next page begins; nothing at the end.
    pub next: Option<C>,
}

/// A line an attempt wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The task.
    pub task: TaskId,
    /// The act.
    pub key: ActKey,
    /// Number of the attempt.
    pub attempt: u32,
    /// When the server got it.
    pub at: Timestamp,
    /// The line.
    pub line: Box<str>,
}

/// A queue as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// The module.
    pub name: Name,
    /// Attempts that wait.
    pub ready: u64,
    /// Attempts that sessions have.
    pub running: u64,
    /// Since when the first in line waits.
    pub oldest_ready_at: Option<Timestamp>,
    /// Since when and by whom it is paused.
    pub paused: Option<QueuePause>,
}

/// How long things are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Ended tasks with all that belongs to them.
    pub tasks: Millis,
    /// Log lines.
    pub logs: Millis,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: u64 = 24 * 3600;
        Self { tasks: Millis::from_secs(30 * DAY), logs: Millis::from_secs(7 * DAY) }
    }
}

/// Why the store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// There is no space left. Nothing was changed.
    #[error("the store is full: {0}")]
    Full(String),
    /// It cannot be reached or has failed. What was being committed is not.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// What it holds cannot be understood.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}
