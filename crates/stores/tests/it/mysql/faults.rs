//! Calls that are dropped, connections that are cut, a server that dies: what was answered holds, and nothing stays open.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use windlass_core::{ActKey, Effect, Flow, Millis, OnFailure, TaskId, waits};
use windlass_engine::{
    conformance::block_on,
    ports::{Change, LogLine, Now, Outcome, PollState, SessionId, SessionRenewal, Store, StoreError, Wish},
};
use windlass_stores::mysql::MySqlStore;
use windlass_testkit::{Database, MariaDb, MariaDbProduct, Product as _, Proxy};

use super::{database, open};
use crate::story::{self, Story};

pub(super) const NOW: Now = Now { wall: story::START, mono: Millis(5_000) };
const SESSION: SessionId = SessionId(1);

/// Adds a flow of one step.
pub(super) fn add_flow(store: &MySqlStore) -> Arc<Flow> {
    let flow = story::flow("flow", 1, OnFailure::Rollback);
    assert_eq!(block_on(store.commit(vec![story::flow_change(&flow)])).unwrap(), [Outcome::Committed]);
    flow
}

pub(super) fn id(number: u64) -> TaskId {
    story::id(0, number)
}

/// What takes a new task in.
pub(super) fn new_task(flow: &Arc<Flow>, number: u64) -> Change {
    let mut change = Story::new(flow, id(number), 0, &[]).accept(0);
    if let Change::Task(change) = &mut change {
        change.waits = waits(&change.task).into_iter().map(Effect::Wait).collect();
    }
    change
}

pub(super) fn renew(store: &MySqlStore) {
    let lease = Millis::from_secs(600);
    let renewal = SessionRenewal {
        session: SESSION,
        poll: PollState::Open(1),
        lease,
        lease_unpolled: lease,
        worker: None,
    };
    block_on(store.renew(vec![renewal], NOW)).unwrap();
}

pub(super) fn wish(free: u32) -> Vec<Wish> {
    vec![Wish { module: story::name("module"), commands: None, free }]
}

/// Waits until no transaction is open on the server in this database.
fn nothing_is_open(database: &Database<'_, MariaDbProduct>) {
    let open = "select count(*) from information_schema.innodb_trx t
        join information_schema.processlist p on p.id = t.trx_mysql_thread_id where p.db = database()";
    let until = Instant::now() + Duration::from_secs(20);
    // The question is a transaction itself, but in no table of ours.
    while database.ask(open).unwrap() != "0" {
        assert!(Instant::now() < until, "a transaction stays open");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Polls a future so often, a tenth of a millisecond apart, and drops it, if it has not ended by then.
pub(super) fn drop_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Some(done);
        }
        thread::sleep(Duration::from_micros(100));
    }
    None
}

#[test]
fn calls_may_be_dropped_anywhere() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&store);
    renew(&store);
    let (mut dropped, mut ended, mut claimed) = (0, 0, 0);
    // Few of them end nothing, and the last are more than anything takes.
    for polls in (0..40).chain((40..400).step_by(20)) {
        let id = id(polls as u64 + 1);
        match drop_after(polls, store.commit(vec![new_task(&flow, polls as u64 + 1)])) {
            Some(outcomes) => {
                assert_eq!(outcomes.unwrap(), [Outcome::Committed]);
                assert!(block_on(store.load(&[id])).unwrap()[0].is_some());
                ended += 1;
            }
            None => dropped += 1,
        }
        claimed += drop_after(polls, store.claim(SESSION, &wish(1), NOW)).map_or(0, |got| got.unwrap().len());
        drop_after(polls, store.lost(NOW, 10));
        drop_after(polls, store.load(&[id]));
    }
    assert!(dropped > 2 && ended > 3 && claimed > 0, "{dropped} dropped, {ended} ended, {claimed} claimed");
    nothing_is_open(&database);
    // Whatever was left half done, all of each task is there or nothing.
    let whole = "select count(*) from windlass_task t left join windlass_state s on s.task = t.id
        left join windlass_history h on h.task = t.id where s.task is null or h.task is null";
    assert_eq!(database.ask(whole).unwrap(), "0");
    assert_eq!(database.ask("select count(*) from windlass_claim").unwrap(), "0");
}

/// Commits tasks one after the other until told to stop, and gives their numbers with what was answered.
fn commit_until(
    stop: &AtomicBool,
    store: &MySqlStore,
    flow: &Arc<Flow>,
) -> Vec<(u64, Result<Vec<Outcome>, StoreError>)> {
    let mut answers = Vec::new();
    for number in 1.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // With a line of log the rows are read before they are written, in another trip.
        let line = LogLine {
            task: id(number),
            key: ActKey::forward(0),
            attempt: 1,
            at: NOW.wall,
            line: "line".into(),
        };
        let answer = block_on(store.commit(vec![new_task(flow, number)]));
        let logged = block_on(store.commit(vec![Change::Logs(vec![line])]));
        // Lines may be lost with their connection, and the next ones are written all the same.
        drop(logged);
        answers.push((number, answer));
    }
    answers
}

/// Whatever was answered is so: a commit that was answered is there once, one that failed is not there at all.
fn answers_hold(store: &MySqlStore, answers: &[(u64, Result<Vec<Outcome>, StoreError>)]) -> (usize, usize) {
    let (mut committed, mut failed) = (0, 0);
    for (number, answer) in answers {
        let there = block_on(store.load(&[id(*number)])).unwrap().remove(0).is_some();
        match answer {
            Ok(outcomes) => {
                assert_eq!(outcomes[..], [Outcome::Committed], "task {number}");
                assert!(there, "task {number} was committed and is not there");
                committed += 1;
            }
            Err(error) => {
                // Where nobody could be asked what became of it, the error says so.
                assert!(!there || error.to_string().contains("cannot be told"), "task {number}: {error}");
                failed += 1;
            }
        }
    }
    (committed, failed)
}

#[test]
fn commits_whose_connection_is_cut_come_to_what_was_answered() {
    let Some(database) = database() else { return };
    let flow = add_flow(&open(&database.url()).unwrap());
    let port = database.url().rsplit_once(':').unwrap().1.split_once('/').unwrap().0.parse().unwrap();
    let proxy = Proxy::start(port).unwrap();
    let store = open(&database.url_at(proxy.port())).unwrap();
    let stop = AtomicBool::new(false);
    let answers = thread::scope(|scope| {
        let committing = scope.spawn(|| commit_until(&stop, &store, &flow));
        for cut in 0..60_u64 {
            // Later ones leave more time, also to a machine that has much else to do.
            thread::sleep(Duration::from_millis(7 + cut % 13 + 2 * cut));
            proxy.cut();
            thread::sleep(Duration::from_millis(1));
            proxy.heal();
        }
        stop.store(true, Ordering::Relaxed);
        committing.join().unwrap()
    });
    let (committed, failed) = answers_hold(&store, &answers);
    assert!(committed > 20, "{committed} committed, {failed} failed");
    nothing_is_open(&database);
}

#[test]
fn a_server_that_dies_and_comes_back_loses_nothing() {
    let Some(server) = MariaDb::start().unwrap() else { return };
    let database = server.database().unwrap();
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&store);
    let stop = AtomicBool::new(false);
    let answers = thread::scope(|scope| {
        let committing = scope.spawn(|| commit_until(&stop, &store, &flow));
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(300));
            server.kill().unwrap();
            server.restart().unwrap();
        }
        thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        committing.join().unwrap()
    });
    let (committed, failed) = answers_hold(&store, &answers);
    assert!(committed > 5, "{committed} committed, {failed} failed");
}

#[test]
fn a_server_that_does_not_answer_is_given_up_in_time_and_used_again() {
    let Some(server) = MariaDb::start_with(MariaDbProduct::QUICK).unwrap() else { return };
    let database = server.database().unwrap();
    let store = open(&database.url()).unwrap();
    server.stop().unwrap();
    let error = block_on(store.flows()).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let change = story::flow_change(&story::flow("flow", 1, OnFailure::Rollback));
    assert!(matches!(block_on(store.commit(vec![change])), Err(StoreError::Unavailable(_))));
    server.restart().unwrap();
    assert!(block_on(store.flows()).unwrap().is_empty());
}

#[test]
fn a_batch_of_new_tasks_is_one_trip_and_others_are_two() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&store);
    renew(&store);
    let before = store.trips();
    let tasks: Vec<Change> = (1..=200).map(|number| new_task(&flow, number)).collect();
    assert_eq!(block_on(store.commit(tasks)).unwrap(), vec![Outcome::Committed; 200]);
    assert_eq!(store.trips() - before, 1);
    let before = store.trips();
    assert_eq!(block_on(store.claim(SESSION, &wish(100), NOW)).unwrap().len(), 100);
    assert_eq!(store.trips() - before, 2);
}
