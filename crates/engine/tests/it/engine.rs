//! The engine as users and workers meet it, end to end over a resident store in memory.

use std::{pin::pin, task::Poll};

use futures_util::{FutureExt as _, StreamExt as _};
use windlass_core::{AlarmCommand, AlarmState, Command, Failure, Json, Outcome, Rejection};
use windlass_engine::{
    EngineError, Exchange, Notice, ReportStatus, Said, Why, WorkerReport,
    memory::{MemorySink, SharedStore},
    ports::SubmitKey,
};

use crate::world::{World, flow};

fn ok(result: &str) -> Said {
    Said::Ended(Outcome::Succeeded(Some(Json::parse(result).unwrap())))
}

fn failed(message: &str) -> Said {
    Said::Ended(Outcome::Failed(Failure::new(message, 1, true)))
}

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
    assert_eq!(worker.report(&a.token, ok(r#"{"y":2}"#)), ReportStatus::Accepted);
    let b = worker.take();
    assert_eq!(b.params.as_str(), r#"{"x":1,"y":2}"#);
    assert_eq!(worker.report(&b.token, ok(r#"{"x":3}"#)), ReportStatus::Accepted);
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
    for said in [ok("{}"), failed("no space")] {
        let attempt = worker.take();
        worker.report(&attempt.token, said);
    }
    let undo = worker.take();
    assert_eq!(undo.id.key, windlass_core::ActKey::rollback(1), "the failed step is undone first");
    worker.report(&undo.token, failed("cannot undo"));
    world.serve();
    assert_eq!(world.status(id), "Stuck: Succeeded RollbackFailed");
    let alarms = world.drive(world.engine.alarms(false, 10)).unwrap();
    assert_eq!((alarms.len(), alarms[0].state), (1, AlarmState::Raised));
    assert!(matches!(world.drive(world.engine.why(id, world.now())).unwrap().1, Why::Stuck { .. }));
    world
        .drive(world.engine.tell_alarm(alarms[0].id.clone(), AlarmCommand::Acknowledge { by: None }))
        .unwrap();

    let resolve = Command::Resolve { step: 1, resolution: windlass_core::Resolution::Done(None), by: None };
    world.drive(world.engine.tell(id, resolve)).unwrap();
    let undo = worker.take();
    worker.report(&undo.token, ok("{}"));
    world.serve();
    assert_eq!(world.status(id), "RolledBack: RolledBack RolledBack");
    assert_eq!(world.drive(world.engine.alarms(false, 10)).unwrap(), []);
    assert_eq!(world.drive(world.engine.alarms(true, 10)).unwrap()[0].state, AlarmState::Resolved);
}

#[test]
fn a_retry_waits_for_its_time() {
    let world = World::new();
    world.apply(flow("f", &["a"], 1));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let first = worker.take();
    worker.report(&first.token, failed("try again"));
    assert!(worker.poll().attempts.is_empty());
    assert!(matches!(
        world.drive(world.engine.why(id, world.now())).unwrap().1,
        Why::Retry { attempt: 1, .. }
    ));
    world.pass(1100);
    let second = worker.take();
    assert_eq!(second.id.attempt, 2);
    assert_eq!(worker.report(&first.token, ok("{}")), ReportStatus::Stale, "the first attempt is over");
    assert_eq!(worker.report(&second.token, ok("{}")), ReportStatus::Accepted);
    assert_eq!(worker.report(&second.token, ok("{}")), ReportStatus::Duplicate);
    assert_eq!(world.status(id), "Succeeded: Succeeded");
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
fn an_attached_worker_whose_connection_goes_away_loses_its_attempts_within_a_second() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let lost = worker.take();
    {
        let mut poll = pin!(worker.open_poll(10_000));
        assert!(world.turn(poll.as_mut()).is_pending());
        world.pass(2000);
        assert_eq!(world.status(id), "Running: Running", "an open poll keeps the session");
    }
    world.pass(1200);
    assert_eq!(world.status(id), "Running: Ready");
    let mut other = world.worker(2);
    let again = other.take();
    assert_eq!((again.id.attempt, world.task(id).state.steps[0].forward.deaths), (2, 1));
    assert_eq!(worker.report(&lost.token, ok("{}")), ReportStatus::Stale);
    assert_eq!(other.report(&again.token, ok("{}")), ReportStatus::Accepted);
}

#[test]
fn a_detached_worker_lives_by_its_lease() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.attached = false;
    worker.take();
    world.pass(29_000);
    assert_eq!(world.status(id), "Running: Running");
    world.pass(1500);
    assert_eq!(world.status(id), "Running: Ready");
}

#[test]
fn a_server_that_was_away_gives_every_worker_a_full_new_lease() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.take();
    world.serve();
    world.be_away(60_000);
    assert_eq!(world.status(id), "Running: Running");
    world.pass(9000);
    assert_eq!(world.status(id), "Running: Running");
    world.pass(1500);
    assert_eq!(world.status(id), "Running: Ready");
}

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
    assert_eq!(worker.report(&a.token, ok("{}")), ReportStatus::Accepted);
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
    assert_eq!(late.report(&old.token, ok("{}")), ReportStatus::Stale);
    assert_eq!(other.report(&new.token, ok("{}")), ReportStatus::Accepted);
}

#[test]
fn a_report_of_an_attempt_that_was_not_handed_out_again_is_accepted_after_a_restart() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let old = world.worker(1).take();
    let world = World::open(&sink);
    assert_eq!(world.worker(1).report(&old.token, ok("{}")), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Succeeded: Succeeded");
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
    assert!(matches!(world.drive(world.engine.why(id, world.now())).unwrap().1, Why::Ending { .. }));
    assert_eq!(worker.report(&a.token, ok("{}")), ReportStatus::Accepted, "it made it in time");
    let undo = worker.take();
    worker.report(&undo.token, ok("{}"));
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
    assert!(matches!(world.drive(world.engine.why(id, world.now())).unwrap().1, Why::QueuePaused { .. }));
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
    assert_eq!((again.loaded.task.id, again.repeated), (first.loaded.task.id, true));
    let world = World::open(&sink);
    let again = world.try_submit("f", "{}", key(1)).unwrap();
    assert_eq!((again.loaded.task.id, again.repeated), (first.loaded.task.id, true));
    let other = world.try_submit("f", "{}", key(2));
    assert_eq!(other.unwrap_err(), EngineError::KeyReused { task: first.loaded.task.id });
}

#[test]
fn tokens_that_are_forged_or_garbled_are_unknown_and_change_nothing() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    let mut forged = attempt.token.clone();
    forged.replace_range(4..5, if &forged[4..5] == "A" { "B" } else { "A" });
    for token in [forged.as_str(), "", "garbage"] {
        assert_eq!(worker.report(token, ok("{}")), ReportStatus::Unknown);
    }
    assert_eq!(world.status(id), "Running: Running");
}

#[test]
fn one_malformed_report_does_not_fail_its_neighbours() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let (first, second) = (world.submit("f"), world.submit("f"));
    let mut worker = world.worker(1);
    let attempts = worker.poll().attempts;
    let report = |said, token: &str| WorkerReport { token: token.to_owned(), said, logs: Vec::new() };
    let reports = vec![
        report(Err("no outcome".to_owned()), &attempts[0].token),
        report(Ok(ok("{}")), &attempts[1].token),
    ];
    let call = Exchange { reports, ..worker.call(0) };
    let answer = world.drive(world.engine.exchange(call, world.now())).unwrap();
    assert_eq!(answer.reports[0].status, ReportStatus::Invalid("no outcome".to_owned()));
    assert_eq!(answer.reports[1].status, ReportStatus::Accepted);
    assert_eq!(world.status(first), "Running: Running");
    assert_eq!(world.status(second), "Succeeded: Succeeded");
}

#[test]
fn a_declined_attempt_goes_to_another_worker_and_is_not_counted() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    assert_eq!(worker.report(&attempt.token, Said::Declined), ReportStatus::Accepted);
    let again = world.worker(2).take();
    assert_eq!(again.id.attempt, 1);
    assert!(again.id.claim > attempt.id.claim);
}

#[test]
fn an_attempt_beyond_its_timeout_is_given_up_and_its_worker_told() {
    let world = World::new();
    let mut slow = flow("f", &["a"], 1);
    slow.steps[0].run.timeout = windlass_core::Millis(2000);
    world.apply(slow);
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.attached = false;
    let attempt = worker.take();
    world.pass(1500);
    assert_eq!(world.status(id), "Running: Running");
    world.pass(600);
    assert_eq!(world.status(id), "Running: Ready");
    assert_eq!(worker.poll().cancels, [attempt.token]);
}

#[test]
fn log_lines_are_kept_up_to_their_limit() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    let line = "x".repeat(1023);
    let logs = |count: usize| vec![line.clone(); count];
    let running = |logs| WorkerReport { token: attempt.token.clone(), said: Ok(Said::Running(None)), logs };
    let call = Exchange { reports: vec![running(logs(60))], ..worker.call(0) };
    world.drive(world.engine.exchange(call, world.now())).unwrap();
    let call = Exchange { reports: vec![running(logs(60))], ..worker.call(0) };
    world.drive(world.engine.exchange(call, world.now())).unwrap();
    let kept = world.drive(world.engine.logs(id, 0, 1000)).unwrap();
    assert_eq!(kept.len(), 65);
    assert!(kept[64].line.contains("dropped"));
}

#[test]
fn watchers_hear_what_is_on_disk_in_order() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut notices = world.engine.feed().watch(id);
    let mut worker = world.worker(1);
    let attempt = worker.take();
    worker.report(&attempt.token, ok("{}"));
    let mut heard = Vec::new();
    while let Some(Some(notice)) = notices.next().now_or_never() {
        heard.push(match notice {
            Notice::Event { n, .. } => n.to_string(),
            Notice::Started { .. } => "started".to_owned(),
            Notice::Progressed { .. } => "progressed".to_owned(),
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
    assert_eq!(worker.report(&a.token, ok("{}")), ReportStatus::Accepted);
    let b = worker.take();
    let mut worker = worker.at(&one);
    assert_eq!(worker.report(&b.token, ok("{}")), ReportStatus::Accepted);
    assert_eq!(two.status(id), "Succeeded: Succeeded Succeeded");
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
    assert_eq!(undo.id.key, windlass_core::ActKey::rollback(0), "nobody has the step any more: it is undone");
}

#[test]
fn a_declined_attempt_of_a_task_that_turned_around_is_not_handed_out_again() {
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let a = worker.take();
    world.drive(world.engine.tell(id, Command::Cancel { by: None })).unwrap();
    worker.report(&a.token, Said::Declined);
    world.serve();
    let undo = world.worker(2).take();
    assert_eq!(undo.id.key, windlass_core::ActKey::rollback(0));
}

#[test]
fn an_attempt_that_follows_a_lost_one_goes_before_what_came_later() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let first = world.submit("f");
    let mut worker = world.worker(1);
    worker.attached = false;
    worker.take();
    world.pass(10);
    world.submit("f");
    world.pass(31_000);
    let again = world.worker(2).poll().attempts;
    assert_eq!((again[0].id.task, again[0].id.attempt), (first, 2));
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
fn a_worker_that_waits_as_long_as_its_lease_keeps_what_it_holds() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.attached = false;
    worker.take();
    let mut poll = pin!(worker.open_poll(30_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.pass(15_050);
    assert!(world.turn(poll.as_mut()).is_ready(), "it ends well before the lease");
    let mut poll = pin!(worker.open_poll(30_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.pass(15_050);
    assert_eq!(world.task(id).state.steps[0].forward.deaths, 0);
}
