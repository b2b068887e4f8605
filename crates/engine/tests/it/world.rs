//! An engine over a store in memory, with its services driven by hand and a clock that only tests move.

use std::{
    future::{Future, pending},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use windlass_core::{
    Action, Backoff, Failure, Flow, Input, Json, Millis, Name, Outcome, Retry, StepDefinition, Task, TaskId,
    Timestamp,
};
use windlass_engine::{
    Accepted, Committer, Engine, EngineError, Exchange, ExchangeAnswer, Explanation, HandedOut, ReportStatus,
    Said, Submission, WorkerReport,
    loops::{self, StoreClock, Timer},
    services::{ChangePoller, Dispatcher, LeaseKeeper, Membership, Messenger, Reclaimer, Timekeeper},
};
use windlass_store::{
    ClaimRequest, Clock, Now, ServerId, ServerState, SessionId, Store, SubmitKey, WorkerState, archive,
    memory::{MemorySink, MemorySnapshot},
    resident::Resident,
};

/// Where the clock of a world begins.
const BEGIN_MS: i64 = 1_700_000_000_000;

/// More turns than any test needs: a future that is not ready by then never will be.
const TURNS_MAX: usize = 1000;

pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    committer: Committer,
    timekeeper: Timekeeper,
    pub(crate) lease_keeper: LeaseKeeper,
    reclaimer: Reclaimer,
    messenger: Messenger,
    change_poller: ChangePoller,
    dispatcher: Dispatcher,
    membership: Membership,
    elapsed_ms: Arc<AtomicI64>,
}

impl World {
    /// A world of its own.
    pub(crate) fn new() -> Self {
        Self::open(&MemorySink::new([7; 32]))
    }

    /// A server started on what `sink` holds.
    pub(crate) fn open(sink: &MemorySink) -> Self {
        let now = Now { wall: Timestamp(BEGIN_MS), mono: Millis(0) };
        let store = futures_executor::block_on(Resident::open(Arc::new(sink.clone()), now)).unwrap();
        Self::over(Arc::new(store), 1)
    }

    pub(crate) fn over(store: Arc<dyn Store>, random: u64) -> Self {
        let engine = Arc::new(Engine::new(store, random));
        Self {
            committer: Committer::new(engine.clone()),
            timekeeper: Timekeeper::new(engine.clone()),
            lease_keeper: LeaseKeeper::new(engine.clone()),
            reclaimer: Reclaimer::new(engine.clone()),
            messenger: Messenger::new(engine.clone()),
            change_poller: ChangePoller::new(engine.clone()),
            dispatcher: Dispatcher::new(engine.clone()),
            membership: Membership::new(engine.clone(), server(random)),
            engine,
            elapsed_ms: Arc::default(),
        }
    }

    /// Copies the rows of this world to an empty store, by export and import.
    pub(crate) fn move_to(&self, rows: &MemorySink, to: &dyn Store) {
        let mut file = Vec::new();
        futures_executor::block_on(async {
            let mut from = MemorySnapshot::open(rows, self.now()).await.unwrap();
            archive::export(&mut from, &mut file, &mut |_| {}, self.now()).await.unwrap();
            archive::import(to, &mut &file[..], &mut |_| {}, self.now()).await.unwrap();
            to.flush().await.unwrap();
        });
    }

    pub(crate) fn now(&self) -> Now {
        let elapsed = self.elapsed_ms.load(Ordering::Relaxed);
        Now { wall: Timestamp(BEGIN_MS + elapsed), mono: Millis(u64::try_from(elapsed).unwrap()) }
    }

    /// Lets time pass in small steps, with the services at work.
    pub(crate) fn pass(&self, ms: i64) {
        const STEP_MS: i64 = 50;
        let mut left = ms;
        while left > 0 {
            self.elapsed_ms.fetch_add(left.min(STEP_MS), Ordering::Relaxed);
            left -= STEP_MS;
            self.serve();
        }
    }

    /// Lets time pass at once: this server stood still.
    pub(crate) fn be_away(&self, ms: i64) {
        self.elapsed_ms.fetch_add(ms, Ordering::Relaxed);
        self.serve();
    }

    /// Time passes without this server.
    pub(crate) fn be_away_unserved(&self, ms: i64) {
        self.elapsed_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Runs the services until nothing more is to be done.
    pub(crate) fn serve(&self) {
        self.drive(async {
            let now = self.now();
            self.lease_keeper.run_once(now).await.unwrap();
            self.reclaimer.run_once(now).await.unwrap();
            while self.timekeeper.run_once(now).await.unwrap() + self.messenger.run_once(now).await.unwrap()
                > 0
            {}
            self.change_poller.run_once(now).await.unwrap();
            self.dispatcher.run_once(now).await.unwrap();
        });
    }

    /// Says that this server is there, as the program does every second.
    pub(crate) fn be_heard(&self) {
        self.try_to_be_heard().unwrap();
    }

    pub(crate) fn try_to_be_heard(&self) -> Result<(), EngineError> {
        self.drive(self.membership.run_once(self.now()))
    }

    /// Runs one round of the lease keeper alone.
    pub(crate) fn keep_leases(&self) -> Result<(), EngineError> {
        self.drive(self.lease_keeper.run_once(self.now()))
    }

    /// Runs one round of the reclaimer alone. Returns the number of reclaimed attempts.
    pub(crate) fn reclaim(&self) -> usize {
        self.drive(self.reclaimer.run_once(self.now())).unwrap()
    }

    /// This server ends in order.
    pub(crate) fn end(&self) {
        self.drive(self.membership.end()).unwrap();
    }

    /// The heartbeats of this server while time stands still: each one is because of another server.
    pub(crate) async fn heartbeats(&self) -> EngineError {
        loops::heartbeat(&self.membership, self).await
    }

    /// Polls `future` to its end, committing whatever it waits for.
    pub(crate) fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        for _ in 0..TURNS_MAX {
            if let Poll::Ready(output) = self.turn(future.as_mut()) {
                return output;
            }
        }
        panic!("nothing moves");
    }

    /// Polls `future` to its end, and commits nothing after the batch that answers it: the server then stands still.
    pub(crate) fn drive_no_further<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..TURNS_MAX {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            self.commit_once();
        }
        panic!("nothing moves");
    }

    /// Commits one batch.
    pub(crate) fn commit_once(&self) {
        futures_executor::block_on(self.committer.run_once(|| self.now()));
    }

    /// Polls `future` once, and commits what waits.
    pub(crate) fn turn<T>(&self, mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        let mut context = Context::from_waker(Waker::noop());
        let polled = future.as_mut().poll(&mut context);
        futures_executor::block_on(async { while self.committer.run_once(|| self.now()).await > 0 {} });
        polled
    }

    pub(crate) fn apply(&self, flow: Flow) {
        self.drive(self.engine.apply_flow(flow, self.now())).unwrap();
    }

    pub(crate) fn submit(&self, flow: &str) -> TaskId {
        self.try_submit(flow, "{}", None).unwrap().loaded.task.id
    }

    pub(crate) fn try_submit(
        &self,
        flow: &str,
        params: &str,
        key: Option<SubmitKey>,
    ) -> Result<Accepted, EngineError> {
        let input = Input::new(Json::parse(params).unwrap(), self.now().wall);
        self.drive(self.engine.submit(Submission { key, ..submission(flow, input) }, self.now()))
    }

    pub(crate) fn task(&self, id: TaskId) -> Arc<Task> {
        self.drive(self.engine.task(id)).unwrap().task
    }

    pub(crate) fn why(&self, id: TaskId) -> Explanation {
        self.drive(self.engine.why(id, self.now())).unwrap().1
    }

    /// The task's status and its steps' statuses, as users see them.
    pub(crate) fn status(&self, id: TaskId) -> String {
        let loaded = self.drive(self.engine.task(id)).unwrap();
        let held = loaded.held();
        let steps: Vec<String> = (0..loaded.task.state.steps.len())
            .map(|step| format!("{:?}", windlass_core::step_status(&loaded.task, step, &held)))
            .collect();
        format!("{:?}: {}", windlass_core::task_status(&loaded.task, &held), steps.join(" "))
    }

    pub(crate) fn worker(&self, session: u128) -> WorkerInWorld<'_> {
        WorkerInWorld {
            world: self,
            session: SessionId(session),
            seq: 0,
            attached: true,
            holding: Vec::new(),
            declining: Vec::new(),
        }
    }
}

/// A server as it reports itself.
impl Clock for World {
    fn now(&self) -> Now {
        self.now()
    }
}

impl Timer for World {
    async fn sleep(&self, _: Millis) {
        pending().await
    }
}

impl StoreClock for World {
    fn elapsed(&self) -> Millis {
        self.now().mono
    }

    fn jump_to(&self, _: Timestamp) -> Option<Now> {
        None
    }

    fn follow(&self, _: Timestamp, _: Millis) {}
}

fn server(number: u64) -> ServerState {
    ServerState {
        id: ServerId(number.into()),
        version: "0.0.0".into(),
        address: format!("http://server-{number}").into(),
        level: 0,
        started_at: Timestamp(BEGIN_MS),
        heard_at: Timestamp(BEGIN_MS),
        heard: Millis(0),
    }
}

/// A worker that calls when a test says so. It serves the module `m` with 10 slots.
pub(crate) struct WorkerInWorld<'a> {
    world: &'a World,
    pub(crate) session: SessionId,
    pub(crate) seq: u64,
    pub(crate) attached: bool,
    pub(crate) holding: Vec<String>,
    pub(crate) declining: Vec<String>,
}

impl<'a> WorkerInWorld<'a> {
    /// The same worker, talking to another server.
    pub(crate) fn at<'b>(&self, world: &'b World) -> WorkerInWorld<'b> {
        WorkerInWorld {
            world,
            session: self.session,
            seq: self.seq,
            attached: self.attached,
            holding: self.holding.clone(),
            declining: self.declining.clone(),
        }
    }

    pub(crate) fn call(&mut self, wait: u64) -> Exchange {
        self.seq += 1;
        Exchange {
            session: self.session,
            seq: self.seq,
            attached: self.attached,
            lease: None,
            worker: Some(WorkerState { name: "w".into(), ..WorkerState::default() }),
            holding: Some(self.holding.clone()),
            declining: self.declining.clone(),
            claim_requests: Some(vec![ClaimRequest {
                module: Name::new("m").unwrap(),
                commands: None,
                free: 10,
            }]),
            free: None,
            draining: None,
            wait: Millis(wait),
            reports: Vec::new(),
        }
    }

    /// A poll that waits.
    pub(crate) fn open_poll(
        &mut self,
        wait: u64,
    ) -> impl Future<Output = Result<ExchangeAnswer, EngineError>> + 'a {
        let (call, world) = (self.call(wait), self.world);
        async move { world.engine.exchange(call, world.now()).await }
    }

    /// A poll that takes what is there.
    pub(crate) fn poll(&mut self) -> ExchangeAnswer {
        let call = self.call(0);
        let answer = self.world.drive(self.world.engine.exchange(call, self.world.now())).unwrap();
        self.holding.extend(answer.attempts.iter().map(|attempt| attempt.token.clone()));
        answer
    }

    /// The one attempt that a poll brings.
    pub(crate) fn take(&mut self) -> HandedOut {
        let mut attempts = self.poll().attempts;
        assert_eq!(attempts.len(), 1, "one attempt is ready");
        attempts.remove(0)
    }

    pub(crate) fn report(&mut self, token: &str, said: Said) -> ReportStatus {
        self.report_call(token, said).reports.remove(0).status
    }

    pub(crate) fn report_call(&mut self, token: &str, said: Said) -> ExchangeAnswer {
        self.seq += 1;
        let report = WorkerReport { token: token.to_owned(), said: Ok(said), logs: Vec::new() };
        let call = Exchange {
            seq: self.seq,
            holding: None,
            claim_requests: None,
            reports: vec![report],
            ..self.call(0)
        };
        let answer = self.world.drive(self.world.engine.exchange(call, self.world.now())).unwrap();
        self.holding.retain(|held| held != token);
        answer
    }
}

/// A worker did it.
/// A submit without an idempotency key.
pub(crate) fn submission(flow: &str, input: Input) -> Submission {
    let flow = Name::new(flow).unwrap();
    Submission { flow, version: None, input, key: None, fingerprint_before: None }
}

pub(crate) fn ok() -> Said {
    Said::Ended(Outcome::Succeeded(None))
}

/// A worker did it, and this came of it.
pub(crate) fn ok_with(result: &str) -> Said {
    Said::Ended(Outcome::Succeeded(Some(Json::parse(result).unwrap())))
}

/// A worker could not do it.
pub(crate) fn failed(message: &str) -> Said {
    Said::Ended(Outcome::Failed(Failure::new(message, 1, true)))
}

/// A flow of steps `m.NAME` with rollbacks `m.undo-NAME`, each with this many retries after 1 s.
pub(crate) fn flow(name: &str, steps: &[&str], retries: u32) -> Flow {
    let action = |command: String| Action {
        retry: Retry { max: retries, backoff: Backoff::Fixed, ..Retry::default() },
        ..Action::of_worker(Name::new("m").unwrap(), Name::new(&command).unwrap())
    };
    let steps = steps.iter().enumerate().map(|(index, name)| StepDefinition {
        rollback: Some(action(format!("undo-{name}"))),
        ..StepDefinition::new(
            Name::new(name).unwrap(),
            action((*name).to_owned()),
            index.checked_sub(1).into_iter().collect(),
        )
    });
    Flow { version: 0, ..Flow::new(Name::new(name).unwrap(), steps.collect()) }
}
