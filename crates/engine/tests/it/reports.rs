//! What workers say of attempts, and what they are answered.

use windlass_core::{ActState, Command, DEATHS_MAX, Millis, Outcome, TaskId};
use windlass_engine::{Exchange, HandedOut, ReportStatus, Said, Why, WorkerReport};

use crate::world::{WorkerInWorld, World, failed, flow, ok};

/// A worker asks to be given it again later.
fn later(message: &str) -> Said {
    Said::Ended(Outcome::RetryLater { delay: None, message: message.into() })
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
    assert!(matches!(world.why(id).first(), Why::Retry { attempt: 1, .. }));
    world.pass(1100);
    let second = worker.take();
    assert_eq!(second.id.attempt, 2);
    assert_eq!(worker.report(&first.token, ok()), ReportStatus::Stale, "the first attempt is over");
    assert_eq!(worker.report(&second.token, ok()), ReportStatus::Accepted);
    assert_eq!(worker.report(&second.token, ok()), ReportStatus::Duplicate);
    assert_eq!(world.status(id), "Succeeded: Succeeded");
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
        assert_eq!(worker.report(token, ok()), ReportStatus::Unknown);
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
    let reports =
        vec![report(Err("no outcome".to_owned()), &attempts[0].token), report(Ok(ok()), &attempts[1].token)];
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
    assert_eq!(worker.report(&attempt.token, Said::Declined), ReportStatus::Stale, "it was returned before");
}

#[test]
fn only_the_worker_that_has_an_attempt_can_decline_it() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let (mut worker, mut other) = (world.worker(1), world.worker(2));
    let attempt = worker.take();
    assert_eq!(other.report(&attempt.token, Said::Declined), ReportStatus::Stale);
    assert!(other.poll().attempts.is_empty());
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Succeeded: Succeeded");
    assert_eq!(worker.report(&attempt.token, Said::Declined), ReportStatus::Stale, "it has ended");
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
    assert!(kept[64].1.line.contains("dropped"));
}

/// A task whose step `a` timed out, and the attempt its worker still has.
fn timed_out(world: &World, retries: u32) -> (TaskId, WorkerInWorld<'_>, HandedOut) {
    let mut slow = flow("f", &["a"], retries);
    slow.steps[0].run.timeout = Millis(2000);
    world.apply(slow);
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.attached = false;
    let attempt = worker.take();
    world.pass(2050);
    assert_eq!(world.task(id).state.steps[0].forward.attempt, 1, "the next attempt has not begun");
    (id, worker, attempt)
}

#[test]
fn what_comes_of_an_attempt_after_its_timeout_is_stale_before_the_next_one_begins() {
    for said in [ok(), failed("too slow"), later("busy"), Said::Running(None)] {
        let world = World::new();
        let (id, mut worker, attempt) = timed_out(&world, 1);
        assert!(matches!(world.task(id).state.steps[0].forward.state, ActState::Delayed { .. }));
        assert_eq!(worker.report(&attempt.token, said.clone()), ReportStatus::Stale, "{said:?}");
    }
}

#[test]
fn what_comes_of_an_attempt_after_its_last_timeout_is_stale() {
    for said in [ok(), failed("too slow"), later("busy"), Said::Running(None)] {
        let world = World::new();
        let (id, mut worker, attempt) = timed_out(&world, 0);
        assert_eq!(world.task(id).state.steps[0].forward.state, ActState::Failed);
        assert_eq!(worker.report(&attempt.token, said.clone()), ReportStatus::Stale, "{said:?}");
    }
}

#[test]
fn what_comes_of_an_attempt_that_was_lost_when_its_step_was_poisoned_is_stale() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut last = None;
    for session in 1..=u128::from(DEATHS_MAX) {
        let mut worker = world.worker(session);
        let attempt = worker.take();
        world.pass(1200);
        last = Some((worker, attempt));
    }
    let (mut worker, attempt) = last.unwrap();
    assert_eq!(
        world.task(id).state.steps[0].forward.attempt,
        attempt.id.attempt,
        "there is no other attempt"
    );
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Stale);
    assert_eq!(worker.report(&attempt.token, failed("late")), ReportStatus::Stale);
}

#[test]
fn what_was_accepted_before_is_a_duplicate_whatever_the_step_waits_for() {
    for (retries, said) in [(1, failed("try again")), (0, failed("no more")), (1, later("busy")), (0, ok())] {
        let world = World::new();
        world.apply(flow("f", &["a", "b"], retries));
        world.submit("f");
        let mut worker = world.worker(1);
        let attempt = worker.take();
        assert_eq!(worker.report(&attempt.token, said.clone()), ReportStatus::Accepted, "{said:?}");
        assert_eq!(worker.report(&attempt.token, said.clone()), ReportStatus::Duplicate, "{said:?}");
    }
}

#[test]
fn a_worker_whose_reports_are_invalid_gets_its_attempt_again_ever_later() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    let (mut given, mut last) = (0, None);
    // It polls every 50 ms for 20 s, says that it has nothing, and sends an invalid report of what it gets.
    for _ in 0..400 {
        worker.holding.clear();
        if let Some(attempt) = worker.poll().attempts.pop() {
            given += 1;
            let said = Err("it has no outcome".to_owned());
            let report = WorkerReport { token: attempt.token.clone(), said, logs: Vec::new() };
            let call =
                Exchange { reports: vec![report], holding: None, claim_requests: None, ..worker.call(0) };
            let answer = world.drive(world.engine.exchange(call, world.now())).unwrap();
            assert!(matches!(answer.reports[0].status, ReportStatus::Invalid(_)));
            last = Some(attempt.token);
        }
        world.pass(50);
    }
    assert_eq!(given, 6, "after 0.5, 1, 2, 4 and 8 s");
    assert_eq!(worker.report(&last.expect("it got it"), ok()), ReportStatus::Accepted);
}
