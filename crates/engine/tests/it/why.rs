//! Why a task does not move: in every state it can be in the answer names what holds it, and it moves once that is
//! gone.

use windlass_core::{
    Actor, Command, Doer, Each, Expression, Failure, Flow, Input, Json, LockRef, Millis, Name, OnFailure,
    Outcome, Resolution, Retry, StepDefinition, StuckKind, TaskId,
};
use windlass_engine::{Exchange, Explanation, HeldBy, Progress, REASONS_MAX, Said, Submission, Why};
use windlass_store::{ClaimRequest, memory::MemorySink};

use crate::world::{WorkerInWorld, World, failed, flow, ok};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn ops() -> Option<Actor> {
    Some(Actor { name: "ops".into(), claimed: true })
}

fn tell(world: &World, id: TaskId, command: Command) {
    world.drive(world.engine.tell(id, command)).unwrap();
    world.serve();
}

fn set_paused(world: &World, paused: bool) {
    world.drive(world.engine.set_queue_paused(name("m"), paused, ops(), world.now())).unwrap();
    world.serve();
}

fn one_step(change: impl FnOnce(&mut StepDefinition)) -> Flow {
    let mut flow = flow("f", &["a"], 0);
    change(&mut flow.steps[0]);
    flow
}

fn start(world: &World, flow: Flow) -> TaskId {
    start_with(world, flow, "{}")
}

fn start_with(world: &World, flow: Flow, params: &str) -> TaskId {
    flow.check().unwrap();
    let name = flow.name.to_string();
    world.apply(flow);
    world.try_submit(&name, params, None).unwrap().loaded.task.id
}

/// A worker that is connected and takes nothing for now.
fn full_worker(world: &World, session: u128) -> WorkerInWorld<'_> {
    let mut worker = world.worker(session);
    let call = worker.call(0);
    let claim_requests = Some(vec![ClaimRequest { module: name("m"), commands: None, free: 0 }]);
    world.drive(world.engine.exchange(Exchange { claim_requests, ..call }, world.now())).unwrap();
    worker
}

/// What became of the task so far, with what workers have of it.
fn place(world: &World, id: TaskId) -> String {
    let loaded = world.drive(world.engine.task(id)).unwrap();
    let claims: Vec<_> = loaded.claims.iter().map(|claim| (claim.key, claim.number)).collect();
    format!("{} {claims:?}", loaded.task.state.events)
}

/// A task that waits, and what ends the wait.
type Waiting<'a> = (TaskId, Box<dyn FnOnce() + 'a>);

/// The word of the reason, how a task comes to have it, and how it loses it.
type Story = (&'static str, for<'a> fn(&'a World) -> Waiting<'a>);

const STORIES: &[Story] = &[
    ("no_worker", |world| {
        let id = start(world, flow("f", &["a"], 0));
        (id, Box::new(move || drop(world.worker(1).take())))
    }),
    ("queue_paused", |world| {
        let id = start(world, flow("f", &["a"], 0));
        set_paused(world, true);
        let mut worker = world.worker(1);
        assert!(worker.poll().attempts.is_empty());
        (
            id,
            Box::new(move || {
                set_paused(world, false);
                worker.take();
            }),
        )
    }),
    ("queued", |world| {
        let id = start(world, flow("f", &["a"], 0));
        let mut worker = full_worker(world, 1);
        (id, Box::new(move || drop(worker.take())))
    }),
    ("running", |world| {
        let id = start(world, flow("f", &["a"], 0));
        let mut worker = world.worker(1);
        let a = worker.take();
        (id, Box::new(move || drop(worker.report(&a.token, ok()))))
    }),
    ("retry", |world| {
        let id = start(world, flow("f", &["a"], 1));
        let mut worker = world.worker(1);
        let a = worker.take();
        worker.report(&a.token, failed("no"));
        (id, Box::new(move || world.pass(1500)))
    }),
    ("postponed", |world| {
        let id = start(world, flow("f", &["a"], 1));
        let mut worker = world.worker(1);
        let a = worker.take();
        let outcome = Outcome::RetryLater { delay: Some(Millis(2000)), message: "busy".into() };
        worker.report(&a.token, Said::Ended(outcome));
        (id, Box::new(move || world.pass(2500)))
    }),
    ("deadline", |world| {
        let id = start(world, one_step(|step| step.run.deadline = Some(Millis(1000))));
        let mut worker = world.worker(1);
        let a = worker.take();
        let outcome = Outcome::RetryLater { delay: Some(Millis(5000)), message: "busy".into() };
        worker.report(&a.token, Said::Ended(outcome));
        (id, Box::new(move || world.pass(1500)))
    }),
    ("delayed", |world| {
        let id = start(world, one_step(|step| step.delay = Some(Millis(1000))));
        (id, Box::new(move || world.pass(1500)))
    }),
    ("signal", |world| {
        let id = start(
            world,
            one_step(|step| {
                step.run.doer = Doer::Signal { name: name("go") };
                step.run.retry = Retry::default();
                step.rollback = None;
            }),
        );
        let signal = Command::Signal { name: name("go"), params: None, keep: false, by: None };
        (id, Box::new(move || tell(world, id, signal)))
    }),
    ("scheduled", |world| {
        world.apply(flow("f", &["a"], 0));
        let now = world.now().wall;
        let input = Input { at: Some(now + Millis(1000)), ..Input::new(Json::empty(), now) };
        let submission =
            Submission { flow: name("f"), version: None, input, key: None, fingerprint_before: None };
        let id = world.drive(world.engine.submit(submission, world.now())).unwrap().loaded.task.id;
        (id, Box::new(move || world.pass(1500)))
    }),
    ("task_paused", |world| {
        let id = start(world, flow("f", &["a"], 0));
        tell(world, id, Command::Pause { by: ops() });
        (id, Box::new(move || tell(world, id, Command::Resume { by: None })))
    }),
    ("stuck", |world| {
        let id = start(world, Flow { on_failure: OnFailure::Hold, ..flow("f", &["a"], 0) });
        let mut worker = world.worker(1);
        let a = worker.take();
        worker.report(&a.token, failed("no"));
        let resolution = Resolution::Retry(None);
        (id, Box::new(move || tell(world, id, Command::Resolve { step: 0, resolution, by: None })))
    }),
    ("stuck", |world| {
        let id = start(world, flow("f", &["a"], 0));
        tell(world, id, Command::Hold { message: "a count is off".into() });
        (id, Box::new(move || tell(world, id, Command::Resume { by: None })))
    }),
    ("ending", |world| {
        let id = start(world, flow("f", &["a"], 0));
        let mut worker = world.worker(1);
        let a = worker.take();
        tell(world, id, Command::Cancel { by: None });
        (id, Box::new(move || drop(worker.report(&a.token, failed("stopped")))))
    }),
    ("members", |world| {
        let mut worker = world.worker(1);
        let id = start_with(world, fanned("f", 10), &list(30));
        let members = worker.poll().attempts;
        (id, Box::new(move || drop(worker.report(&members[0].token, ok()))))
    }),
];

fn fanned(flow: &str, parallel: u32) -> Flow {
    let mut flow = Flow { name: name(flow), ..one_step(|_| {}) };
    flow.steps[0].each = Some(Each { list: "items".into(), parallel });
    flow
}

fn list(length: usize) -> String {
    format!("{{\"items\":{:?}}}", (0..length).collect::<Vec<_>>())
}

#[test]
fn in_every_state_the_cause_is_named_and_the_task_moves_once_it_is_gone() {
    for (word, story) in STORIES {
        let world = World::new();
        let (id, remedy) = story(&world);
        let explanation = world.why(id);
        assert_eq!(explanation.first().as_str(), *word, "{explanation:?}");
        let before = place(&world, id);
        world.serve();
        assert_eq!(place(&world, id), before, "{word}: it waits by itself as well");
        remedy();
        assert_ne!(place(&world, id), before, "{word}: the task moves once the cause is gone");
        assert_ne!(world.why(id), explanation, "{word}: and what was said is true no more");
    }
}

#[test]
fn an_ended_task_says_how_it_ended() {
    let world = World::new();
    let id = start(&world, flow("f", &["a"], 0));
    let mut worker = world.worker(1);
    let a = worker.take();
    worker.report(&a.token, ok());
    assert_eq!(world.why(id).first(), &Why::Ended(windlass_core::TaskStatus::Succeeded));
}

#[test]
fn who_paused_it_and_when_is_in_the_history() {
    let world = World::new();
    let id = start(&world, flow("f", &["a", "b"], 0));
    let mut worker = world.worker(1);
    let a = worker.take();
    world.pass(1000);
    let since = Some(world.now().wall);
    tell(&world, id, Command::Pause { by: ops() });
    assert_eq!(world.why(id).first(), &Why::Paused { in_flight: 1, since, by: ops() });
    assert_eq!(world.why(id).reasons[1].why.as_str(), "running", "what is in flight is named as well");
    worker.report(&a.token, ok());
    assert_eq!(world.why(id).first(), &Why::Paused { in_flight: 0, since, by: ops() });
}

#[test]
fn the_last_worker_of_a_module_is_named_long_after_it_went() {
    let world = World::new();
    let id = start(&world, flow("f", &["a"], 0));
    let since_start = |world: &World| match world.why(id).first() {
        Why::NoWorker { since_start, last: None, others: 0, without_command: 0, .. } => *since_start,
        other => panic!("{other:?}"),
    };
    world.serve();
    assert_eq!(since_start(&world), Some(world.now().wall), "since this server started none was there");

    let worker = full_worker(&world, 1);
    let heard = world.now().wall;
    for away_ms in [60_000, 3 * 3_600_000] {
        drop(worker.at(&world));
        world.be_away(away_ms);
        world.pass(12_000);
        match world.why(id).first() {
            Why::NoWorker { last: Some(last), since_start: None, .. } => {
                assert_eq!((&*last.worker, last.at), ("w", heard));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_worker_without_the_command_and_one_of_another_module_are_told_apart() {
    let world = World::new();
    let id = start(&world, flow("f", &["a"], 0));
    let connect = |session: u128, claim_request: ClaimRequest| {
        let call = world.worker(session).call(0);
        let call = Exchange { claim_requests: Some(vec![claim_request]), ..call };
        world.drive(world.engine.exchange(call, world.now())).unwrap();
    };
    connect(1, ClaimRequest { module: name("m"), commands: Some(vec![name("b")]), free: 1 });
    connect(2, ClaimRequest { module: name("other"), commands: None, free: 1 });
    match world.why(id).first() {
        Why::NoWorker { without_command: 1, others: 1, .. } => {}
        other => panic!("{other:?}"),
    }
    // A worker that stops serving a module, in the same session, is the last one of it.
    let seen = world.now().wall;
    let mut worker = full_worker(&world, 3);
    world.pass(500);
    let call = worker.call(0);
    let claim_requests = Some(vec![ClaimRequest { module: name("other"), commands: None, free: 1 }]);
    world.drive(world.engine.exchange(Exchange { claim_requests, ..call }, world.now())).unwrap();
    match world.why(id).first() {
        Why::NoWorker { last: Some(last), others: 2, .. } => assert!(last.at >= seen),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_place_in_the_queue_comes_with_an_estimate_once_the_queue_goes() {
    let world = World::new();
    let mut worker = full_worker(&world, 1);
    world.apply(flow("f", &["a"], 0));
    for _ in 0..20 {
        world.submit("f");
    }
    let last = world.submit("f");
    let queued = |world: &World| match world.why(last).first() {
        Why::Queued { before, workers: 1, estimate, .. } => (*before, *estimate),
        other => panic!("{other:?}"),
    };
    assert_eq!(queued(&world), (20, None), "nothing was handed out yet");
    for _ in 0..10 {
        let call = worker.call(0);
        let claim_requests = Some(vec![ClaimRequest { module: name("m"), commands: None, free: 1 }]);
        let answer =
            world.drive(world.engine.exchange(Exchange { claim_requests, ..call }, world.now())).unwrap();
        assert_eq!(answer.attempts.len(), 1);
        worker.holding.push(answer.attempts[0].token.clone());
        world.pass(1000);
    }
    // One each second, and it is the eleventh.
    assert_eq!(queued(&world), (10, Some(Millis(11_000))));
}

#[test]
fn after_a_restart_a_missing_worker_is_the_cause_and_not_the_grace() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    let id = start(&world, flow("f", &["a"], 0));
    world.worker(1).take();
    let world = World::open(&sink);
    assert_eq!(world.why(id).first().as_str(), "no_worker");
    let mut other = world.worker(2);
    assert!(other.poll().attempts.is_empty(), "the worker that has it may still name it");
    assert_eq!(world.why(id).first(), &Why::Grace);
    world.pass(400);
    other.take();
    assert_eq!(world.why(id).first().as_str(), "running");
}

#[test]
fn a_running_attempt_tells_its_worker_its_progress_and_its_time() {
    let world = World::new();
    let id = start(&world, flow("f", &["a"], 0));
    let mut worker = world.worker(1);
    let since = world.now().wall;
    let a = worker.take();
    world.pass(200);
    let progress = Progress { value: Some(0.5), message: Some("half".into()) };
    worker.report(&a.token, Said::Running(Some(progress.clone())));
    match world.why(id).first() {
        Why::Running(at) => {
            assert_eq!((at.attempt, &*at.worker, at.since), (1, "w", since));
            assert_eq!(at.progress.as_ref(), Some(&progress));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_retry_tells_how_many_there_are_and_why() {
    let world = World::new();
    let id = start(&world, flow("f", &["a"], 5));
    let mut worker = world.worker(1);
    for round in 1..=2 {
        let a = worker.take();
        worker.report(&a.token, failed(&format!("no {round}")));
        if round == 1 {
            world.pass(1500);
        }
    }
    match world.why(id).first() {
        Why::Retry { attempt: 2, failures: 2, retries: 5, message, .. } => {
            assert_eq!(message.as_deref(), Some("no 2"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_poisoned_step_and_a_failed_undo_wait_for_a_person() {
    let world = World::new();
    let id = start(&world, flow("f", &["a"], 0));
    for session in 1..=3 {
        world.worker(session).take();
        world.pass(15_000);
    }
    assert!(
        matches!(world.why(id).first(), Why::Stuck { kind: StuckKind::Poisoned, .. }),
        "{:?}",
        world.why(id)
    );

    let world = World::new();
    let id = start(&world, flow("f", &["a"], 0));
    let mut worker = world.worker(1);
    for _ in 0..2 {
        let attempt = worker.take();
        let failure = Failure::new("no", 1, false);
        worker.report(&attempt.token, Said::Ended(Outcome::Failed(failure)));
    }
    assert!(matches!(world.why(id).first(), Why::Stuck { kind: StuckKind::RollbackFailed, .. }));
    assert_eq!(world.why(id).reasons[0].key, Some(windlass_core::ActKey::rollback(0)));
}

#[test]
fn a_lock_is_named_with_the_step_that_has_it() {
    let world = World::new();
    let mut locked = flow("f", &["a"], 0);
    locked.steps[0].locks = vec![LockRef::Name(name("disk"))];
    let first = start(&world, locked);
    world.serve();
    let since = world.now().wall;
    let mut worker = world.worker(1);
    let attempt = worker.take();
    world.pass(100);
    let (second, third) = (world.submit("f"), world.submit("f"));
    world.serve();
    let place = |id: TaskId| match world.why(id).first() {
        Why::Lock { name: lock, holder: Some(holder), before, .. } => {
            let step = Some(name("a"));
            let key = windlass_core::ActKey::forward(0);
            assert_eq!((lock, holder), (&name("disk"), &HeldBy { task: first, step, key, since }));
            *before
        }
        other => panic!("{other:?}"),
    };
    assert_eq!((place(second), place(third)), (0, 1));
    worker.report(&attempt.token, ok());
    world.serve();
    assert_eq!(world.why(second).first().as_str(), "queued", "the lock is its own now");
    worker.take();
}

/// Steps that all begin at once.
fn branches(count: usize) -> Flow {
    let names: Vec<String> = (0..count).map(|index| format!("s{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut flow = flow("f", &names, 0);
    flow.steps.iter_mut().for_each(|step| step.after.clear());
    flow
}

fn words(explanation: &Explanation) -> Vec<&'static str> {
    explanation.reasons.iter().map(|reason| reason.why.as_str()).collect()
}

#[test]
fn each_branch_has_its_reason_in_definition_order() {
    let mut flow = branches(3);
    flow.on_failure = OnFailure::Hold;
    flow.steps[0].delay = Some(Millis(60_000));
    let world = World::new();
    let id = start(&world, flow);
    let mut worker = world.worker(1);
    let attempts = worker.poll().attempts;
    worker.report(&attempts[0].token, failed("no"));
    assert_eq!(words(&world.why(id)), ["delayed", "stuck", "running"], "a held branch holds only itself");
    worker.report(&attempts[1].token, ok());
    world.pass(61_000);
    let attempt = worker.take();
    worker.report(&attempt.token, ok());
    assert_eq!(words(&world.why(id)), ["stuck"]);
}

#[test]
fn no_more_reasons_are_told_than_anybody_reads() {
    let world = World::new();
    let id = start(&world, branches(30));
    let explanation = world.why(id);
    assert_eq!((explanation.reasons.len(), explanation.more), (REASONS_MAX, 10));
}

#[test]
fn members_are_counted_and_the_first_that_waits_is_named() {
    let world = World::new();
    let id = start_with(&world, fanned("f", 20), &list(100));
    let mut worker = world.worker(1);
    let attempts = worker.poll().attempts;
    assert_eq!(attempts.len(), 10);
    for attempt in &attempts[..4] {
        worker.report(&attempt.token, ok());
    }
    match world.why(id).first() {
        Why::Members { total: 100, done: 4, failed: 0, under_way: 20, first: Some(first) } => {
            assert_eq!(first.key.unwrap().index(), Some(10), "those before it are done or with the worker");
            assert_eq!(first.why.as_str(), "queued");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_condition_that_passes_over_a_step_leaves_nothing_to_wait_for() {
    let world = World::new();
    let mut flow = flow("f", &["a", "b"], 0);
    flow.steps[0].when = Some(Expression::compile("params.go == true").unwrap());
    let id = start_with(&world, flow, "{\"go\":false}");
    let explanation = world.why(id);
    assert_eq!(explanation.reasons[0].key.map(|key| key.step), Some(1));
    assert_eq!(words(&explanation), ["no_worker"]);
}
