//! A store under test, the time, and helpers for the cases.

use std::sync::Arc;

use windlass_core::{
    ActKey, Attempt, Command, Failure, Flow, Input, Json, Millis, Name, Outcome as Ended, Report, Task,
    TaskId, Timestamp,
};
use windlass_store::{
    AttemptId, Change, ClaimOutcome, ClaimRequest, Claimed, Due, Envelope, Leave, Loaded, Now, Outcome,
    PollState, SessionId, SessionRenewal, Store, StoreError, StoredFlow, TaskChange, TaskIds, WorkerState,
};

use crate::{
    Bench,
    history::{accept, decide, input, name},
};

/// The lease of the suite's sessions.
pub(crate) const LEASE: Millis = Millis::from_secs(30);

/// A store under test. Each method does one operation by the port and panics when the store fails.
pub(crate) struct World {
    bench: Box<dyn Bench>,
    stores: Vec<Arc<dyn Store>>,
    turn: usize,
    /// The time passed to every call.
    pub(crate) now: Now,
    ids: TaskIds,
}

impl World {
    pub(crate) async fn open(mut bench: Box<dyn Bench>) -> Self {
        let now = Now { wall: Timestamp(1_700_000_000_000), mono: Millis(5_000) };
        let stores = bench.open(now).await;
        assert!(!stores.is_empty(), "a bench gives at least one handle");
        Self { bench, stores, turn: 0, now, ids: TaskIds::new(1) }
    }

    /// Closes the store and opens it again.
    pub(crate) async fn reopen(&mut self) {
        self.stores.clear();
        self.stores = self.bench.open(self.now).await;
    }

    /// Closes the store, damages the rows of a task and reopens it. Returns false if the store cannot be damaged.
    pub(crate) async fn reopen_damaged(&mut self, task: TaskId) -> bool {
        self.stores.clear();
        let is_damaged = self.bench.damage(task).await;
        self.stores = self.bench.open(self.now).await;
        is_damaged
    }

    pub(crate) fn keeps_claims(&self) -> bool {
        self.bench.keeps_claims()
    }

    /// A handle of the store; the next call returns the next handle.
    pub(crate) fn store(&mut self) -> Arc<dyn Store> {
        self.turn += 1;
        self.stores[self.turn % self.stores.len()].clone()
    }

    /// Advances the time.
    pub(crate) fn pass(&mut self, length: Millis) {
        self.now.wall = self.now.wall + length;
        self.now.mono.0 += length.0;
    }

    pub(crate) async fn commit(&mut self, changes: Vec<Change>) -> Vec<Outcome> {
        let count = changes.len();
        let outcomes = self.store().commit(changes).await.expect("a commit succeeds");
        assert_eq!(outcomes.len(), count, "every change has an outcome");
        outcomes
    }

    /// Commits one change.
    pub(crate) async fn commit_one(&mut self, change: impl Into<Change>) -> Outcome {
        self.commit(vec![change.into()]).await.remove(0)
    }

    /// Adds a flow to the catalogue.
    pub(crate) async fn add_flow(&mut self, flow: Flow) -> Arc<Flow> {
        let flow = Arc::new(flow);
        let stored = StoredFlow { flow: flow.clone(), created_at: self.now.wall };
        assert_eq!(self.commit_one(Change::Flow(stored)).await, Outcome::Committed);
        flow
    }

    /// The change that accepts a new task, not committed yet.
    pub(crate) fn new_task(&mut self, flow: &Arc<Flow>, set: impl FnOnce(&mut Input)) -> TaskChange {
        let mut input = input(self.now.wall);
        set(&mut input);
        accept(self.ids.next(self.now.wall), flow.clone(), input)
    }

    pub(crate) async fn submit(&mut self, flow: &Arc<Flow>) -> TaskId {
        self.submit_with(flow, |_| {}).await
    }

    pub(crate) async fn submit_with(&mut self, flow: &Arc<Flow>, set: impl FnOnce(&mut Input)) -> TaskId {
        let change = self.new_task(flow, set);
        let id = change.task.id;
        assert_eq!(self.commit_one(change).await, Outcome::Committed);
        id
    }

    pub(crate) async fn find(&mut self, id: TaskId) -> Option<Loaded> {
        let mut loaded = self.store().load(&[id]).await.expect("loading succeeds");
        assert_eq!(loaded.len(), 1, "every id has an answer");
        loaded.remove(0)
    }

    /// Loads no task. A store that must recover after a failure does so now.
    pub(crate) async fn load_nothing(&mut self) {
        assert!(self.store().load(&[]).await.expect("loading succeeds").is_empty());
    }

    pub(crate) async fn load(&mut self, id: TaskId) -> Loaded {
        self.find(id).await.expect("the task is there")
    }

    /// The change that `command` makes of the current task, not committed yet.
    pub(crate) async fn decide(&mut self, id: TaskId, command: &Command) -> TaskChange {
        let loaded = self.load(id).await;
        decide(&loaded, command, self.now.wall).expect("the rules allow it")
    }

    /// Commits `command` and returns the task afterwards.
    pub(crate) async fn apply(&mut self, id: TaskId, command: Command) -> Arc<Task> {
        let change = self.decide(id, &command).await;
        let task = change.task.clone();
        assert_eq!(self.commit_one(change).await, Outcome::Committed);
        task
    }

    /// Renews a session that keeps no poll open.
    pub(crate) async fn renew(&mut self, session: SessionId) {
        self.renew_with(
            session,
            LEASE,
            Some(WorkerState { name: "worker".into(), ..WorkerState::default() }),
        )
        .await;
    }

    pub(crate) async fn renew_with(
        &mut self,
        session: SessionId,
        lease: Millis,
        worker: Option<WorkerState>,
    ) {
        let renewal = SessionRenewal {
            session,
            poll: PollState::Unknown,
            lease: LEASE,
            lease_unpolled: lease,
            worker: worker.map(Arc::new),
        };
        self.renew_as(renewal).await;
    }

    pub(crate) async fn renew_as(&mut self, renewal: SessionRenewal) {
        let now = self.now;
        self.store().renew(vec![renewal], now).await.expect("a renewal succeeds");
    }

    pub(crate) async fn claim_for(
        &mut self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
    ) -> Vec<Claimed> {
        let now = self.now;
        claim(&*self.store(), session, claim_requests, now).await.expect("a claim succeeds")
    }

    /// Claims at most `free` attempts of the module `work`.
    pub(crate) async fn claim(&mut self, session: SessionId, free: u32) -> Vec<Claimed> {
        self.claim_for(session, &[claim_request("work", free)]).await
    }

    /// Claims the only ready attempt.
    pub(crate) async fn claim_one(&mut self, session: SessionId) -> Claimed {
        let mut claimed = self.claim(session, 1).await;
        assert_eq!(claimed.len(), 1, "an attempt is ready");
        claimed.remove(0)
    }

    /// Reports the outcome of an attempt.
    pub(crate) async fn report(&mut self, claimed: &Claimed, outcome: Ended) -> Arc<Task> {
        self.apply(claimed.id.task, report(claimed, outcome)).await
    }

    pub(crate) async fn succeed(&mut self, claimed: &Claimed, result: Option<Json>) -> Arc<Task> {
        self.report(claimed, Ended::Succeeded(result)).await
    }

    pub(crate) async fn fail(&mut self, claimed: &Claimed) -> Arc<Task> {
        self.report(claimed, failed()).await
    }

    pub(crate) async fn release(&mut self, session: SessionId, id: AttemptId) {
        let now = self.now;
        self.store().release(session, id, None, now).await.expect("a release succeeds");
    }

    pub(crate) async fn due(&mut self) -> Vec<Due> {
        let now = self.now;
        self.store().due(now, 1000).await.expect("asking what is due succeeds")
    }

    pub(crate) async fn lost(&mut self) -> Vec<Claimed> {
        let now = self.now;
        self.store().lost(now, 1000).await.expect("asking what is lost succeeds")
    }

    pub(crate) async fn messages(&mut self) -> Vec<Envelope> {
        self.store().messages(1000).await.expect("reading messages succeeds")
    }

    /// A session with this number, just renewed.
    pub(crate) async fn session(&mut self, number: u128) -> SessionId {
        let session = SessionId(number);
        self.renew(session).await;
        session
    }
}

/// The command of a worker's report.
pub(crate) fn report(claimed: &Claimed, outcome: Ended) -> Command {
    Command::Report(Report { attempt: attempt(claimed), outcome })
}

/// The attempt of a claim, for a command.
pub(crate) fn attempt(claimed: &Claimed) -> Attempt {
    Attempt { key: claimed.id.key, number: claimed.id.attempt, started_at: Some(claimed.at) }
}

/// A failure that can be retried.
pub(crate) fn failed() -> Ended {
    Ended::Failed(Failure::new("it broke", 1, true))
}

/// A claim request for at most `free` attempts of a module.
pub(crate) fn claim_request(module: &str, free: u32) -> ClaimRequest {
    ClaimRequest { module: name(module), commands: None, free }
}

/// The tasks of these claims.
pub(crate) fn tasks_of(claimed: &[Claimed]) -> Vec<TaskId> {
    claimed.iter().map(|claimed| claimed.id.task).collect()
}

/// The forward execution of the first step.
pub(crate) const FIRST: ActKey = ActKey::forward(0);

/// The module of the suite's flows.
pub(crate) fn work() -> Name {
    name("work")
}

/// Claims for a session, again where the store had to read first.
///
/// # Errors
/// When the store fails.
pub async fn claim(
    store: &dyn Store,
    session: SessionId,
    claim_requests: &[ClaimRequest],
    now: Now,
) -> Result<Vec<Claimed>, StoreError> {
    loop {
        if let ClaimOutcome::Claimed(claimed) =
            store.claim(session, claim_requests, &Leave::default(), now).await?
        {
            return Ok(claimed);
        }
    }
}
