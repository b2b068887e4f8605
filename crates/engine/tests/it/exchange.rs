//! The exchange when answers are lost, servers are unavailable and stores fail: nothing runs twice, nothing is forgotten.

use std::{pin::pin, sync::Arc};

use windlass_core::{Command, Failure, Json, Millis, Name, Outcome};
use windlass_engine::{
    ATTEMPTS_MAX, EngineError, Exchange, ExchangeAnswer, HandedOut, Progress, ReportStatus, Said,
    WorkerReport, services::LeaseKeeper,
};
use windlass_store::{ClaimRequest, SessionId, memory::MemorySink};

use crate::{
    faulty_store::{Verb, faulty, faulty_on},
    several_servers::Two,
    world::{WorkerInWorld, World, flow, ok},
};

/// A call of a worker that takes this many.
fn greedy(worker: &mut WorkerInWorld<'_>, free: u32) -> Exchange {
    let claim_request = ClaimRequest { module: Name::new("m").unwrap(), commands: None, free };
    Exchange { claim_requests: Some(vec![claim_request]), ..worker.call(0) }
}

fn exchange(world: &World, call: Exchange) -> ExchangeAnswer {
    world.drive(world.engine.exchange(call, world.now())).unwrap()
}

fn tokens(attempts: &[HandedOut]) -> Vec<String> {
    attempts.iter().map(|attempt| attempt.token.clone()).collect()
}

/// A call that says an attempt goes on.
fn running(worker: &mut WorkerInWorld<'_>, token: &str, progress: Option<f64>, logs: &[&str]) -> Exchange {
    let said = Ok(Said::Running(progress.map(|value| Progress { value: Some(value), message: None })));
    let logs = logs.iter().map(|line| (*line).to_owned()).collect();
    Exchange { reports: vec![WorkerReport { token: token.to_owned(), said, logs }], ..worker.call(0) }
}

fn deaths(world: &World, id: windlass_core::TaskId) -> u32 {
    world.task(id).state.steps[0].forward.deaths
}

#[test]
fn a_worker_that_comes_back_after_its_session_was_over_is_known_again() {
    let world = World::new();
    let mut timed = flow("f", &["a"], 0);
    timed.steps[0].run.timeout = Millis(2000);
    world.apply(timed);
    let mut worker = world.worker(1);
    worker.poll();
    world.pass(12_000);
    assert!(world.drive(world.engine.workers(world.now())).unwrap().is_empty(), "its lease is over");

    let id = world.submit("f");
    worker.take();
    let workers = world.drive(world.engine.workers(world.now())).unwrap();
    let said = &workers[0].worker;
    assert_eq!((&*said.name, said.attached, said.modules.len()), ("w", true, 1));
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.pass(3000);
    assert_eq!(world.status(id), "Running: Running", "an attached worker ends an attempt by itself first");
}

#[test]
fn a_poll_counts_as_open_while_it_is_looked_up_what_its_worker_holds() {
    let sink = MemorySink::new([7; 32]);
    let (world, _) = faulty_on(&sink);
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.take();

    let (world, store) = faulty_on(&sink);
    let mut worker = worker.at(&world);
    let holding = std::mem::take(&mut worker.holding);
    worker.poll();
    worker.holding = holding;
    store.hold_next(Verb::Load);
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.serve();
    store.let_go();
    assert!(world.turn(poll.as_mut()).is_pending());
    world.pass(3000);
    assert_eq!((world.status(id).as_str(), deaths(&world, id)), ("Running: Running", 0));
}

#[test]
fn a_report_that_is_heard_late_does_not_shorten_the_lease_of_an_open_poll() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    let call = running(&mut worker, &attempt.token, None, &[]);
    store.hold_next(Verb::Renew);
    let mut report = pin!(world.engine.exchange(call, world.now()));
    assert!(world.turn(report.as_mut()).is_pending());
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    store.let_go();
    world.drive(report.as_mut()).unwrap();
    world.pass(3000);
    assert_eq!((world.status(id).as_str(), deaths(&world, id)), ("Running: Running", 0));
}

#[test]
fn a_lease_keeper_that_was_held_up_does_not_shorten_the_lease_of_an_open_poll() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.take();
    let keeper = LeaseKeeper::new(world.engine.clone());
    store.hold_next(Verb::Renew);
    let mut round = pin!(keeper.run_once(world.now()));
    assert!(world.turn(round.as_mut()).is_pending());
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    store.let_go();
    world.drive(round.as_mut()).unwrap();
    world.pass(3000);
    assert_eq!((world.status(id).as_str(), deaths(&world, id)), ("Running: Running", 0));
}

#[test]
fn a_worker_whose_connection_goes_away_with_an_answer_loses_it_within_a_second() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let mut worker = world.worker(1);
    let id = {
        let mut poll = pin!(worker.open_poll(10_000));
        assert!(world.turn(poll.as_mut()).is_pending());
        world.submit("f")
    };
    assert_eq!(world.status(id), "Running: Running", "the answer is on its way");
    world.pass(1200);
    assert_eq!((world.status(id).as_str(), deaths(&world, id)), ("Running: Ready", 1));
}

#[test]
fn an_answer_has_a_bounded_number_of_attempts() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let count = ATTEMPTS_MAX + 100;
    for _ in 0..count {
        world.submit("f");
    }
    let mut worker = world.worker(1);
    let call = greedy(&mut worker, u32::MAX);
    let first = exchange(&world, call).attempts;
    assert_eq!(first.len(), ATTEMPTS_MAX);
    let queues = world.drive(world.engine.queues()).unwrap();
    assert_eq!((queues[0].ready, queues[0].running), (100, ATTEMPTS_MAX as u64));
    worker.holding = tokens(&first);
    let call = greedy(&mut worker, u32::MAX);
    let rest = exchange(&world, call).attempts;
    assert_eq!(rest.len(), 100);

    worker.holding.clear();
    let call = greedy(&mut worker, 0);
    let again = exchange(&world, call).attempts;
    assert_eq!(again.len(), ATTEMPTS_MAX, "so has one with what did not arrive");
    worker.holding = tokens(&again);
    let call = greedy(&mut worker, 0);
    let mut all = tokens(&exchange(&world, call).attempts);
    assert_eq!(all.len(), 100);
    all.extend(tokens(&again));
    let mut given = [tokens(&first), tokens(&rest)].concat();
    all.sort();
    given.sort();
    assert_eq!(all, given);
}

#[test]
fn results_count_among_the_bytes_of_an_answer() {
    const COUNT: usize = 20;
    const ANSWER_BYTES: usize = 8 << 20;
    let world = World::new();
    world.apply(flow("f", &["a", "b"], 0));
    let ids: Vec<_> = (0..COUNT).map(|_| world.submit("f")).collect();
    let mut worker = world.worker(1);
    let result = Json::parse(&format!(r#"{{"x":"{}"}}"#, "x".repeat(250 << 10))).unwrap();
    let call = greedy(&mut worker, 20);
    for attempt in exchange(&world, call).attempts {
        worker.report(&attempt.token, Said::Ended(Outcome::Succeeded(Some(result.clone()))));
    }
    for id in ids {
        world.drive(world.engine.tell(id, Command::Cancel { by: None })).unwrap();
    }
    let size = |attempt: &HandedOut| {
        let result = attempt.task.state.steps[attempt.id.key.step].forward.result.as_ref();
        attempt.params.as_str().len() + result.map_or(0, |result| result.as_str().len())
    };
    let mut seen = 0;
    for _ in 0..COUNT {
        let call = greedy(&mut worker, 20);
        let attempts = exchange(&world, call).attempts;
        assert!(attempts.iter().map(size).sum::<usize>() <= ANSWER_BYTES);
        seen += attempts.len();
        worker.holding.extend(tokens(&attempts));
    }
    assert_eq!(seen, COUNT, "what did not fit came later");
}

#[test]
fn what_was_claimed_and_cannot_be_read_goes_back_to_its_queue() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    store.fail(Some(Verb::Load));
    let poll = worker.open_poll(0);
    world.drive(poll).unwrap_err();
    store.fail(None);
    assert_eq!(world.status(id), "Pending: Ready");
    world.worker(2).take();
}

#[test]
fn parameters_that_are_too_large_fail_their_step_as_soon_as_that_can_be_written() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    let params = format!(r#"{{"x":"{}"}}"#, "x".repeat(4 << 20));
    let id = world.try_submit("f", &params, None).unwrap().loaded.task.id;
    let mut worker = world.worker(1);
    store.fail(Some(Verb::Commit));
    assert!(worker.poll().attempts.is_empty());
    world.serve();
    store.fail(None);
    assert_eq!(world.status(id), "Running: Running");
    assert!(worker.poll().attempts.is_empty());
    world.serve();
    assert!(world.task(id).message().unwrap().contains("4 MiB"));
}

#[test]
fn what_was_claimed_for_a_call_that_was_dropped_is_handed_out_at_the_next_poll() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    store.hold_next(Verb::Load);
    {
        let mut poll = pin!(worker.open_poll(10_000));
        assert!(world.turn(poll.as_mut()).is_pending());
    }
    let attempt = worker.take();
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
}

#[test]
fn an_answer_that_comes_too_late_for_its_poll_takes_nothing_from_the_next_one() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    store.hold_next(Verb::Load);
    let mut slow = pin!(worker.open_poll(10_000));
    assert!(world.turn(slow.as_mut()).is_pending(), "it has claimed the attempt");
    let mut next = pin!(worker.open_poll(10_000));
    assert!(world.turn(next.as_mut()).is_pending());
    store.let_go();
    let answer = world.drive(slow.as_mut()).unwrap();
    assert!(answer.attempts.is_empty(), "nobody reads this any more");
    world.serve();
    let attempts = world.drive(next.as_mut()).unwrap().attempts;
    assert_eq!((attempts.len(), attempts[0].id.attempt), (1, 1));
    assert_eq!(worker.report(&attempts[0].token, ok()), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Succeeded: Succeeded");
}

#[test]
fn a_claim_that_outlasts_its_poll_is_for_the_next_poll() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    store.hold_next(Verb::Load);
    let mut slow = pin!(worker.open_poll(10_000));
    assert!(world.turn(slow.as_mut()).is_pending(), "it has claimed the attempt");
    let mut next = pin!(worker.open_poll(10_000));
    assert!(world.turn(next.as_mut()).is_pending());
    store.let_go();
    world.drive(slow.as_mut()).unwrap();
    let attempts = world.drive(next.as_mut()).unwrap().attempts;
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].id.claim % (1 << 40), 1, "it was claimed once");
}

#[test]
fn an_attempt_that_is_read_for_longer_than_its_poll_waits_is_still_given() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    let first = worker.take();
    // The worker did not get that answer.
    worker.holding.clear();
    store.hold_next(Verb::Load);
    let mut slow = pin!(worker.open_poll(1_000));
    assert!(world.turn(slow.as_mut()).is_pending(), "it reads the task");
    world.pass(1_050);
    assert!(world.turn(slow.as_mut()).is_pending(), "its wait is over");
    store.let_go();
    let answer = world.drive(slow.as_mut()).unwrap();
    assert_eq!(answer.attempts.iter().map(|attempt| &attempt.token).collect::<Vec<_>>(), [&first.token]);
}

#[test]
fn a_claim_that_outlasts_its_poll_goes_back_if_the_next_poll_has_no_room() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    store.hold_next(Verb::Load);
    let mut slow = pin!(worker.open_poll(10_000));
    assert!(world.turn(slow.as_mut()).is_pending(), "it has claimed the attempt");
    let call = Exchange { wait: Millis(10_000), ..greedy(&mut worker, 0) };
    let mut next = pin!(world.engine.exchange(call, world.now()));
    assert!(world.turn(next.as_mut()).is_pending());
    store.let_go();
    world.drive(slow.as_mut()).unwrap();
    world.serve();
    assert!(world.turn(next.as_mut()).is_pending(), "the worker has no free slot");
    assert_eq!(world.worker(2).take().id.claim % (1 << 40), 2);
}

#[test]
fn after_a_report_that_could_not_be_written_its_worker_still_has_the_attempt() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    store.fail(Some(Verb::Commit));
    let report = WorkerReport { token: attempt.token.clone(), said: Ok(ok()), logs: Vec::new() };
    let call = Exchange { reports: vec![report], ..worker.call(0) };
    world.drive(world.engine.exchange(call, world.now())).unwrap_err();
    store.fail(None);
    // A store that went back to what is on disk may not know any more who had it.
    world.drive(store.store.release(SessionId(1), attempt.id, None, world.now())).unwrap();
    worker.poll();
    assert!(world.worker(2).poll().attempts.is_empty(), "the first worker has said that it has it");
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
    assert_eq!(world.status(id), "Succeeded: Succeeded");
}

#[test]
fn a_report_that_others_were_in_the_way_of_is_not_answered_so_that_it_is_made_again() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    store.conflict(true);
    let report = WorkerReport { token: attempt.token.clone(), said: Ok(ok()), logs: Vec::new() };
    let call = Exchange { reports: vec![report], ..worker.call(0) };
    let answer = world.drive(world.engine.exchange(call, world.now()));
    assert_eq!(answer.unwrap_err(), EngineError::Conflict);
    store.conflict(false);
    assert_eq!(worker.report(&attempt.token, ok()), ReportStatus::Accepted);
}

#[test]
fn log_lines_are_kept_from_workers_that_this_server_has_not_polled() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();

    let world = World::open(&sink);
    let mut worker = worker.at(&world);
    let call = running(&mut worker, &attempt.token, None, &["one"]);
    assert_eq!(exchange(&world, call).reports[0].status, ReportStatus::Accepted);
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(world.turn(poll.as_mut()).is_pending());
    world.pass(400);
    assert!(world.worker(2).poll().attempts.is_empty(), "a report names what its worker holds, too");

    let world = World::open(&sink);
    let mut worker = worker.at(&world);
    let report = WorkerReport { token: attempt.token.clone(), said: Ok(ok()), logs: vec!["two".to_owned()] };
    let call = Exchange { reports: vec![report], ..worker.call(0) };
    assert_eq!(exchange(&world, call).reports[0].status, ReportStatus::Accepted);
    let lines = world.drive(world.engine.logs(id, 0, 10)).unwrap();
    assert_eq!(lines.iter().map(|(_, line)| &*line.line).collect::<Vec<_>>(), ["one", "two"]);
}

#[test]
fn log_lines_that_could_not_be_written_do_not_count() {
    let (world, store) = faulty();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    let line = "x".repeat(40 << 10);
    for fails in [true, true, false] {
        store.fail(fails.then_some(Verb::Commit));
        let call = running(&mut worker, &attempt.token, None, &[&line]);
        assert_eq!(world.drive(world.engine.exchange(call, world.now())).is_err(), fails);
    }
    let kept = world.drive(world.engine.logs(id, 0, 10)).unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(*kept[0].1.line, *line);
}

#[test]
fn a_late_report_leaves_the_progress_of_the_next_attempt_alone() {
    let world = World::new();
    world.apply(flow("f", &["a"], 1));
    let id = world.submit("f");
    let mut late = world.worker(1);
    let lost = late.take();
    world.pass(1200);
    let mut worker = world.worker(2);
    let attempt = worker.take();
    let call = running(&mut worker, &attempt.token, Some(0.5), &[]);
    exchange(&world, call);
    let failed = Said::Ended(Outcome::Failed(Failure::new("late", 1, true)));
    assert_eq!(late.report(&lost.token, failed), ReportStatus::Stale);
    assert_eq!(world.engine.progress(id, attempt.id.key, 2).unwrap().value, Some(0.5));
}

#[test]
fn what_was_declined_is_not_taken_up_again_by_a_poll_that_names_it() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    let declined = worker.take();
    assert_eq!(worker.report(&declined.token, Said::Declined), ReportStatus::Accepted);
    // It has not heard yet that this was accepted.
    worker.holding.push(declined.token.clone());
    let again = worker.take();
    assert!(again.id.claim > declined.id.claim, "it was handed out again");
    worker.holding.retain(|token| *token != declined.token);
    assert!(worker.poll().attempts.is_empty());
}

#[test]
fn what_a_worker_is_returning_is_not_taken_up_by_another_server() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    two.one.submit("f");
    let mut worker = two.one.worker(1);
    let returned = worker.take();
    (worker.declining, worker.holding) = (worker.holding, Vec::new());
    // The first server does not hand it out again meanwhile.
    assert!(worker.poll().attempts.is_empty());
    let mut at_other = worker.at(&two.other);
    assert_eq!(at_other.report(&returned.token, Said::Declined), ReportStatus::Accepted);
    // A poll that was sent before this was answered arrives late, at a third server.
    let third = World::over(Arc::new(two.store.clone()), 3);
    third.be_heard();
    let mut late = at_other.at(&third);
    late.seq += 10;
    let again = late.take();
    assert!(again.id.claim > returned.id.claim, "it was handed out again");
}
