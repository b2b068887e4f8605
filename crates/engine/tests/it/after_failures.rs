//! After a restart, a failed write or a lost answer: what workers may still have is theirs, what is on disk is
//! handed out, and nothing is reported that is not there.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Waker},
};

use futures_executor::block_on;
use windlass_conformance::{Gate, claim};
use windlass_core::{
    ActKey, Backoff, Command, Failure, Flow, Leader, Millis, Name, Outcome, Pause, Retry, TaskId,
};
use windlass_engine::{Campaign, Committer, Exchange, ReportStatus, Said, WorkerReport, services::Janitor};
use windlass_store::{
    ClaimRequest, Retention,
    memory::{MemorySink, Row, SharedStore},
    resident::Resident,
};

use crate::{
    faulty_store::{FaultyStore, Verb},
    world::{WorkerInWorld, World, flow, ok},
};

/// Longer than workers are given to name what they have.
const BEYOND_GRACE_MS: i64 = 400;

fn failed() -> Said {
    Said::Ended(Outcome::Failed(Failure::new("boom", 1, false)))
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> T {
    match poll(future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it is done"),
    }
}

/// A call that reports one attempt.
fn report(worker: &mut WorkerInWorld<'_>, token: &str, said: Said) -> Exchange {
    let report = WorkerReport { token: token.to_owned(), said: Ok(said), logs: Vec::new() };
    Exchange { reports: vec![report], holding: None, claim_requests: None, ..worker.call(0) }
}

/// A server whose writes wait or fail when a test says so, and whose calls to the store can be held.
struct Gated {
    world: World,
    gate: Arc<Gate>,
    faulty: Arc<FaultyStore>,
}

impl Gated {
    /// A server started on what `sink` holds.
    fn open(sink: &MemorySink) -> Self {
        let gate = Arc::new(Gate::new(Arc::new(sink.clone())));
        let resident = block_on(Resident::open(gate.clone(), World::new().now())).unwrap();
        let faulty = FaultyStore::new(Arc::new(resident));
        Self { world: World::over(faulty.clone(), 1), gate, faulty }
    }

    fn new() -> Self {
        Self::open(&MemorySink::new([7; 32]))
    }

    /// The store reads its rows again, as the next request makes it do.
    fn read_anew(&self) {
        assert!(block_on(self.faulty.store.load(&[])).unwrap().is_empty());
    }
}

/// A flow of two steps that run side by side.
fn side_by_side() -> Flow {
    let mut flow = flow("f", &["a", "b"], 0);
    flow.steps[1].after.clear();
    flow
}

/// The rollbacks of both steps are handed out, and end the task.
fn both_are_undone(world: &World, id: TaskId, worker: &mut WorkerInWorld<'_>) {
    let undos = worker.poll().attempts;
    let keys: Vec<ActKey> = undos.iter().map(|undo| undo.id.key).collect();
    assert_eq!(keys, [ActKey::rollback(0), ActKey::rollback(1)]);
    for undo in undos {
        assert_eq!(worker.report(&undo.token, ok()), ReportStatus::Accepted);
    }
    assert!(world.task(id).is_ended());
}

#[test]
fn nothing_is_undone_while_a_worker_may_come_back_with_what_runs_beside_it() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(side_by_side());
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let attempts = worker.poll().attempts;
    let [a, b] = &attempts[..] else { panic!("both steps are ready") };

    let world = World::open(&sink);
    let mut worker = worker.at(&world);
    assert_eq!(worker.report(&b.token, failed()), ReportStatus::Accepted, "it reports before it polls");
    let mut other = world.worker(2);
    world.pass(100);
    assert!(other.poll().attempts.is_empty(), "step a may be at work");
    let heard = worker.poll();
    assert_eq!((heard.attempts.len(), &heard.cancels), (0, &vec![a.token.clone()]));
    world.pass(BEYOND_GRACE_MS);
    assert!(other.poll().attempts.is_empty(), "step a is at work");
    assert_eq!(worker.report(&a.token, failed()), ReportStatus::Accepted);
    both_are_undone(&world, id, &mut other);
}

#[test]
fn what_nobody_comes_back_with_is_given_up_and_undone_after_the_grace() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(side_by_side());
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let attempts = worker.poll().attempts;

    let world = World::open(&sink);
    let mut worker = worker.at(&world);
    worker.report(&attempts[1].token, failed());
    let mut other = world.worker(2);
    world.pass(100);
    assert!(other.poll().attempts.is_empty());
    world.pass(BEYOND_GRACE_MS);
    assert_eq!(world.task(id).state.steps[0].forward.deaths, 1);
    both_are_undone(&world, id, &mut other);
}

#[test]
fn the_end_of_the_grace_hands_out_nothing_that_is_on_its_way_to_the_disk() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    let mut again = flow("f", &["a"], 0);
    again.steps[0].run.retry = Retry { max: 1, backoff: Backoff::None, ..Retry::default() };
    world.apply(again);
    world.submit("f");
    let mut worker = world.worker(1);
    let first = worker.take();

    let Gated { world, gate, .. } = Gated::open(&sink);
    let mut worker = worker.at(&world);
    let failed = Said::Ended(Outcome::Failed(Failure::new("busy", 1, true)));
    let call = report(&mut worker, &first.token, failed);
    gate.close();
    let mut reporting = pin!(world.engine.exchange(call, world.now()));
    assert!(poll(reporting.as_mut()).is_pending());
    let committer = Committer::new(world.engine.clone());
    let mut committing = pin!(committer.run_once(|| world.now()));
    assert!(poll(committing.as_mut()).is_pending(), "its write waits");
    world.pass(BEYOND_GRACE_MS);
    let mut other = world.worker(2);
    assert!(other.poll().attempts.is_empty(), "the second attempt is not on disk");
    gate.open();
    ready(committing);
    assert_eq!(ready(reporting).unwrap().reports[0].status, ReportStatus::Accepted);
    assert_eq!(other.take().id.attempt, 2);
}

/// The first of two steps is reported as done; its report is written, and the write is reported as failed.
fn report_though_told_as_failed<'a>(gated: &'a Gated) -> (WorkerInWorld<'a>, String) {
    let Gated { world, gate, .. } = gated;
    world.apply(flow("f", &["a", "b"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    let token = worker.take().token;
    let call = report(&mut worker, &token, ok());
    gate.close();
    let mut reporting = pin!(world.engine.exchange(call, world.now()));
    assert!(poll(reporting.as_mut()).is_pending());
    let committer = Committer::new(world.engine.clone());
    let mut committing = pin!(committer.run_once(|| world.now()));
    assert!(poll(committing.as_mut()).is_pending(), "its write waits");
    gate.fail_though_written();
    ready(committing);
    assert!(ready(reporting).is_err());
    (worker, token)
}

#[test]
fn what_a_write_made_ready_that_was_told_as_failed_is_handed_out_though_nobody_asks() {
    let gated = Gated::new();
    let world = &gated.world;
    let mut other = world.worker(2);
    let mut waiting = pin!(other.open_poll(10_000));
    report_though_told_as_failed(&gated);
    assert!(world.turn(waiting.as_mut()).is_pending());
    world.pass(2 * BEYOND_GRACE_MS);
    let Poll::Ready(answer) = world.turn(waiting) else { panic!("the second step is on disk and ready") };
    assert_eq!(answer.unwrap().attempts[0].id.key.step, 1);
}

#[test]
fn a_claim_that_ended_with_a_write_that_was_told_as_failed_is_over() {
    let gated = Gated::new();
    let world = &gated.world;
    let (mut worker, token) = report_though_told_as_failed(&gated);
    assert_eq!(worker.report(&token, ok()), ReportStatus::Duplicate, "it is on disk");
    world.pass(BEYOND_GRACE_MS);
    let second = worker.take();
    assert_eq!(second.id.key.step, 1);
    assert_eq!(worker.report(&second.token, ok()), ReportStatus::Accepted);
    assert!(world.task(second.id.task).is_ended());
}

#[test]
fn what_changes_nothing_is_decided_again_when_what_it_was_decided_on_was_lost() {
    let gated = Gated::new();
    let Gated { world, gate, faulty } = &gated;
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    world.drive(world.engine.tell(id, Command::Pause { by: None })).unwrap();
    let resume = || world.engine.tell(id, Command::Resume { by: None });
    let committer = Committer::new(world.engine.clone());
    gate.close();
    let (mut lost, mut late) = (pin!(resume()), pin!(resume()));
    assert!(poll(lost.as_mut()).is_pending());
    let mut losing = pin!(committer.run_once(|| world.now()));
    assert!(poll(losing.as_mut()).is_pending(), "its write waits");
    // The task goes on already, as far as anybody knows.
    assert!(poll(late.as_mut()).is_pending());
    faulty.hold_next(Verb::Commit);
    let mut committing = pin!(committer.run_once(|| world.now()));
    assert!(poll(committing.as_mut()).is_pending(), "it is decided");
    gate.fail();
    ready(losing);
    assert!(ready(lost).is_err());
    gated.read_anew();
    faulty.let_go();
    ready(committing);
    assert_eq!(ready(late).unwrap().task.state.pause, Pause::None);
    assert_eq!(world.task(id).state.pause, Pause::None, "what was said is so");
}

#[test]
fn a_task_is_shown_as_it_is_on_disk_though_it_was_read_before_a_write_failed() {
    let gated = Gated::new();
    let Gated { world, gate, faulty } = &gated;
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    gate.close();
    let mut lost = pin!(world.engine.tell(id, Command::Pause { by: None }));
    assert!(poll(lost.as_mut()).is_pending());
    let committer = Committer::new(world.engine.clone());
    let mut losing = pin!(committer.run_once(|| world.now()));
    assert!(poll(losing.as_mut()).is_pending(), "its write waits");
    faulty.hold_next(Verb::Commit);
    let mut asking = pin!(world.engine.task(id));
    assert!(poll(asking.as_mut()).is_pending(), "it was read, and what is on its way is waited for");
    gate.fail();
    ready(losing);
    assert!(ready(lost).is_err());
    gated.read_anew();
    faulty.let_go();
    assert_eq!(ready(asking).unwrap().task.state.pause, Pause::None);
}

#[test]
fn a_claim_whose_answer_was_lost_reaches_the_next_poll() {
    let faulty = FaultyStore::new(Arc::new(SharedStore::new([7; 32])));
    let world = World::over(faulty.clone(), 1);
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    faulty.fail(Some(Verb::Claim));
    let call = worker.call(0);
    assert!(world.drive(world.engine.exchange(call, world.now())).is_err());
    faulty.fail(None);
    assert_eq!(world.status(id), "Running: Running", "the claim was done");
    let attempt = worker.poll().attempts.pop().expect("it is given at once");
    assert_eq!((attempt.id.task, attempt.id.attempt), (id, 1));
    assert_eq!(world.task(id).state.steps[0].forward.deaths, 0);
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
}

#[test]
fn a_claim_whose_answer_was_lost_is_not_given_after_its_task_was_paused() {
    for (names, elsewhere) in [(true, false), (false, false), (true, true), (false, true)] {
        a_lost_claim_waits_for_the_resume(names, elsewhere);
    }
}

/// `names`: the worker names what it has, so that the claim is released after some time. `elsewhere`: another server pauses and
/// resumes the task.
fn a_lost_claim_waits_for_the_resume(names: bool, elsewhere: bool) {
    let store = Arc::new(SharedStore::new([7; 32]));
    let faulty = FaultyStore::new(store.clone());
    let (world, other) = (World::over(faulty.clone(), 1), World::over(store, 2));
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let tell = |command| {
        let at = if elsewhere { &other } else { &world };
        at.drive(at.engine.tell(id, command)).unwrap();
    };
    let mut worker = world.worker(1);
    let mut poll = || {
        let call = worker.call(0);
        let holding = call.holding.clone().filter(|_| names);
        world.drive(world.engine.exchange(Exchange { holding, ..call }, world.now()))
    };
    faulty.fail(Some(Verb::Claim));
    assert!(poll().is_err());
    faulty.fail(None);
    tell(Command::Pause { by: None });
    for _ in 0..30 {
        assert!(poll().unwrap().attempts.is_empty(), "nothing of a paused task is handed out");
        world.be_heard();
        world.pass(500);
        other.pass(500);
    }
    assert_eq!(world.status(id), if names { "Paused: Ready" } else { "Pausing: Running" });
    tell(Command::Resume { by: None });
    world.serve();
    let attempt = poll().unwrap().attempts.pop().expect("it may start again");
    assert_eq!((attempt.id.attempt, world.task(id).state.steps[0].forward.deaths), (1, 0));
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
}

/// This server remembers the task as it was before another one made its second step ready.
#[test]
fn nothing_of_a_damaged_task_is_given_by_what_a_server_remembers_of_it() {
    let store = Arc::new(SharedStore::new([7; 32]));
    let (world, other) =
        (World::over(store.clone(), 1), World::over(Arc::new(SharedStore::clone(&store)), 2));
    let mut flow = flow("f", &["a", "b"], 0);
    flow.steps[1].after.clear();
    flow.steps[1].delay = Some(Millis(1_000));
    world.apply(flow);
    let id = world.submit("f");
    other.be_heard();
    other.pass(5_000);
    assert_eq!(other.status(id), "Pending: Ready Ready");
    store.damage(Row::Task(id));
    let mut worker = world.worker(1);
    assert!(worker.poll().attempts.is_empty());
}

/// Every call hands out to all polls that wait. Its connection may close while the store claims for another worker.
#[test]
fn what_was_claimed_by_a_call_that_went_away_reaches_the_poll_that_it_was_for() {
    let store = Arc::new(SharedStore::new([7; 32]));
    let faulty = FaultyStore::new(store.clone());
    let (world, other) = (World::over(faulty.clone(), 1), World::over(store, 2));
    world.apply(flow("f", &["a"], 0));
    let mut worker = world.worker(1);
    let mut waits = pin!(worker.open_poll(10_000));
    assert!(world.turn(waits.as_mut()).is_pending());
    let id = other.submit("f");
    faulty.hold_next(Verb::Claim);
    {
        let mut calls = pin!(world.worker(2).open_poll(10_000));
        assert!(world.turn(calls.as_mut()).is_pending(), "the store claims");
        assert_eq!(world.status(id), "Running: Running");
    }
    world.serve();
    let Poll::Ready(answer) = world.turn(waits.as_mut()) else { panic!("it is given at once") };
    let attempt = answer.unwrap().attempts.pop().expect("it is given at once");
    assert_eq!((attempt.id.task, attempt.id.attempt, attempt.id.claim), (id, 1, 1));
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
}

#[test]
fn what_was_claimed_for_a_session_that_never_heard_of_it_is_handed_out_anew() {
    let faulty = FaultyStore::new(Arc::new(SharedStore::new([7; 32])));
    let world = World::over(faulty.clone(), 1);
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    assert!(worker.poll().attempts.pop().is_some_and(|attempt| attempt.id.task == id));
    let id = world.submit("f");
    // Another server claims for it and cannot give it the attempt any more.
    let claim_request = ClaimRequest { module: Name::new("m").unwrap(), commands: None, free: 1 };
    let claim_requests = [claim_request];
    let claiming = claim(&*faulty.store, worker.session, &claim_requests, world.now());
    assert_eq!(world.drive(claiming).unwrap().len(), 1);
    let mut passed = 0;
    let attempt = loop {
        assert!(passed < 11_000, "it is looked at every five seconds, twice");
        world.pass(500);
        passed += 500;
        if let Some(attempt) = worker.poll().attempts.pop() {
            break attempt;
        }
    };
    assert!(passed > 5_000, "one poll may have been sent before another server gave it");
    assert_eq!((attempt.id.attempt, world.task(id).state.steps[0].forward.deaths), (1, 0));
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
}

#[test]
fn the_lease_of_a_leader_is_not_counted_from_a_write_that_failed() {
    const LEASE: u64 = 4_000;
    let Gated { world, gate, faulty } = Gated::new();
    let uptime = Arc::new(AtomicU64::new(0));
    let time = || Millis(uptime.load(SeqCst));
    let campaign = |number| {
        let leader = Leader { name: "a".into(), id: "host".into(), value: "".into(), lease: Millis(LEASE) };
        Campaign { number, leader, renews: None }
    };
    let janitor = Janitor::new(world.engine.clone(), Retention::default(), {
        let uptime = uptime.clone();
        move || Millis(uptime.load(SeqCst))
    });
    // A candidate is elected, and the janitor sees its lock before that is on disk.
    gate.close();
    let first = campaign(1);
    {
        let mut elected = pin!(world.engine.campaign(&first, &time));
        assert!(poll(elected.as_mut()).is_pending());
        let committer = Committer::new(world.engine.clone());
        let mut commit = pin!(committer.run_once(|| world.now()));
        assert!(poll(commit.as_mut()).is_pending(), "the write waits");
        block_on(janitor.run_once(world.now())).unwrap();
        gate.fail();
        block_on(commit);
        assert!(ready(elected).is_err(), "it is not on disk");
    }
    assert!(block_on(faulty.store.load(&[])).unwrap().is_empty());
    // The next leader gets the same version.
    uptime.store(LEASE, SeqCst);
    let fence = world.drive(world.engine.campaign(&campaign(2), &time)).unwrap().fence;
    assert!(fence.is_some());
    uptime.store(LEASE + 10, SeqCst);
    let other = world.drive(world.engine.campaign(&campaign(3), &time)).unwrap();
    assert_eq!(other.fence, None, "the leader has just been elected");
    uptime.store(2 * LEASE + 10, SeqCst);
    assert!(world.drive(world.engine.campaign(&campaign(3), &time)).unwrap().fence.is_some());
}
