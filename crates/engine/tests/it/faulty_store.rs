//! A store that holds or fails a call when a test says so.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use async_trait::async_trait;
use windlass_core::{ActKey, Alarm, AlarmId, Event, Lock, LockName, Millis, Name, Ready, TaskId};
use windlass_store::{
    Adoption, Ask, AttemptId, Change, ClaimOutcome, ClaimRequest, Claimed, Claims, Cluster, Due, Envelope,
    JournalEntry, JournalQuery, JournalSize, Leadership, Leave, LimitState, Loaded, LogLine, Members, Now,
    Outcome, Page, Quarantine, Queries, QueueState, Record, RecordKind, Retention, ServerId, ServerState,
    Service, ServiceLease, SessionId, SessionRenewal, SessionState, SizeQuery, Store, StoreError,
    StoredAlarm, StoredFlow, TaskQuery, Unannounced, memory::MemorySink, resident::Resident,
};

use crate::world::World;

/// The calls that can be held or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Load,
    Commit,
    /// Of sessions and of servers.
    Renew,
    /// Of locks by their names.
    Locks,
    /// It is done first: what is held or lost is its answer.
    Claim,
}

/// A world over a store that can be made to fail.
pub(crate) fn faulty() -> (World, Arc<FaultyStore>) {
    faulty_on(&MemorySink::new([7; 32]))
}

/// The same over a store with these rows.
pub(crate) fn faulty_on(sink: &MemorySink) -> (World, Arc<FaultyStore>) {
    let now = World::new().now();
    let resident = futures_executor::block_on(Resident::open(Arc::new(sink.clone()), now)).unwrap();
    let store = FaultyStore::new(Arc::new(resident));
    (World::over(store.clone(), 1), store)
}

/// Stands before a store.
pub(crate) struct FaultyStore {
    pub(crate) store: Arc<dyn Store>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The next call of this kind is held.
    holds: Option<Verb>,
    /// A call is held.
    is_holding: bool,
    /// Calls of this kind fail.
    fails: Option<Verb>,
    /// The number of calls of that kind that still succeed.
    spared: usize,
    /// Every change conflicts with what others did.
    conflicts: bool,
    /// Reads of locks and alarms, each with how many it named.
    reads: Vec<String>,
    /// How often it was asked for claims.
    claims: usize,
}

impl FaultyStore {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, state: Mutex::default() })
    }

    /// Holds the next call of this kind, and none after it.
    pub(crate) fn hold_next(&self, verb: Verb) {
        self.state().holds = Some(verb);
    }

    /// Lets the call go on that is held. It must have come.
    pub(crate) fn let_go(&self) {
        let mut state = self.state();
        assert!(state.is_holding, "a call is held");
        state.is_holding = false;
    }

    /// Fails all calls of this kind from now on; none with `None`.
    pub(crate) fn fail(&self, verb: Option<Verb>) {
        let mut state = self.state();
        (state.fails, state.spared) = (verb, 0);
    }

    /// Fails all calls of this kind after the first `spared`.
    pub(crate) fn fail_after(&self, verb: Verb, spared: usize) {
        let mut state = self.state();
        (state.fails, state.spared) = (Some(verb), spared);
    }

    /// Lets every change conflict from now on, or none.
    pub(crate) fn conflict(&self, conflicts: bool) {
        self.state().conflicts = conflicts;
    }

    /// The reads of locks and alarms since the last call.
    pub(crate) fn take_reads(&self) -> Vec<String> {
        std::mem::take(&mut self.state().reads)
    }

    /// How often it was asked for claims since the last call.
    pub(crate) fn take_claims(&self) -> usize {
        std::mem::take(&mut self.state().claims)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass(&self, verb: Verb) -> Result<(), StoreError> {
        let is_held = {
            let mut state = self.state();
            let is_held = state.holds.take_if(|held| *held == verb).is_some();
            state.is_holding |= is_held;
            is_held
        };
        if is_held {
            // Tests poll by hand, so nobody needs to be woken.
            poll_fn(|_| if self.state().is_holding { Poll::Pending } else { Poll::Ready(()) }).await;
        }
        let mut state = self.state();
        if state.fails == Some(verb) {
            if state.spared > 0 {
                state.spared -= 1;
                return Ok(());
            }
            return Err(StoreError::Unavailable("the test lets this call fail".to_owned()));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn token_key(&self) -> [u8; 32] {
        self.store.token_key()
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        self.store.cluster()
    }

    fn quarantine(&self) -> &Quarantine {
        self.store.quarantine()
    }

    fn next_wake(&self, now: Now) -> Option<Millis> {
        self.store.next_wake(now)
    }

    fn generation(&self) -> u64 {
        self.store.generation()
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.pass(Verb::Load).await?;
        self.store.load(ids).await
    }

    async fn load_first(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.pass(Verb::Load).await?;
        self.store.load_first(ids).await
    }

    async fn load_heads(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.pass(Verb::Load).await?;
        self.store.load_heads(ids).await
    }

    fn loads_at_once(&self) -> usize {
        self.store.loads_at_once()
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.pass(Verb::Commit).await?;
        self.store.flush().await
    }

    async fn commit_and_claim(
        &self,
        changes: Vec<Change>,
        asks: &[Ask],
        leave: &Leave,
        led: Option<Leadership>,
        now: Now,
    ) -> Result<(Vec<Outcome>, Vec<Option<Vec<Claimed>>>), StoreError> {
        self.pass(Verb::Commit).await?;
        if self.state().conflicts {
            return Ok((vec![Outcome::Conflict; changes.len()], vec![None; asks.len()]));
        }
        self.store.commit_and_claim(changes, asks, leave, led, now).await
    }

    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError> {
        self.store.due(now, limit).await
    }

    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError> {
        self.store.messages(limit).await
    }

    async fn unannounced(&self, above: TaskId, limit: usize) -> Result<Vec<Unannounced>, StoreError> {
        self.store.unannounced(above, limit).await
    }

    async fn sweep(
        &self,
        retention: &Retention,
        led: Option<Leadership>,
        now: Now,
        limit: usize,
    ) -> Result<u64, StoreError> {
        self.store.sweep(retention, led, now, limit).await
    }
}

#[async_trait]
impl Claims for FaultyStore {
    async fn claim(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        leave: &Leave,
        now: Now,
    ) -> Result<ClaimOutcome, StoreError> {
        self.state().claims += 1;
        let claimed = self.store.claim(session, claim_requests, leave, now).await;
        self.pass(Verb::Claim).await?;
        claimed
    }

    async fn adopt(
        &self,
        session: SessionId,
        attempts: &[AttemptId],
        now: Now,
    ) -> Result<Vec<Adoption>, StoreError> {
        self.store.adopt(session, attempts, now).await
    }

    async fn release(
        &self,
        session: SessionId,
        attempt: AttemptId,
        led: Option<Leadership>,
        now: Now,
    ) -> Result<(), StoreError> {
        self.store.release(session, attempt, led, now).await
    }

    async fn renew(&self, sessions: Vec<SessionRenewal>, now: Now) -> Result<(), StoreError> {
        self.pass(Verb::Renew).await?;
        self.store.renew(sessions, now).await
    }

    async fn forgive(&self, now: Now) -> Result<(), StoreError> {
        self.pass(Verb::Renew).await?;
        self.store.forgive(now).await
    }

    async fn held(&self, session: SessionId) -> Result<Vec<Claimed>, StoreError> {
        self.store.held(session).await
    }

    async fn to_stop(&self, sessions: &[SessionId]) -> Result<Vec<Claimed>, StoreError> {
        self.store.to_stop(sessions).await
    }

    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        self.store.lost(now, limit).await
    }
}

#[async_trait]
impl Queries for FaultyStore {
    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError> {
        self.store.flow(name, version).await
    }

    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError> {
        self.store.flows().await
    }

    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError> {
        self.store.tasks(query).await
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        self.store.events(task, after, limit).await
    }

    async fn logs(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, LogLine)>, StoreError> {
        self.store.logs(task, after, limit).await
    }

    async fn locks_by_name(&self, names: &[LockName]) -> Result<Vec<Lock>, StoreError> {
        self.state().reads.push(format!("{} locks", names.len()));
        self.pass(Verb::Locks).await?;
        self.store.locks_by_name(names).await
    }

    async fn free_locks(&self, limit: usize) -> Result<Vec<Lock>, StoreError> {
        self.store.free_locks(limit).await
    }

    async fn lock_floor(&self) -> Result<u64, StoreError> {
        self.store.lock_floor().await
    }

    async fn locks(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<Lock>, StoreError> {
        self.store.locks(after, limit).await
    }

    async fn alarms_by_id(&self, ids: &[AlarmId]) -> Result<Vec<Option<StoredAlarm>>, StoreError> {
        self.state().reads.push(format!("{} alarms", ids.len()));
        self.store.alarms_by_id(ids).await
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        self.store.alarms(all, limit).await
    }

    async fn records_by_name(
        &self,
        kind: RecordKind,
        names: &[Name],
    ) -> Result<Vec<Option<Record>>, StoreError> {
        self.store.records_by_name(kind, names).await
    }

    async fn records(
        &self,
        kind: RecordKind,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.store.records(kind, after, limit).await
    }

    async fn journal(&self, query: &JournalQuery) -> Result<Vec<(u64, JournalEntry)>, StoreError> {
        self.store.journal(query).await
    }

    async fn journal_sizes(&self, query: SizeQuery) -> Result<Vec<JournalSize>, StoreError> {
        self.store.journal_sizes(query).await
    }

    async fn queues(&self) -> Result<Vec<QueueState>, StoreError> {
        self.store.queues().await
    }

    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError> {
        self.store.sessions(now).await
    }

    async fn limits(&self, now: Now) -> Result<Vec<LimitState>, StoreError> {
        self.store.limits(now).await
    }

    async fn keeping_back(&self, ready: &Ready, now: Now) -> Result<Vec<LimitState>, StoreError> {
        self.store.keeping_back(ready, now).await
    }

    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError> {
        self.store.place(task, key).await
    }
}

#[async_trait]
impl Members for FaultyStore {
    async fn register(&self, server: ServerState) -> Result<(), StoreError> {
        self.pass(Verb::Renew).await?;
        self.store.register(server).await
    }

    async fn servers(&self) -> Result<Vec<ServerState>, StoreError> {
        self.store.servers().await
    }

    async fn leave(&self, server: ServerId) -> Result<(), StoreError> {
        self.store.leave(server).await
    }

    async fn lease(
        &self,
        service: Service,
        server: ServerId,
        length: Millis,
        now: Now,
    ) -> Result<ServiceLease, StoreError> {
        self.store.lease(service, server, length, now).await
    }
}
