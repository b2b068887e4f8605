//! Calls that are dropped, connections that are cut, a server that dies: what was answered holds, and nothing stays open.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use windlass_conformance::{block_on, claim};
use windlass_core::{Flow, OnFailure};
use windlass_store::{Change, Claims as _, Cluster as _, Outcome, Queries as _, Store as _, StoreError};
use windlass_stores::mysql::MySqlStore;
use windlass_testkit::{Database, MariaDb, MariaDbProduct, Product as _, Proxy};

use super::{database, open};
use crate::{
    disturbed::{
        Answer, COMMITTED_MIN, NOW, SESSION, add_flow, answers_hold, claim_request, commit_while, drop_after,
        id, kill_twice, line, new_task, port_of, renew,
    },
    newest, story,
};

/// Between two polls of a call that is dropped.
pub(super) const APART: Duration = Duration::from_micros(100);

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

#[test]
fn calls_may_be_dropped_anywhere() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&*store);
    renew(&*store);
    let (mut dropped, mut ended, mut claimed) = (0, 0, 0);
    // With few polls nothing ends. The last limits, up to 3.2 s, are longer than any call takes.
    for polls in (0..40).chain((40..400).step_by(20)).chain((400..40_000).step_by(8000)) {
        let id = id(polls as u64 + 1);
        match drop_after(polls, APART, store.commit(vec![new_task(&flow, polls as u64 + 1)])) {
            Some(outcomes) => {
                assert_eq!(outcomes.unwrap(), [Outcome::Committed]);
                assert!(block_on(store.load(&[id])).unwrap()[0].is_some());
                ended += 1;
            }
            None => dropped += 1,
        }
        claimed += drop_after(polls, APART, claim(&*store, SESSION, &claim_request(1), NOW))
            .map_or(0, |got| got.unwrap().len());
        drop_after(polls, APART, store.lost(NOW, 10));
        drop_after(polls, APART, store.load(&[id]));
    }
    assert!(dropped > 2 && ended > 3 && claimed > 0, "{dropped} dropped, {ended} ended, {claimed} claimed");
    nothing_is_open(&database);
    // Whatever was left half done, all of each task is there or nothing.
    let whole = "select count(*) from windlass_task t left join windlass_state s on s.task = t.id
        left join windlass_history h on h.task = t.id where s.task is null or h.task is null";
    assert_eq!(database.ask(whole).unwrap(), "0");
    assert_eq!(database.ask("select count(*) from windlass_claim").unwrap(), "0");
}

/// Commits a task, and then a line of log of it.
fn commit(store: &MySqlStore, flow: &Arc<Flow>, number: u64) -> Answer {
    let outcomes = block_on(store.commit(vec![new_task(flow, number)]));
    // Lines may be lost with their connection, and the next ones are written nevertheless.
    drop(block_on(store.commit(vec![line(number)])));
    Answer { number, changes: 1, outcomes }
}

#[test]
fn commits_whose_connection_is_cut_come_to_what_was_answered() {
    let Some(database) = database() else { return };
    let flow = add_flow(&*open(&database.url()).unwrap());
    let proxy = Proxy::start(port_of(&database.url())).unwrap();
    let store = open(&database.url_at(proxy.port())).unwrap();
    let cut_often = || {
        for cut in 0..60_u64 {
            // Later ones leave more time, also to a machine that has much else to do.
            thread::sleep(Duration::from_millis(7 + cut % 13 + 2 * cut));
            proxy.cut();
            thread::sleep(Duration::from_millis(1));
            proxy.heal();
        }
    };
    let answers = commit_while(cut_often, |number| commit(&store, &flow, number));
    let (committed, failed) = answers_hold(&*store, &answers);
    assert!(committed >= COMMITTED_MIN, "{committed} committed, {failed} failed");
    nothing_is_open(&database);
}

#[test]
fn a_server_that_dies_and_comes_back_loses_nothing() {
    let Some(server) = MariaDb::start().unwrap() else { return };
    let database = server.database().unwrap();
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&*store);
    let answers = commit_while(|| kill_twice(&server), |number| commit(&store, &flow, number));
    let (committed, failed) = answers_hold(&*store, &answers);
    assert!(committed >= COMMITTED_MIN, "{committed} committed, {failed} failed");
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
    let flow = add_flow(&*store);
    renew(&*store);
    let before = store.round_trips().unwrap();
    let tasks: Vec<Change> = (1..=200).map(|number| new_task(&flow, number)).collect();
    assert_eq!(block_on(store.commit(tasks)).unwrap(), vec![Outcome::Committed; 200]);
    assert_eq!(store.round_trips().unwrap() - before, 1);
    let before = store.round_trips().unwrap();
    assert_eq!(block_on(claim(&*store, SESSION, &claim_request(100), NOW)).unwrap().len(), 100);
    assert_eq!(store.round_trips().unwrap() - before, 2);
}

#[test]
fn the_newest_version_of_a_flow_is_asked_once_in_a_while() {
    let Some(database) = database() else { return };
    newest::is_asked_once_in_a_while(&*open(&database.url()).unwrap());
}

#[test]
fn the_newest_version_of_a_flow_is_the_same_everywhere() {
    let Some(database) = database() else { return };
    let [one, other] = [open(&database.url()).unwrap(), open(&database.url()).unwrap()];
    newest::is_the_same_everywhere(&*one, &*other);
}
