//! What is answered about a batch: only what is on disk, to each item what became of itself.

mod evaluation;

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures_executor::block_on;
use windlass_core::{
    ActKey, AlarmCommand, AlarmRejection, AlarmState, Command, Input, Json, LockRef, Millis, Name, Outcome,
    TaskId,
};
use windlass_engine::{
    Committer, EngineError, Exchange, Progress, ReportStatus, Said, Submission, WorkerReport,
};
use windlass_store::{Limit, Starts, StoreError, memory::SharedStore};

use crate::{
    faulty_store::{FaultyStore, Verb},
    world::{WorkerInWorld, World, failed, flow},
};

fn ok() -> Said {
    Said::Ended(Outcome::Succeeded(Some(Json::parse("{}").unwrap())))
}

/// A call that reports one attempt with two lines.
fn report_with_lines(worker: &mut WorkerInWorld<'_>, token: &str, said: Said) -> Exchange {
    let logs = vec!["one".to_owned(), "two".to_owned()];
    let report = WorkerReport { token: token.to_owned(), said: Ok(said), logs };
    Exchange { reports: vec![report], holding: None, claim_requests: None, ..worker.call(0) }
}

fn half() -> Said {
    Said::Running(Some(Progress { value: Some(0.5), message: None }))
}

fn poll<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Two servers on the same rows. Calls of the first one can be held and failed.
struct Two {
    faulty: Arc<FaultyStore>,
    one: World,
    other: World,
}

impl Two {
    fn new() -> Self {
        let store = Arc::new(SharedStore::new([7; 32]));
        let faulty = FaultyStore::new(store.clone());
        let two = Self { one: World::over(faulty.clone(), 1), other: World::over(store, 2), faulty };
        two.one.apply(flow("f", &["a"], 0));
        two
    }

    /// Decides what waits at the first server, while the other one does something to `task` that makes its
    /// change a conflict. `at_retry` comes before it is decided again.
    fn commit_beside(&self, task: TaskId, command: Command, at_retry: impl FnOnce(&FaultyStore)) {
        let committer = Committer::new(self.one.engine.clone());
        let mut committing = pin!(committer.run_once(|| self.one.now()));
        self.faulty.hold_next(Verb::Commit);
        assert!(poll(committing.as_mut()).is_pending(), "something is decided");
        self.other.drive(self.other.engine.tell(task, command)).unwrap();
        self.faulty.let_go();
        self.faulty.hold_next(Verb::Load);
        assert!(poll(committing.as_mut()).is_pending(), "it is decided again");
        at_retry(&self.faulty);
        self.faulty.let_go();
        block_on(committing);
    }
}

#[test]
fn a_report_with_log_lines_ends_its_attempt_like_any_other() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    let attempt = worker.take();
    worker.report(&attempt.token, half());
    assert!(world.engine.progress(id, ActKey::forward(0), 1).is_some());
    let call = report_with_lines(&mut worker, &attempt.token, ok());
    let answer = world.drive(world.engine.exchange(call, world.now())).unwrap();
    assert_eq!(answer.reports[0].status, ReportStatus::Accepted);
    assert_eq!(world.engine.progress(id, ActKey::forward(0), 1), None, "it has ended");
    let call = report_with_lines(&mut worker, &attempt.token, ok());
    let answer = world.drive(world.engine.exchange(call, world.now())).unwrap();
    assert_eq!(answer.reports[0].status, ReportStatus::Duplicate);
    assert_eq!(world.drive(world.engine.logs(id, 0, 9)).unwrap().len(), 2, "a repeated report adds none");
}

#[test]
fn log_lines_of_a_report_that_is_decided_again_are_kept_once() {
    let two = Two::new();
    let id = two.one.submit("f");
    let mut worker = two.one.worker(1);
    let attempt = worker.take();
    let call = report_with_lines(&mut worker, &attempt.token, ok());
    let mut reporting = pin!(two.one.engine.exchange(call, two.one.now()));
    assert!(poll(reporting.as_mut()).is_pending());
    two.commit_beside(id, Command::Pause { by: None }, |_| {});
    let Poll::Ready(answer) = poll(reporting) else { panic!("it is decided") };
    assert_eq!(answer.unwrap().reports[0].status, ReportStatus::Accepted);
    let lines = two.other.drive(two.other.engine.logs(id, 0, 9)).unwrap();
    assert_eq!(lines.iter().map(|(_, line)| &*line.line).collect::<Vec<_>>(), ["one", "two"]);
}

#[test]
fn progress_is_forgotten_with_an_attempt_that_nobody_reports() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    let mut worker = world.worker(1);
    worker.attached = false;
    let attempt = worker.take();
    worker.report(&attempt.token, half());
    assert!(world.engine.progress(id, ActKey::forward(0), 1).is_some());
    world.pass(31_000);
    assert_eq!(world.task(id).state.steps[0].forward.attempt, 2, "the worker was silent");
    assert_eq!(world.engine.progress(id, ActKey::forward(0), 1), None);
}

#[test]
fn what_a_round_has_committed_is_answered_though_a_later_one_fails() {
    let two = Two::new();
    let id = two.one.submit("f");
    let input = (*two.one.task(id).input).clone();
    let submission = Submission {
        flow: Name::new("f").unwrap(),
        version: None,
        input,
        key: None,
        fingerprint_before: None,
    };
    let mut submitting = pin!(two.one.engine.submit(submission, two.one.now()));
    assert!(poll(submitting.as_mut()).is_pending());
    let mut cancelling = pin!(two.one.engine.tell(id, Command::Cancel { by: None }));
    assert!(poll(cancelling.as_mut()).is_pending());
    let fail = |store: &FaultyStore| store.fail(Some(Verb::Load));
    two.commit_beside(id, Command::Pause { by: None }, fail);
    let Poll::Ready(cancelled) = poll(cancelling) else { panic!("it is decided") };
    assert!(matches!(cancelled, Err(EngineError::Store(StoreError::Unavailable(_)))));
    let Poll::Ready(submitted) = poll(submitting) else { panic!("it is decided") };
    let new = submitted.expect("it was committed in the first round").loaded.task.id;
    assert_eq!(two.other.status(new), "Pending: Ready");
}

#[test]
fn a_refusal_that_was_based_on_a_conflict_is_decided_again() {
    let two = Two::new();
    let id = two.one.submit("f");
    let mut worker = two.one.worker(1);
    let attempt = worker.take();
    let call = report_with_lines(&mut worker, &attempt.token, ok());
    let mut reporting = pin!(two.one.engine.exchange(call, two.one.now()));
    assert!(poll(reporting.as_mut()).is_pending());
    // The report would end the task, so that there is nothing to cancel any more; but its rollback has begun.
    let mut cancelling = pin!(two.one.engine.tell(id, Command::Cancel { by: None }));
    assert!(poll(cancelling.as_mut()).is_pending());
    two.commit_beside(id, Command::Cancel { by: None }, |_| {});
    let Poll::Ready(reported) = poll(reporting) else { panic!("it is decided") };
    assert_eq!(reported.unwrap().reports[0].status, ReportStatus::Accepted);
    let Poll::Ready(cancelled) = poll(cancelling) else { panic!("it is decided") };
    assert!(!cancelled.expect("the task is being rolled back").task.is_ended());
}

#[test]
fn commands_to_one_alarm_at_once_are_decided_one_after_the_other() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let mut worker = world.worker(1);
    for message in ["no space", "cannot roll back"] {
        let attempt = worker.take();
        worker.report(&attempt.token, failed(message));
    }
    world.serve();
    let id = world.drive(world.engine.alarms(false, 9)).unwrap()[0].id.clone();
    let batches = world.engine.counts().batches();
    let tell = |command| world.engine.tell_alarm(id.clone(), command);
    let acknowledge = || AlarmCommand::Acknowledge { by: None };
    let (first, second) = (tell(acknowledge()), tell(acknowledge()));
    let (resolve, late) = (tell(AlarmCommand::Resolve { by: None }), tell(acknowledge()));
    let all = futures_util::future::join4(first, second, resolve, late);
    let (first, second, resolved, late) = world.drive(all);
    assert_eq!(world.engine.counts().batches(), batches + 1, "they are one batch");
    assert_eq!(first.unwrap().state, AlarmState::Acknowledged);
    assert_eq!(second.unwrap().state, AlarmState::Acknowledged);
    assert_eq!(resolved.unwrap().state, AlarmState::Resolved);
    assert_eq!(late.unwrap_err(), EngineError::AlarmRejected(AlarmRejection::Resolved));
    assert_eq!(world.drive(world.engine.alarms(true, 9)).unwrap()[0].state, AlarmState::Resolved);
}

#[test]
fn people_are_shown_what_is_on_disk_only() {
    type Asking<'a> = Pin<Box<dyn Future<Output = Result<(), EngineError>> + 'a>>;
    let Two { faulty, one, .. } = Two::new();
    let (engine, now) = (one.engine.clone(), one.now());
    let id = one.submit("f");
    let questions: [(&str, Asking<'_>); 6] = [
        ("task", Box::pin(async { engine.task(id).await.map(drop) })),
        ("flow", Box::pin(async { engine.flow("f", None).await.map(drop) })),
        ("flows", Box::pin(async { engine.flows().await.map(drop) })),
        // The answer to an operator who pauses a queue that is paused already.
        ("queues", Box::pin(async { engine.queues().await.map(drop) })),
        ("why", Box::pin(async { engine.why(id, now).await.map(drop) })),
        (
            "a flow that is as it was",
            Box::pin(async { engine.apply_flow(flow("f", &["a"], 0), now).await.map(drop) }),
        ),
    ];
    for (what, mut asking) in questions {
        faulty.hold_next(Verb::Commit);
        assert!(poll(asking.as_mut()).is_pending(), "{what}: what is on its way is waited for");
        faulty.let_go();
        assert!(matches!(poll(asking.as_mut()), Poll::Ready(Ok(()))), "{what}");
    }
}

#[test]
fn what_is_decided_by_a_batch_that_began_earlier_happens_after_what_it_builds_on() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let early = world.now();
    world.pass(50);
    let task = world.submit("f");
    let mut pausing = pin!(world.engine.tell(task, Command::Pause { by: None }));
    assert!(poll(pausing.as_mut()).is_pending());
    block_on(Committer::new(world.engine.clone()).run_once(|| early));
    assert!(poll(pausing.as_mut()).is_ready());
    let events = block_on(world.engine.events(task, 0, 100)).unwrap();
    assert!(events.is_sorted_by_key(|(_, event)| event.at), "{events:#?}");
}

#[test]
fn what_is_handed_out_after_a_slow_commit_begins_then() {
    let faulty = FaultyStore::new(Arc::new(SharedStore::new([7; 32])));
    let world = World::over(faulty.clone(), 1);
    world.apply(flow("f", &["a"], 0));
    let limit = Limit {
        name: Name::new("slowly").unwrap(),
        queue: Name::new("m").unwrap(),
        command: None,
        per_key: false,
        running: None,
        starts: Some(Starts { count: 1, per: Millis(2_000) }),
    };
    world.drive(world.engine.set_limit(limit)).unwrap();
    let mut worker = world.worker(1);
    worker.attached = false;
    let mut polling = pin!(worker.open_poll(30_000));
    assert!(world.turn(polling.as_mut()).is_pending());
    let input = Input::new(Json::parse("{}").unwrap(), world.now().wall);
    let submission = Submission {
        flow: Name::new("f").unwrap(),
        version: None,
        input,
        key: None,
        fingerprint_before: None,
    };
    let mut submitting = pin!(world.engine.submit(submission, world.now()));
    assert!(poll(submitting.as_mut()).is_pending());
    let committer = Committer::new(world.engine.clone());
    let mut committing = pin!(committer.run_once(|| world.now()));
    faulty.hold_next(Verb::Commit);
    assert!(poll(committing.as_mut()).is_pending());
    world.be_away_unserved(1_900);
    faulty.let_go();
    block_on(committing);
    let Poll::Ready(answer) = poll(polling) else { panic!("the attempt is handed out") };
    worker.holding.push(answer.unwrap().attempts.remove(0).token);
    world.submit("f");
    world.pass(200);
    assert!(worker.poll().attempts.is_empty(), "one began 200 ms ago");
    world.pass(1_900);
    worker.take();
}

#[test]
fn who_waits_gets_what_a_commit_makes_ready_without_another_claim() {
    let faulty = FaultyStore::new(Arc::new(SharedStore::new([7; 32])));
    let world = World::over(faulty.clone(), 1);
    world.apply(flow("f", &["a", "b"], 0));
    let mut worker = world.worker(1);
    let mut polling = pin!(worker.open_poll(30_000));
    assert!(world.turn(polling.as_mut()).is_pending());
    faulty.fail(Some(Verb::Claim));
    let task = world.submit("f");
    let Poll::Ready(answer) = poll(polling) else { panic!("the attempt is handed out") };
    assert_eq!(answer.unwrap().attempts[0].task.id, task);
}

#[test]
fn a_poll_that_comes_while_a_commit_is_under_way_is_answered_after_it() {
    let faulty = FaultyStore::new(Arc::new(SharedStore::new([7; 32])));
    let world = World::over(faulty.clone(), 1);
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    let other = world.submit("f");
    let mut pausing = pin!(world.engine.tell(other, Command::Pause { by: None }));
    assert!(poll(pausing.as_mut()).is_pending());
    let committer = Committer::new(world.engine.clone());
    let mut committing = pin!(committer.run_once(|| world.now()));
    faulty.hold_next(Verb::Commit);
    assert!(poll(committing.as_mut()).is_pending());
    let mut worker = world.worker(1);
    let mut polling = pin!(worker.open_poll(30_000));
    assert!(poll(polling.as_mut()).is_pending(), "its answer comes with the end of the commit");
    faulty.let_go();
    block_on(committing);
    assert!(poll(polling).is_ready());
}

#[test]
fn a_lock_is_not_given_back_for_a_task_whose_change_is_not_committed() {
    let two = Two::new();
    let name = Name::new("disk").unwrap();
    let mut locking = flow("g", &["a"], 0);
    locking.steps[0].locks = vec![LockRef::Name(name.clone())];
    two.one.apply(locking);
    let input = Input::new(Json::parse("{}").unwrap(), two.one.now().wall);
    let submission = Submission {
        flow: Name::new("g").unwrap(),
        version: None,
        input,
        key: None,
        fingerprint_before: None,
    };
    let mut submitting = pin!(two.one.engine.submit(submission, two.one.now()));
    assert!(poll(submitting.as_mut()).is_pending());
    // It is accepted and requests the lock; the lock is granted, and the message about it is still to be delivered.
    let committer = Committer::new(two.one.engine.clone());
    for _ in 0..2 {
        assert!(block_on(committer.run_once(|| two.one.now())) > 0);
    }
    let Poll::Ready(accepted) = poll(submitting) else { panic!("it is accepted") };
    let id = accepted.unwrap().loaded.task.id;
    let mut cancelling = pin!(two.one.engine.tell(id, Command::Cancel { by: None }));
    assert!(poll(cancelling.as_mut()).is_pending());
    let has_lock =
        || block_on(two.faulty.store.lock(&name)).unwrap().is_some_and(|lock| lock.holder.is_some());
    two.commit_beside(id, Command::Pause { by: None }, |_| {
        assert!(has_lock(), "the task waits for it still");
    });
    assert!(poll(cancelling).is_ready());
    two.one.serve();
    assert!(!has_lock(), "it was cancelled");
}

#[test]
fn the_locks_of_a_batch_are_read_at_once() {
    let faulty = FaultyStore::new(Arc::new(SharedStore::new([7; 32])));
    let world = World::over(faulty.clone(), 1);
    for number in 0..5 {
        let mut locking = flow(&format!("f{number}"), &["a"], 0);
        locking.steps[0].locks = vec![LockRef::Name(Name::new(&format!("disk-{number}")).unwrap())];
        world.apply(locking);
    }
    let submits = (0..5).map(|number| {
        let input = Input::new(Json::parse("{}").unwrap(), world.now().wall);
        let flow = Name::new(&format!("f{number}")).unwrap();
        world.engine.submit(
            Submission { flow, version: None, input, key: None, fingerprint_before: None },
            world.now(),
        )
    });
    let mut submits: Vec<_> = submits.map(Box::pin).collect();
    assert!(submits.iter_mut().all(|submit| poll(submit.as_mut()).is_pending()));
    faulty.take_reads();
    world.serve();
    let reads = faulty.take_reads();
    assert!(!reads.is_empty() && reads.iter().all(|read| read == "5 locks"), "{reads:?}");
}
