//! The store: the one place where tasks are. The engine holds no task state of its own.
//!
//! A store keeps aggregates with versions, and what can be derived from them for finding work: ready attempts,
//! due times, messages. All of one [`Change`] is on disk or none of it, and every change has an outcome of its
//! own: a conflict or a taken key never fails its neighbours. Nothing is handed out that is not on disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use thiserror::Error;
use windlass_core::{
    ActKey, Alarm, AlarmId, Context, Event, Lock, LockName, Millis, Ready, Task, TaskId, Timestamp,
};

use super::{
    Adoption, Ask, AttemptId, Change, Claim, ClaimRequest, Claimed, Due, EnqueuedTasks, Envelope, Leave,
    LimitState, LogLine, Now, Outcome, Page, Quarantine, QueueState, Retention, ServerId, ServerState,
    Service, ServiceLease, SessionId, SessionRenewal, SessionState, StoredAlarm, StoredFlow, TaskQuery,
    Unannounced,
};

/// A store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What tokens are signed with. It stays the same as long as the store's data.
    fn token_key(&self) -> [u8; 32];

    /// In how long the store may have something due, where it knows: `due`, `lost` or `claim` may give more
    /// then. A store that shares its data with others cannot know, and gives nothing.
    fn next_wake(&self, now: Now) -> Option<Millis>;

    /// The wall time is ahead of the date by this much, because the date was set back: what is to begin at a date begins
    /// so much later. A store that goes by a clock of its own has nothing to do with that.
    fn is_ahead(&self, _by: Millis) {}

    /// Grows when the store lost what it had told before it was on disk, and went back to what is there. A store
    /// that tells only what is on disk has one for ever.
    fn generation(&self) -> u64 {
        0
    }

    /// Whether other servers may work on the same data: then the engine looks now and then at what they did.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns when another server may have made something ready, due or to be stopped since the last call. It may
    /// return for nothing, and need not for everything: the engine looks by itself from time to time, and sooner where
    /// this returns. A store that cannot tell waits for ever.
    async fn news(&self) {
        std::future::pending().await
    }

    /// What time it is by the store's clock, where it is shared: all servers go by that one.
    async fn time(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    /// What applications enqueued in transactions of their own, where the store is a database that they can share.
    fn enqueued(&self) -> Option<&dyn EnqueuedTasks> {
        None
    }

    /// How often something was sent to a server of the store and waited for; nothing where there is none.
    fn round_trips(&self) -> Option<u64> {
        None
    }

    /// Grows when the store was connected to anew. Another server of it may have taken its place, which need not have all
    /// that was told before.
    fn connected(&self) -> u64 {
        0
    }

    /// The tasks that this store has met and could not read.
    fn quarantine(&self) -> &Quarantine;

    /// The tasks with these ids, in their order, with their results; nothing also in place of one whose rows are
    /// damaged, which [`Store::quarantine`] names from then on.
    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError>;

    /// As [`Store::load`], but it may be only the first ones, as many as memory is to hold at once; one at least.
    async fn load_first(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.load(ids).await
    }

    /// As [`Store::load`], for those who look at neither parameters nor results: these may be missing.
    async fn load_heads(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.load(ids).await
    }

    /// How many bytes the parameters and results of tasks take in memory, where the store keeps them there.
    fn resident_bytes(&self) -> Option<u64> {
        None
    }

    /// How many tasks are best loaded by one call. Few, where the parameters of tasks do not all have room in memory.
    fn loads_at_once(&self) -> usize {
        usize::MAX
    }

    /// Commits `changes`, each for itself, but that one fails with those before it of the same task or lock
    /// ([`BuiltOn`](super::BuiltOn)). When this returns, what was committed is on disk.
    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Outcome>, StoreError>;

    /// Reads what claims for these claim requests need, so that they wait for nothing: the time of what is claimed runs from the
    /// `now` of the claim. True when this took time itself: whoever asked begins anew with the time it is by then.
    async fn prepare_claims(&self, _requests: &[ClaimRequest]) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Hands ready attempts to a session: of each claim request at most its number, smallest rank first where keys do not take
    /// turns, none that a limit keeps back, none of a paused queue; of what [`Store::prepare_claims`] got ready. Each
    /// gets a higher claim number than any time before. Nothing of a task that [`Store::quarantine`] names, up to a
    /// number that the store sets.
    async fn claim(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        now: Now,
    ) -> Result<Vec<Claimed>, StoreError>;

    /// As [`Store::claim`], but leaves to other servers what they have just made ready, for them to hand out what they
    /// know. A store may take no notice of that.
    async fn claim_leaving(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        _leave: &Leave,
        now: Now,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.claim(session, claim_requests, now).await
    }

    /// Commits, and in the same transaction claims as [`Store::claim_leaving`] does. Nothing in place of what was asked for
    /// = it is to be claimed by itself: the store does not claim with commits, or not of a queue that limits or turns
    /// rule. What was committed stands, whatever became of the claims.
    async fn commit_and_claim(
        &self,
        changes: Vec<Change>,
        asks: &[Ask],
        _leave: &Leave,
        _now: Now,
    ) -> Result<(Vec<Outcome>, Vec<Option<Vec<Claimed>>>), StoreError> {
        Ok((self.commit(changes).await?, vec![None; asks.len()]))
    }

    /// A session says that it has these attempts: those that are current and not known to be with another
    /// one are its own from now on. Tells for each whether it is the session's.
    async fn adopt(
        &self,
        session: SessionId,
        attempts: &[AttemptId],
        now: Now,
    ) -> Result<Vec<Adoption>, StoreError>;

    /// A session gives an attempt back that it did not begin; it is free again, and what [`windlass_core::Free`]
    /// says becomes of it.
    async fn release(&self, session: SessionId, attempt: AttemptId, now: Now) -> Result<(), StoreError>;

    /// Sessions were heard of, or polls of them ended; each session is named once.
    async fn renew(&self, sessions: Vec<SessionRenewal>, now: Now) -> Result<(), StoreError>;

    /// Gives every session a full new lease: this server was away, so silence says nothing. A session that got
    /// [`EXTENSIONS_MAX`](super::EXTENSIONS_MAX) since it was last heard of gets none.
    async fn forgive(&self, now: Now) -> Result<(), StoreError>;

    /// What a session has.
    async fn held(&self, session: SessionId) -> Result<Vec<Claimed>, StoreError>;

    /// What these sessions have and are to stop: [`windlass_core::Free::GiveUp`] would become of it if it were free.
    async fn to_stop(&self, sessions: &[SessionId]) -> Result<Vec<Claimed>, StoreError>;

    /// The versions of these tasks, in their order; nothing for one that is not there. For stores that can tell more
    /// cheaply than by loading them.
    async fn versions(&self, ids: &[TaskId]) -> Result<Vec<Option<u64>>, StoreError> {
        let loaded = self.load(ids).await?;
        Ok(loaded.into_iter().map(|loaded| Some(loaded?.task.state.events)).collect())
    }

    /// At most `limit` attempts whose session's lease has ended. They are told again until they are settled.
    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError>;

    /// At most `limit` things that are due. They are told again until they are settled.
    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError>;

    /// At most `limit` messages between aggregates that were not consumed yet.
    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError>;

    /// At most `limit` of what is in the outbox, of the oldest tasks first, by their ids; of one task in the order in which
    /// it happened.
    async fn unannounced(&self, limit: usize) -> Result<Vec<Unannounced>, StoreError>;

    /// The flow with this name: that version, or the newest.
    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError>;

    /// All flows, each in its newest version, by name.
    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError>;

    /// Tasks, newest first, as they are on disk. Members and results may be missing: [`Store::load`] has them all.
    /// Those whose rows are damaged are left out.
    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError>;

    /// Events of a task with numbers above `after`, in order.
    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError>;

    /// Log lines of a task with numbers above `after`, in the order they came, each with its number. The numbers of a
    /// task's lines only grow, with gaps: none comes again once its line was deleted, and none becomes visible after
    /// a greater one.
    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError>;

    /// The alarms with these ids and their versions, in this order.
    async fn alarms_by_id(&self, ids: &[AlarmId]) -> Result<Vec<Option<StoredAlarm>>, StoreError>;

    /// The alarm with this id and its version.
    async fn alarm(&self, id: &AlarmId) -> Result<Option<StoredAlarm>, StoreError> {
        Ok(self.alarms_by_id(std::slice::from_ref(id)).await?.pop().flatten())
    }

    /// The locks with these names, in this order, for changes to build on. One that is not stored is free and has the
    /// version of the store's floor.
    async fn locks_by_name(&self, names: &[LockName]) -> Result<Vec<Lock>, StoreError>;

    /// The lock with this name, if anybody has it or waits for it.
    async fn lock(&self, name: &LockName) -> Result<Option<Lock>, StoreError> {
        let lock = self.locks_by_name(std::slice::from_ref(name)).await?.pop();
        Ok(lock.filter(|lock| !lock.is_free()))
    }

    /// At most `limit` locks that are stored and free, for the janitor to delete.
    async fn free_locks(&self, limit: usize) -> Result<Vec<Lock>, StoreError>;

    /// The floor of the store's locks: no deleted lock had a higher version, and no free one that is stored has.
    async fn lock_floor(&self) -> Result<u64, StoreError>;

    /// At most `limit` locks that somebody has or waits for, with names above `after`, by name.
    async fn locks(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<Lock>, StoreError>;

    /// At most `limit` alarms, those raised last first; resolved ones only with `all`.
    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError>;

    /// All queues that hold or held something, or are paused, by name.
    async fn queues(&self) -> Result<Vec<QueueState>, StoreError>;

    /// All sessions whose lease has not ended.
    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError>;

    /// All limits with what counts under them, by name.
    async fn limits(&self, now: Now) -> Result<Vec<LimitState>, StoreError>;

    /// The limits that keep a ready attempt like this one from being handed out, with what counts under its key.
    async fn keeping_back(&self, ready: &Ready, now: Now) -> Result<Vec<LimitState>, StoreError>;

    /// How many attempts stand before this act's in the queue of its module; nothing when it is not in it.
    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError>;

    /// A server is heard of. Others that were silent for [`SERVER_FORGOTTEN_AFTER`](super::SERVER_FORGOTTEN_AFTER) may be
    /// forgotten.
    async fn register(&self, server: ServerState) -> Result<(), StoreError>;

    /// The servers on this store, those that started first before others.
    async fn servers(&self) -> Result<Vec<ServerState>, StoreError>;

    /// A server ends: it is forgotten at once, and what it does by itself goes to others.
    async fn leave(&self, server: ServerId) -> Result<(), StoreError>;

    /// Makes a server the one that does this for so long from now, where it is already or no other one is; tells which
    /// one does it, and until when.
    async fn lease(
        &self,
        service: Service,
        server: ServerId,
        length: Millis,
        now: Now,
    ) -> Result<ServiceLease, StoreError>;

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
    /// Acts whose current attempt a worker may still have and is given time to name, after a start.
    pub awaited: BTreeSet<ActKey>,
    /// Grows when the store lost what it had told before it was on disk, and went back to what is there. A
    /// version may come again then; a change that was decided before is a conflict.
    pub generation: u64,
}

impl Loaded {
    /// A task of which no worker has or had anything.
    #[must_use]
    pub fn untouched(task: Arc<Task>) -> Self {
        let (handed_out, awaited) = (BTreeSet::new(), BTreeSet::new());
        Self { task, claims: Vec::new(), handed_out, awaited, generation: 0 }
    }

    /// Acts whose current attempt a session has.
    #[must_use]
    pub fn held(&self) -> BTreeSet<ActKey> {
        self.claims.iter().map(|claim| claim.key).collect()
    }

    /// The claims of who does what they are of. What a queue publisher has waits for somebody who does.
    pub fn begun(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| !claim.session.is_publisher())
    }

    /// The claims of queue publishers: nobody has begun what they are of.
    pub fn offered(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| claim.session.is_publisher())
    }

    /// What the rules may know beside the task.
    #[must_use]
    pub fn context(&self, now: Timestamp) -> Context {
        let mut held: BTreeMap<ActKey, Option<Timestamp>> =
            self.claims.iter().map(|claim| (claim.key, Some(claim.at))).collect();
        // What a worker may be about to name is in flight as much as what it has.
        for key in &self.awaited {
            held.entry(*key).or_insert(None);
        }
        let offered = self.offered().map(|claim| claim.key).collect();
        let afar = self.claims.iter().filter(|claim| claim.session == SessionId::AFAR);
        let afar = afar.map(|claim| claim.key).collect();
        Context { now, held, offered, afar, handed_out: self.handed_out.clone() }
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
    /// A newer program has changed it meanwhile so that this one must not work on it any more.
    #[error("the store is another one than this program knows: {0}")]
    Outgrown(String),
}
