//! A server that is started on what another one left.

use std::{pin::pin, task::Poll};

use windlass_core::{ActKey, Command, EventKind, Flow, Input, Json, Millis, Name};
use windlass_engine::{ReportStatus, Submission};
use windlass_store::memory::MemorySink;

use crate::world::{World, failed, flow, ok};

#[test]
fn after_a_restart_workers_name_what_they_hold_and_nothing_runs_twice() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    drop(world.engine.clone());

    let world = World::open(&sink);
    let mut worker = worker.at(&world);
    let mut stranger = world.worker(2);
    assert!(stranger.poll().attempts.is_empty(), "what was ready waits for the grace");
    assert!(worker.poll().attempts.is_empty());
    world.pass(400);
    assert!(stranger.poll().attempts.is_empty(), "it was adopted");
    assert_eq!(world.status(id), "Running: Running Pending");
    assert_eq!(worker.report(&a.token, ok()), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Running: Succeeded Ready");
}

#[test]
fn after_a_restart_what_nobody_names_is_handed_out_again_under_a_higher_claim() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let old = world.worker(1).take();

    let world = World::open(&sink);
    world.pass(400);
    let mut other = world.worker(2);
    let new = other.take();
    assert_eq!(new.id.attempt, old.id.attempt);
    assert!(new.id.claim > old.id.claim);
    let mut late = world.worker(1);
    assert_eq!(late.report(&old.token, ok()), ReportStatus::Stale);
    assert_eq!(other.report(&new.token, ok()), ReportStatus::Accepted);
}

#[test]
fn a_report_of_an_attempt_that_was_not_handed_out_again_is_accepted_after_a_restart() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let old = world.worker(1).take();
    let world = World::open(&sink);
    assert_eq!(world.worker(1).report(&old.token, ok()), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Succeeded: Succeeded");
}

#[test]
fn a_poll_that_waits_through_the_grace_is_answered_at_its_end() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let world = World::open(&sink);
    let mut worker = world.worker(1);
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.pass(400);
    let Poll::Ready(answer) = world.turn(poll.as_mut()) else { panic!("the poll is answered") };
    assert_eq!(answer.unwrap().attempts.len(), 1);
}

#[test]
fn a_task_that_turned_around_hands_nothing_forward_out_again_after_a_restart() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    world.worker(1).take();
    world.drive(world.engine.tell(id, Command::Cancel { by: None })).unwrap();
    assert_eq!(world.status(id), "RollingBack: Running Pending");

    let world = World::open(&sink);
    world.pass(400);
    let undo = world.worker(2).take();
    assert_eq!(undo.id.key, ActKey::rollback(0), "no worker has the step any more: it is rolled back");
}

/// A flow of one step whose attempts may take 20 s together, with retries.
fn with_deadline() -> Flow {
    let mut flow = flow("f", &["a"], 5);
    flow.steps[0].run.deadline = Some(Millis::from_secs(20));
    flow
}

/// How often the moment at which the first attempt was taken is in the history.
fn kept(world: &World, id: windlass_core::TaskId) -> usize {
    let events = world.drive(world.engine.events(id, 0, 100)).unwrap();
    events.iter().filter(|(_, event)| matches!(event.kind, EventKind::ActTaken { .. })).count()
}

#[test]
fn a_restart_does_not_begin_the_deadline_of_a_running_step_anew() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(with_deadline());
    let id = world.submit("f");
    world.pass(60_000);
    let mut worker = world.worker(1);
    worker.attached = false;
    worker.take();
    world.pass(6_000);
    assert_eq!(world.why(id).reasons[0].deadline_at, Some(world.now().wall + Millis::from_secs(14)));

    let world = World::open(&sink);
    world.be_away_unserved(70_000);
    let mut worker = worker.at(&world);
    worker.poll();
    world.pass(9_000);
    worker.poll();
    assert_eq!(world.status(id), "Running: Running");
    world.pass(1_100);
    assert_eq!(world.status(id), "RollingBack: Running", "20 s after it was taken it is to stop");
    assert_eq!(worker.poll().cancels.len(), 1);
}

#[test]
fn after_a_restart_the_attempts_after_the_first_have_what_is_left_of_the_deadline() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(with_deadline());
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    world.pass(900);
    worker.report(&a.token, failed("no"));

    let world = World::open(&sink);
    world.be_away_unserved(19_800);
    world.serve();
    assert_eq!(world.status(id), "Running: Ready");
    world.pass(300);
    assert_eq!(world.status(id), "RollingBack: RollingBack", "nobody took the second attempt in time");
}

#[test]
fn when_the_first_attempt_was_taken_is_written_down_only_where_a_deadline_counts_and_it_runs_for_a_while() {
    let world = World::new();
    world.apply(with_deadline());
    world.apply(flow("free", &["a"], 0));
    let (id, free) = (world.submit("f"), world.submit("free"));
    let mut worker = world.worker(1);
    worker.attached = false;
    assert_eq!(worker.poll().attempts.len(), 2);
    let before = [world.task(id).state.events, world.task(free).state.events];
    world.pass(4_950);
    assert_eq!([world.task(id).state.events, world.task(free).state.events], before, "no commit so far");
    world.pass(10_000);
    assert_eq!([world.task(id).state.events, world.task(free).state.events], [before[0] + 1, before[1]]);
    assert_eq!(kept(&world, id), 1);
}

#[test]
fn a_restart_keeps_the_deadline_of_a_task() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    let input =
        Input { deadline: Some(Millis::from_secs(60)), ..Input::new(Json::empty(), world.now().wall) };
    let submission = Submission {
        flow: Name::new("f").unwrap(),
        version: None,
        input,
        key: None,
        fingerprint_before: None,
    };
    let id = world.drive(world.engine.submit(submission, world.now())).unwrap().loaded.task.id;

    let world = World::open(&sink);
    world.be_away_unserved(59_000);
    world.serve();
    assert_eq!(world.status(id), "Pending: Ready");
    world.pass(1_100);
    assert_eq!(world.status(id), "RollingBack: RollingBack", "a minute after its start it is rolled back");
}
