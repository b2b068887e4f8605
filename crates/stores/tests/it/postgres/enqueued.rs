//! What applications enqueued.

use super::{database, open};
use crate::enqueued::Shop;

fn submit(document: &str) -> String {
    format!("select windlass_submit('{document}')")
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
    let many = "select windlass_submit(jsonb_build_object('flow', 'f', 'text', repeat('x', 1900000)))";
    Shop { store: &*store, ask: &ask, submit: &|_: &str| many.to_owned() }.comes_in_parts();
}

#[test]
fn tables_of_version_1_get_there() {
    let Some(database) = database() else { return };
    open(&database.url()).unwrap();
    let before = "drop function windlass_start; drop function windlass_submit; drop table windlass_enqueued;
        drop table windlass_outbox; drop table windlass_lock_floor;
        drop table windlass_record; drop table windlass_journal;
        alter table windlass_session drop column extensions;
        update windlass_meta set schema_version = 1";
    database.ask(before).unwrap();
    assert!(database.ask(&submit("{}")).is_err());
    open(&database.url()).unwrap();
    let schema = database.ask("select schema_version, readable_from from windlass_meta").unwrap();
    assert_eq!(schema, "6|6", "servers that know no records may not go on");
    database.ask(&submit("{}")).unwrap();
}
