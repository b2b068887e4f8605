//! The engine as users and workers meet it, end to end over a resident store in memory.

use std::{pin::pin, sync::Arc, task::Poll};

use futures_util::{FutureExt as _, StreamExt as _};
use windlass_core::{
    AlarmCommand, AlarmState, Command, During, Expression, Flow, Input, Json, Name, OnConflict, Rejection,
    Unique,
};
use windlass_engine::{EngineError, Existing, Notice, ReportStatus, Submission, Why};
use windlass_store::{
    StoreError, SubmitKey,
    memory::{MemorySink, SharedStore},
};

use crate::faulty_store::{FaultyStore, Verb};
use crate::world::{World, failed, flow, ok, ok_with};

#[test]
fn a_line_runs_step_by_step_and_results_reach_later_steps() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.try_submit("f", r#"{"x":1}"#, None).unwrap().loaded.task.id;
    assert_eq!(world.status(id), "Pending: Ready Pending");
    let mut worker = world.worker(1);
    let a = worker.take();
    assert_eq!(world.status(id), "Running: Running Pending");
    assert_eq!(a.params.as_str(), r#"{"x":1}"#);
    assert_eq!(worker.report(&a.token, ok_with(r#"{"y":2}"#)), ReportStatus::Accepted);
    let b = worker.take();
    assert_eq!(b.params.as_str(), r#"{"x":1,"y":2}"#);
    assert_eq!(worker.report(&b.token, ok_with(r#"{"x":3}"#)), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Succeeded: Succeeded Succeeded");
    assert_eq!(world.task(id).outcome().as_str(), r#"{"x":3,"y":2}"#);
    let history = world.drive(world.engine.events(id, 0, 100)).unwrap();
    let numbers: Vec<u64> = history.iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, (1..=world.task(id).state.events).collect::<Vec<_>>());
}

#[test]
fn a_failure_is_rolled_back_in_reverse_and_a_failed_undo_raises_an_alarm() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    for said in [ok(), failed("no space")] {
        let attempt = worker.take();
        worker.report(&attempt.token, said);
    }
    let undo = worker.take();
    assert_eq!(undo.id.key, windlass_core::ActKey::rollback(1), "the failed step is rolled back first");
    worker.report(&undo.token, failed("cannot roll back"));
    world.serve();
    assert_eq!(world.status(id), "Stuck: Succeeded RollbackFailed");
    let alarms = world.drive(world.engine.alarms(false, 10)).unwrap();
    assert_eq!((alarms.len(), alarms[0].state), (1, AlarmState::Raised));
    assert!(matches!(world.why(id).first(), Why::Stuck { .. }));
    world
        .drive(world.engine.tell_alarm(alarms[0].id.clone(), AlarmCommand::Acknowledge { by: None }))
        .unwrap();

    let resolve = Command::Resolve { step: 1, resolution: windlass_core::Resolution::Done(None), by: None };
    world.drive(world.engine.tell(id, resolve)).unwrap();
    let undo = worker.take();
    worker.report(&undo.token, ok());
    world.serve();
    assert_eq!(world.status(id), "RolledBack: RolledBack RolledBack");
    assert_eq!(world.drive(world.engine.alarms(false, 10)).unwrap(), []);
    assert_eq!(world.drive(world.engine.alarms(true, 10)).unwrap()[0].state, AlarmState::Resolved);
}

#[test]
fn a_poll_that_waits_is_answered_when_work_comes() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let mut worker = world.worker(1);
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.submit("f");
    let Poll::Ready(answer) = world.turn(poll.as_mut()) else { panic!("the poll is answered") };
    assert_eq!(answer.unwrap().attempts.len(), 1);
}

#[test]
fn a_poll_ends_when_its_time_is_over() {
    let world = World::new();
    let mut worker = world.worker(1);
    let mut poll = pin!(worker.open_poll(3000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.pass(3050);
    let Poll::Ready(answer) = world.turn(poll.as_mut()) else { panic!("the poll is answered") };
    assert!(answer.unwrap().attempts.is_empty());
}

#[test]
fn an_answer_that_did_not_arrive_is_given_again_under_the_same_token() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    let first = worker.take();
    worker.holding.clear();
    let again = worker.take();
    assert_eq!(again.token, first.token);
    assert!(worker.poll().attempts.is_empty(), "it has it now");
}

#[test]
fn a_cancel_reaches_the_worker_and_waits_for_its_end() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.drive(world.engine.tell(id, Command::Cancel { by: None })).unwrap();
    let Poll::Ready(answer) = world.turn(poll.as_mut()) else { panic!("a cancel ends the poll") };
    assert_eq!(answer.unwrap().cancels, std::slice::from_ref(&a.token));
    assert_eq!(world.status(id), "RollingBack: Running Pending");
    assert!(matches!(world.why(id).first(), Why::Ending { .. }));
    assert_eq!(worker.report(&a.token, ok()), ReportStatus::Accepted, "it made it in time");
    let undo = worker.take();
    worker.report(&undo.token, ok());
    assert_eq!(world.status(id), "Cancelled: RolledBack Pending");
    let told = world.drive(world.engine.tell(id, Command::Cancel { by: None }));
    assert_eq!(told.unwrap_err(), EngineError::Rejected(Rejection::Ended));
}

#[test]
fn a_paused_task_starts_nothing_and_a_paused_queue_hands_out_nothing() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    world.drive(world.engine.tell(id, Command::Pause { by: None })).unwrap();
    assert!(worker.poll().attempts.is_empty());
    world.drive(world.engine.tell(id, Command::Resume { by: None })).unwrap();
    let queue = windlass_core::Name::new("m").unwrap();
    world.drive(world.engine.set_queue_paused(queue.clone(), true, None, world.now())).unwrap();
    assert!(worker.poll().attempts.is_empty());
    assert!(matches!(world.why(id).first(), Why::QueuePaused { .. }));
    world.drive(world.engine.set_queue_paused(queue, false, None, world.now())).unwrap();
    worker.take();
}

#[test]
fn a_key_gives_the_same_task_and_is_refused_for_another_body() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    let key = |fingerprint: u8| Some(SubmitKey { scope: [1; 32], fingerprint: [fingerprint; 32] });
    let first = world.try_submit("f", "{}", key(1)).unwrap();
    let again = world.try_submit("f", "{}", key(1)).unwrap();
    assert_eq!(
        (again.loaded.task.id, again.existing),
        (first.loaded.task.id, Some(Existing::IdempotencyKey))
    );
    let world = World::open(&sink);
    let again = world.try_submit("f", "{}", key(1)).unwrap();
    assert_eq!(
        (again.loaded.task.id, again.existing),
        (first.loaded.task.id, Some(Existing::IdempotencyKey))
    );
    let other = world.try_submit("f", "{}", key(2));
    assert_eq!(other.unwrap_err(), EngineError::KeyReused { task: first.loaded.task.id });
}

#[test]
fn a_key_whose_answer_was_lost_names_the_task_that_stood_for_it() {
    let world = World::new();
    let unique = Unique {
        key: Expression::compile("name").unwrap(),
        during: During::Running,
        on_conflict: OnConflict::Return,
    };
    world.apply(Flow { unique: Some(unique), ..flow("f", &["a"], 0) });
    let submit = |scope: u8, fingerprint: u8| {
        let key = SubmitKey { scope: [scope; 32], fingerprint: [fingerprint; 32] };
        world.try_submit("f", r#"{"name": "x"}"#, Some(key))
    };
    let id = |scope: u8, fingerprint: u8| submit(scope, fingerprint).unwrap().loaded.task.id;
    let first = id(1, 1);
    assert_eq!(id(2, 1), first, "an identical one is the same task");
    world.drive(world.engine.tell(first, Command::Cancel { by: None })).unwrap();
    assert_eq!(id(2, 1), first, "also when the same submit comes again after its end");
    assert_eq!(submit(2, 2).unwrap_err(), EngineError::KeyReused { task: first });
    let second = id(3, 1);
    assert_ne!(second, first, "another submit is another task");
    assert_eq!((id(1, 1), id(2, 1), id(3, 1)), (first, first, second));
}

#[test]
fn what_was_accepted_is_told_though_the_key_of_another_one_cannot_be_kept() {
    let faulty = FaultyStore::new(Arc::new(SharedStore::new([7; 32])));
    let world = World::over(faulty.clone(), 1);
    let unique = Unique {
        key: Expression::compile("name").unwrap(),
        during: During::Running,
        on_conflict: OnConflict::Return,
    };
    world.apply(Flow { unique: Some(unique), ..flow("f", &["a"], 0) });
    let first = world.try_submit("f", r#"{"name": "x"}"#, None).unwrap().loaded.task.id;
    let submission = |name: &str, scope: u8| {
        let params = Json::parse(&format!(r#"{{"name": "{name}"}}"#)).unwrap();
        let key = Some(SubmitKey { scope: [scope; 32], fingerprint: [1; 32] });
        Submission {
            flow: Name::new("f").unwrap(),
            version: None,
            input: Input::new(params, world.now().wall),
            key,
            fingerprint_before: None,
        }
    };
    let submit = || world.engine.submit_all(vec![submission("y", 1), submission("x", 2)], world.now());
    let mut submitting = pin!(submit());
    assert!(world.turn(submitting.as_mut()).is_pending(), "they are decided");
    faulty.fail(Some(Verb::Commit));
    let results = world.drive(submitting).unwrap();
    faulty.fail(None);
    let accepted = results[0].as_ref().unwrap().loaded.task.id;
    assert!(matches!(results[1], Err(EngineError::Store(StoreError::Unavailable(_)))), "{:?}", results[1]);
    let again = world.drive(submit()).unwrap();
    let again: Vec<_> = again.into_iter().map(|accepted| accepted.unwrap().loaded.task.id).collect();
    assert_eq!(again, [accepted, first]);
}

#[test]
fn watchers_hear_what_is_on_disk_in_order() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut notices = world.engine.feed().watch(id);
    let mut worker = world.worker(1);
    let attempt = worker.take();
    worker.report(&attempt.token, ok());
    let mut heard = Vec::new();
    while let Some(Some(notice)) = notices.next().now_or_never() {
        heard.push(match notice {
            Notice::Event { n, .. } => n.to_string(),
            Notice::Started { .. } => "started".to_owned(),
            Notice::Progressed { .. } => "progressed".to_owned(),
            Notice::Logged { .. } => "logged".to_owned(),
        });
    }
    assert_eq!(heard, ["started", "3", "4", "5"]);
}

#[test]
fn two_engines_share_a_store_without_state_of_their_own() {
    let store = SharedStore::new([7; 32]);
    let (one, two) =
        (World::over(std::sync::Arc::new(store.clone()), 1), World::over(std::sync::Arc::new(store), 2));
    one.apply(flow("f", &["a", "b"], 0));
    let id = two.submit("f");
    let mut worker = one.worker(1);
    let a = worker.take();
    let mut worker = worker.at(&two);
    assert_eq!(worker.report(&a.token, ok()), ReportStatus::Accepted);
    let b = worker.take();
    let mut worker = worker.at(&one);
    assert_eq!(worker.report(&b.token, ok()), ReportStatus::Accepted);
    assert_eq!(two.status(id), "Succeeded: Succeeded Succeeded");
}
