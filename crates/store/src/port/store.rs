//! The store: the one place where tasks are. The engine holds no task state of its own.
//!
//! A store keeps aggregates with versions, and derives from them what finds work: ready attempts, due times, messages. A
//! [`Change`] is on disk as a whole or not at all, and each has an outcome of its own: a conflict or a taken key never
//! fails its neighbours. A store hands out nothing that is not on disk.
//!
//! The port has four parts: [`Store`] loads and commits, [`Claims`] hands attempts to sessions,
//! [`Queries`] answers questions, and [`Members`] knows the servers on the store. A store
//! that several servers share also has a [`Cluster`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use thiserror::Error;
use windlass_core::{ActKey, Context, Millis, Task, TaskId, Timestamp};

use super::{
    Ask, Change, Claim, Claimed, Claims, Cluster, Due, EnqueuedTasks, Envelope, Leadership, Leave, Members,
    Now, Outcome, Quarantine, Queries, Retention, SessionId, Unannounced,
};

/// Loads and commits.
#[async_trait]
pub trait Store: Claims + Queries + Members {
    /// The key that tokens are signed with. It stays the same as long as the store's data.
    fn token_key(&self) -> [u8; 32];

    /// The tasks that this store has met and could not read.
    fn quarantine(&self) -> &Quarantine;

    /// Grows when values that were read before may be void: the store lost writes that were not on disk and went back. A
    /// store that returns only what is on disk has one generation for ever.
    fn generation(&self) -> u64 {
        0
    }

    /// In how long the store may have something due, where it knows: `due`, `lost` or `claim` may return more then. A
    /// store that shares its data with others cannot know, and returns nothing.
    fn next_wake(&self, _now: Now) -> Option<Millis> {
        None
    }

    /// The wall time is ahead of the date by this much, because the date was set back: what is to begin at a date begins
    /// so much later. A store that goes by a clock of its own ignores it.
    fn is_ahead(&self, _by: Millis) {}

    /// What only a store has that several servers share. Without it the engine is the only one on its data.
    fn cluster(&self) -> Option<&dyn Cluster> {
        None
    }

    /// Tasks that applications enqueue in transactions of their own, where the store is a database that they can share.
    fn enqueued(&self) -> Option<&dyn EnqueuedTasks> {
        None
    }

    /// The tasks with these ids, in their order, with their results. Nothing stands in place of a task that does not
    /// exist or whose rows are damaged; [`Store::quarantine`] names the damaged ones from then on.
    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError>;

    /// As [`Store::load`], but it may be only the first ones, as many as memory is to hold at once; one at least.
    async fn load_first(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.load(ids).await
    }

    /// As [`Store::load`], for callers that look at neither parameters nor results: these may be missing.
    async fn load_heads(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.load(ids).await
    }

    /// How many tasks a call should load at most. Few, where the parameters of tasks do not all fit in memory.
    fn loads_at_once(&self) -> usize {
        usize::MAX
    }

    /// How many bytes the parameters and results of tasks take in memory, where the store keeps them there.
    fn resident_bytes(&self) -> Option<u64> {
        None
    }

    /// The versions of these tasks, in their order; nothing for a task that does not exist. For stores that can read them
    /// more cheaply than by loading tasks.
    async fn versions(&self, ids: &[TaskId]) -> Result<Vec<Option<u64>>, StoreError> {
        let loaded = self.load(ids).await?;
        Ok(loaded.into_iter().map(|loaded| Some(loaded?.task.state.events)).collect())
    }

    /// Commits `changes`, each for itself, but that one fails with those before it of the same task, lock or record
    /// ([`BuiltOn`](crate::BuiltOn)), and claims in the same transaction for `asks`, as [`Claims::claim`] does. When this
    /// returns, what was committed is on disk, whatever became of the claims.
    ///
    /// Nothing in place of an ask = it is to be claimed by itself: the store does not claim with commits, or not of a
    /// queue that limits or turns rule.
    ///
    /// With `led` some of the changes are made because this server leads a service. If another server has taken the lease,
    /// nothing is committed or claimed: [`StoreError::LeaseLost`]. This costs no round trip.
    async fn commit_and_claim(
        &self,
        changes: Vec<Change>,
        asks: &[Ask],
        leave: &Leave,
        led: Option<Leadership>,
        now: Now,
    ) -> Result<(Vec<Outcome>, Vec<Option<Vec<Claimed>>>), StoreError>;

    /// [`Store::commit_and_claim`] without claims.
    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Outcome>, StoreError> {
        // Nothing is claimed at this time.
        let now = Now { wall: Timestamp(0), mono: Millis(0) };
        Ok(self.commit_and_claim(changes, &[], &Leave::default(), None, now).await?.0)
    }

    /// Returns when everything that was read before is on disk, or was lost and [`Store::generation`] has grown.
    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// At most `limit` things that are due. They are returned again until they are settled.
    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError>;

    /// At most `limit` messages between aggregates that were not consumed yet.
    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError>;

    /// At most `limit` entries of the outbox, of tasks with ids above `above`; [`TaskId::NONE`] is below all. Those of the
    /// oldest tasks come first, by their ids; those of one task in the order in which they happened. If there are fewer than
    /// `limit`, there are no others.
    async fn unannounced(&self, above: TaskId, limit: usize) -> Result<Vec<Unannounced>, StoreError>;

    /// Deletes at most `limit` rows that were kept long enough. Returns how many it deleted. `led` is checked in the
    /// transaction of each deletion, as in [`Store::commit_and_claim`].
    async fn sweep(
        &self,
        retention: &Retention,
        led: Option<Leadership>,
        now: Now,
        limit: usize,
    ) -> Result<u64, StoreError>;
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
    /// Grows when the store lost what it had reported before it was on disk, and went back to what is there. A
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

    /// A task that was read, without its parameters and results. One that is in memory anyway stays whole.
    #[must_use]
    pub fn bare(self) -> Self {
        let task = Arc::try_unwrap(self.task);
        let task = task.map_or_else(|shared| shared, |task| Arc::new(task.without_payload()));
        Self { task, ..self }
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
    /// Another server has taken the lease of the service for which this was to be written. The transaction changed
    /// nothing.
    #[error("another server has taken the lease of this service")]
    LeaseLost,
    /// A newer program has changed it meanwhile so that this one must not work on it any more.
    #[error("the store is another one than this program knows: {0}")]
    Outgrown(String),
}
