//! What applications enqueued.

use std::{
    thread,
    time::{Duration, Instant},
};

use windlass_conformance::block_on;
use windlass_store::{Settlement, Store as _};

use super::{database, open};
use crate::enqueued::Shop;

fn submit(document: &str) -> String {
    format!("call windlass_submit('{document}', @task)")
}

#[test]
fn it_waits_until_it_is_settled() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let ask = |statement: &str| database.ask(statement).unwrap();
    Shop { store: &*store, ask: &ask, submit: &submit }.waits_until_it_is_settled();
}

#[test]
fn they_are_settled_by_the_server_that_leads_this_service() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let ask = |statement: &str| database.ask(statement).unwrap();
    Shop { store: &*store, ask: &ask, submit: &submit }.is_settled_by_its_leader();
}

#[test]
fn large_ones_come_in_parts() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let ask = |statement: &str| database.ask(statement).unwrap();
    let many = "call windlass_submit(json_object('flow', 'f', 'text', repeat('x', 1900000)), @task)";
    Shop { store: &*store, ask: &ask, submit: &|_: &str| many.to_owned() }.comes_in_parts();
}

#[test]
fn tables_of_version_1_get_there() {
    let Some(database) = database() else { return };
    open(&database.url()).unwrap();
    let before =
        "drop procedure windlass_start; drop procedure windlass_submit; drop table windlass_enqueued;
        drop table windlass_outbox; drop table windlass_lock_floor;
        drop table windlass_record; drop table windlass_journal;
        alter table windlass_session drop column extensions;
        update windlass_meta set schema_version = 1";
    database.ask(before).unwrap();
    assert!(database.ask(&submit("{}")).is_err());
    open(&database.url()).unwrap();
    let schema =
        database.ask("select concat(schema_version, '|', readable_from) from windlass_meta").unwrap();
    assert_eq!(schema, "6|6", "servers that know no records may not go on");
    database.ask(&submit("{}")).unwrap();
}

/// A start that was cut off in the middle of a step is gone on with by the next one.
#[test]
fn a_step_of_the_schema_may_be_made_twice() {
    let Some(database) = database() else { return };
    open(&database.url()).unwrap();
    database.ask("update windlass_meta set schema_version = 1").unwrap();
    open(&database.url()).unwrap();
    database.ask(&submit("{}")).unwrap();
}

/// Where an application does without a strict mode, nothing of a key is cut off, so no two are taken as one.
#[test]
fn keys_that_differ_at_their_end_are_two() {
    let Some(database) = database() else { return };
    open(&database.url()).unwrap();
    for end in ["a", "b"] {
        let call = format!(
            "set sql_mode = ''; call windlass_start('f', null, concat(repeat('x', 255), '{end}'), @task)"
        );
        database.ask(&call).unwrap();
    }
    assert_eq!(database.ask("select count(*) from windlass_enqueued").unwrap(), "2");
}

/// An application that has locked what is long settled, and takes its time, holds up nothing.
#[test]
fn locks_of_an_application_are_not_waited_for() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let enqueued = store.enqueued().unwrap();
    let ask = |statement: &str| database.ask(statement).unwrap();
    let stand = || {
        ask(&submit("{}"));
        let id = block_on(enqueued.waiting(1, 0)).unwrap()[0].id;
        block_on(enqueued.settle(vec![(id, Settlement::StandsFor(id))], None))
    };
    stand().unwrap();
    thread::scope(|scope| {
        let application = scope.spawn(|| {
            let locks = "set session transaction isolation level read committed;
                begin; select 1 from windlass_enqueued for update; select sleep(20)";
            database.ask(locks)
        });
        let asleep = "select coalesce(max(id), 0) from information_schema.processlist
            where db = database() and info = 'select sleep(20)'";
        let until = Instant::now() + Duration::from_secs(10);
        let mut connection = ask(asleep);
        while connection == "0" {
            assert!(Instant::now() < until, "it has its locks");
            connection = ask(asleep);
        }
        let settled = stand();
        let has_locks = !application.is_finished();
        ask(&format!("kill {connection}"));
        assert_eq!((settled.unwrap(), has_locks), (1, true));
    });
}
