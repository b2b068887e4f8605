//! Several servers on one store: any of them answers any call, and each hears in time of what concerns those who talk
//! to it.

use std::{pin::pin, sync::Arc, task::Poll};

use futures_executor::block_on;
use futures_util::StreamExt as _;
use windlass_core::{ActState, AlarmKind, Command, Millis, TaskId};
use windlass_engine::{ReportStatus, Said, services::SERVICE_LEASE};
use windlass_store::{Members as _, SERVER_FORGOTTEN_AFTER, ServerId, Service, memory::SharedStore};

use crate::{
    several_servers::Two,
    world::{World, flow, ok},
};

#[test]
fn an_attached_worker_may_report_to_another_server_than_it_polls() {
    let two = Two::new();
    two.one.apply(flow("f", &["a", "b"], 0));
    let id = two.one.submit("f");
    let mut worker = two.one.worker(1);
    let first = worker.take();
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(two.one.turn(poll.as_mut()).is_pending());
    two.pass(300);
    // The other server has no poll of this worker.
    let mut there = worker.at(&two.other);
    assert_eq!(there.report(&first.token, Said::Running(None)), ReportStatus::Accepted);
    two.pass(3_000);
    assert_eq!(two.one.task(id).state.steps[0].forward.deaths, 0);
    assert_eq!(there.report(&first.token, ok()), ReportStatus::Accepted);
    two.pass(150);
    let Poll::Ready(answer) = two.one.turn(poll.as_mut()) else { panic!("the next step is ready") };
    assert_eq!(answer.unwrap().attempts.len(), 1);
}

#[test]
fn a_server_that_ends_is_replaced_before_the_next_heartbeat() {
    const ALL_RUN: [Service; 3] = [Service::Timekeeping, Service::Sweeping, Service::Enqueuing];

    let two = Two::new();
    // A server that has a lease keeps it.
    let holders = || {
        let ask = |service| two.store.lease(service, ServerId(9), SERVICE_LEASE, two.one.now());
        ALL_RUN.map(|service| block_on(ask(service)).unwrap().holder.0)
    };
    let mut heartbeats = pin!(two.other.heartbeats());
    assert!(two.other.turn(heartbeats.as_mut()).is_pending());
    assert_eq!(holders(), [1; 3]);
    two.one.end();
    assert!(two.other.turn(heartbeats.as_mut()).is_pending());
    assert_eq!(holders(), [2; 3]);
}

/// By this a worker behind a load balancer knows that its poll does not offer the slot that became free.
#[test]
fn the_answer_to_reports_names_the_newest_poll_that_its_server_received() {
    let two = Two::new();
    two.one.apply(flow("f", &["a", "b"], 0));
    two.one.submit("f");
    let mut worker = two.one.worker(1);
    let first = worker.take();
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(two.one.turn(poll.as_mut()).is_pending());
    let mut there = worker.at(&two.other);
    assert_eq!(there.report_call(&first.token, Said::Running(None)).poll, Some(0));
    let here = there.at(&two.one).report_call(&first.token, Said::Running(None)).poll;
    assert!(here.is_some_and(|newest| newest > 0), "{here:?}");
    // A poll there finds what the report made ready, whatever the first server knows.
    assert_eq!(there.report_call(&first.token, ok()).poll, Some(0));
    assert_eq!(there.poll().attempts.len(), 1);
    assert!(two.one.turn(poll.as_mut()).is_pending());
}

#[test]
fn a_connection_that_ends_at_one_server_says_nothing_once_the_worker_polls_another() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    let id = two.one.submit("f");
    let mut worker = two.one.worker(1);
    worker.take();
    let mut there = worker.at(&two.other);
    there.seq += 1;
    {
        let mut poll = pin!(worker.open_poll(10_000));
        assert!(two.one.turn(poll.as_mut()).is_pending());
    }
    let mut poll = pin!(there.open_poll(10_000));
    assert!(two.other.turn(poll.as_mut()).is_pending());
    two.pass(4_000);
    assert_eq!(two.other.task(id).state.steps[0].forward.deaths, 0);
}

/// Behind a load balancer the next poll may be at a server that was frozen just now, and which nobody hears of.
#[test]
fn a_poll_that_was_answered_says_nothing_of_where_the_next_one_is() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    let id = two.one.submit("f");
    let mut worker = two.one.worker(1);
    worker.take();
    two.pass(5_000);
    assert_eq!(two.one.task(id).state.steps[0].forward.deaths, 0);
    two.pass(6_000);
    assert_eq!(
        two.one.task(id).state.steps[0].forward.deaths,
        1,
        "its lease is over, and all servers were there"
    );
}

/// A step must not be held as poisoned because its worker's calls went to a server that froze or died.
#[test]
fn what_is_lost_while_a_server_is_silent_is_no_death() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    let id = two.one.submit("f");
    for number in 1..=5 {
        two.pass(1_000);
        let attempt = two.one.worker(number).take();
        assert_eq!(u128::from(attempt.id.attempt), number);
        // Each of the workers calls the other server, which stands still.
        for _ in 0..12 {
            two.one.pass(1_000);
            two.one.be_heard();
        }
        two.other.be_away(12_000);
        two.be_heard();
    }
    let step = &two.one.task(id).state.steps[0].forward;
    assert_eq!((step.attempt, step.deaths), (6, 0));
    two.one.worker(6).take();
    two.pass(11_000);
    assert_eq!(two.one.task(id).state.steps[0].forward.deaths, 1, "all servers were there");
}

#[test]
fn a_worker_whose_last_connection_ends_is_gone_within_a_second_wherever_that_was() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    let id = two.one.submit("f");
    let mut worker = two.other.worker(1);
    worker.take();
    {
        let mut poll = pin!(worker.open_poll(10_000));
        assert!(two.other.turn(poll.as_mut()).is_pending());
        two.pass(500);
    }
    two.pass(1_200);
    assert_eq!(two.one.task(id).state.steps[0].forward.deaths, 1);
}

#[test]
fn a_cancel_at_one_server_reaches_a_worker_that_polls_at_another() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    let id = two.one.submit("f");
    let mut worker = two.other.worker(1);
    let had = worker.take();
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(two.other.turn(poll.as_mut()).is_pending());
    two.one.drive(two.one.engine.tell(id, Command::Cancel { by: None })).unwrap();
    two.pass(50);
    let Poll::Ready(answer) = two.other.turn(poll.as_mut()) else {
        panic!("the worker is instructed to stop")
    };
    assert_eq!(answer.unwrap().cancels, [had.token]);
    let mut poll = pin!(worker.open_poll(10_000));
    two.pass(100);
    assert!(two.other.turn(poll.as_mut()).is_pending(), "it is notified once, and again after a second");
}

#[test]
fn what_one_server_gave_up_is_stopped_at_another() {
    let two = Two::new();
    let mut slow = flow("f", &["a"], 0);
    slow.steps[0].run.timeout = Millis::from_secs(2);
    two.one.apply(slow);
    let id = two.one.submit("f");
    let mut worker = two.other.worker(1);
    let had = worker.take();
    // Its timeout and its grace are over, and it goes on.
    for _ in 0..13 {
        worker.poll();
        two.pass(1_000);
    }
    assert!(two.one.status(id).starts_with("RollingBack") || two.one.task(id).is_ended());
    let told: Vec<String> = (0..6)
        .flat_map(|_| {
            two.pass(1_000);
            worker.poll().cancels
        })
        .collect();
    assert!(told.contains(&had.token), "{told:?}");
}

#[test]
fn what_one_server_makes_ready_stirs_the_other() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    two.pass(100);
    let mut worker = two.other.worker(1);
    let mut poll = pin!(worker.open_poll(10_000));
    assert!(two.other.turn(poll.as_mut()).is_pending());
    two.other.serve();
    two.other.drive(async { two.other.engine.stirred().await });
    let mut stirred = pin!(two.other.engine.stirred());
    assert!(two.other.turn(stirred.as_mut()).is_pending());
    two.one.submit("f");
    assert!(two.other.turn(stirred.as_mut()).is_ready());
    two.other.serve();
    assert!(two.other.turn(poll.as_mut()).is_ready());
}

#[test]
fn who_watches_a_task_at_one_server_is_sent_to_look_when_another_changed_it() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    let id = two.one.submit("f");
    // The first look sends everybody away once: they may have read the task before it.
    let mut first = two.other.engine.feed().watch(id);
    two.pass(50);
    assert!(two.other.drive(first.next()).is_none());
    let mut watch = two.other.engine.feed().watch(id);
    two.pass(200);
    let mut next = pin!(watch.next());
    assert!(two.other.turn(next.as_mut()).is_pending());
    two.one.drive(two.one.engine.tell(id, Command::Pause { by: None })).unwrap();
    two.pass(50);
    assert!(matches!(two.other.turn(next.as_mut()), Poll::Ready(None)));
}

/// Whether the first step waits for its next attempt.
fn is_delayed(world: &World, id: TaskId) -> bool {
    matches!(world.task(id).state.steps[0].forward.state, ActState::Delayed { .. })
}

#[test]
fn one_server_does_what_is_due_and_another_goes_on_when_that_is_gone() {
    let two = Two::new();
    let lease = i64::try_from(SERVICE_LEASE.0).unwrap();
    two.one.apply(flow("f", &["a"], 1));
    let retried = |world: &World, session: u128| {
        let id = world.submit("f");
        let mut worker = world.worker(session);
        let token = worker.take().token;
        worker.report(&token, crate::world::failed("not yet"));
        id
    };
    let id = retried(&two.one, 1);
    two.other.pass(1_500);
    assert!(is_delayed(&two.one, id), "the first one keeps time");
    two.one.pass(1_500);
    assert!(!is_delayed(&two.one, id));
    // From here on there is only the other one.
    two.other.worker(2).poll();
    let id = retried(&two.other, 3);
    for _ in 0..lease / 1_000 + 1 {
        two.other.be_heard();
        two.other.pass(1_000);
    }
    assert!(!is_delayed(&two.other, id));
}

#[test]
fn a_server_that_ends_in_order_leaves_its_part_to_others_at_once() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 1));
    two.one.end();
    two.other.be_heard();
    let id = two.other.submit("f");
    let mut worker = two.other.worker(1);
    let token = worker.take().token;
    worker.report(&token, crate::world::failed("not yet"));
    two.other.pass(1_050);
    assert!(!is_delayed(&two.other, id));
}

#[test]
fn the_first_server_after_a_time_without_any_gives_workers_a_full_new_lease() {
    let two = Two::new();
    two.one.apply(flow("f", &["a"], 0));
    let id = two.one.submit("f");
    let mut worker = two.one.worker(1);
    worker.take();
    // Nobody hears of anything for a minute.
    let next = World::over(Arc::new(two.store.clone()), 3);
    next.be_away_unserved(60_000);
    next.be_heard();
    next.serve();
    assert_eq!(next.task(id).state.steps[0].forward.deaths, 0);
    for _ in 0..9 {
        next.be_heard();
        next.pass(1_000);
    }
    assert_eq!(next.task(id).state.steps[0].forward.deaths, 0);
    next.be_heard();
    next.pass(1_100);
    assert_eq!(next.task(id).state.steps[0].forward.deaths, 1);
}

#[test]
fn what_another_server_did_meanwhile_is_found_by_the_commit() {
    let two = Two::new();
    two.one.apply(flow("f", &["a", "b"], 0));
    let id = two.one.submit("f");
    let mut worker = two.one.worker(1);
    let had = worker.take();
    let mut there = worker.at(&two.other);
    assert_eq!(there.report(&had.token, ok()), ReportStatus::Accepted);
    assert_eq!(two.other.engine.counts().conflicts(), 0);
    // This server knows the task as it was when it handed the attempt out.
    assert_eq!(worker.report(&had.token, ok()), ReportStatus::Duplicate);
    assert_eq!(two.one.engine.counts().conflicts(), 1);
    let next = worker.take();
    assert_eq!(worker.report(&next.token, ok()), ReportStatus::Accepted);
    assert!(two.other.task(id).is_ended());
    assert_eq!(two.one.engine.counts().conflicts(), 1);
}

/// The open alarms of this kind.
fn went_back(world: &World) -> Vec<String> {
    let alarms = world.drive(world.engine.alarms(false, 10)).unwrap();
    let told = alarms.into_iter().filter(|alarm| alarm.kind == AlarmKind::StoreWentBack);
    told.map(|alarm| alarm.message.to_string()).collect()
}

#[test]
fn a_store_that_lost_what_it_confirmed_raises_an_alarm_that_says_how_much() {
    let store = Arc::new(SharedStore::new([7; 32]));
    let world = World::over(store.clone(), 1);
    world.be_heard();
    let before = block_on(store.servers()).unwrap().remove(0);
    world.pass(7_000);
    world.be_heard();
    // It fails over to a replica that was behind.
    block_on(store.register(before)).unwrap();
    world.pass(1_000);
    assert_eq!(went_back(&world), Vec::<String>::new());
    world.be_heard();
    world.serve();
    let told = went_back(&world);
    assert!(told.len() == 1 && told[0].contains("the last 8s before"), "{told:?}");
    world.pass(1_000);
    world.be_heard();
    world.serve();
    assert_eq!(went_back(&world), told, "it is reported once");
}

#[test]
fn a_server_that_others_forgot_meanwhile_raises_no_alarm() {
    let store = Arc::new(SharedStore::new([7; 32]));
    let world = World::over(store.clone(), 1);
    world.be_heard();
    let me = block_on(store.servers()).unwrap().remove(0).id;
    block_on(store.leave(me)).unwrap();
    world.be_away_unserved(i64::try_from(SERVER_FORGOTTEN_AFTER.0).unwrap());
    world.be_heard();
    world.serve();
    assert_eq!(went_back(&world), Vec::<String>::new());
    block_on(store.leave(me)).unwrap();
    world.be_away_unserved(1_000);
    world.be_heard();
    world.serve();
    assert_eq!(went_back(&world).len(), 1, "nobody forgets it within a second");
}
