//! Counts the index entries that PostgreSQL reads for claims and releases. PostgreSQL plans these statements with statistics
//! from when the table was empty or had no claimed attempts.

use std::sync::Arc;

use windlass_conformance::{block_on, claim};
use windlass_core::{Flow, Millis};
use windlass_store::{Change, Claimed, Claims as _, Limit, LimitChange, Outcome, Starts, Store};
use windlass_testkit::{Database, PostgresProduct};

use super::{database, open};
use crate::{
    disturbed::{NOW, SESSION, add_flow, claim_request, new_task, renew, until},
    story::name,
};

/// Tasks that wait.
const WAITING: u64 = 2_000;

/// Claims, of 20 attempts each.
const CLAIMS: usize = 10;

/// Returns the number of index entries that the store has read. Waits until all its connections have reported: at least 200.
fn read(database: &Database<'_, PostgresProduct>, index: &str) -> u64 {
    let read =
        format!("SELECT coalesce(idx_tup_read, 0) FROM pg_stat_user_indexes WHERE indexrelname = '{index}'");
    until("the entries that were read are reported", || {
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
        let has_others = database.ask(others).unwrap() != "0";
        let read: u64 = database.ask(&read).unwrap().parse().unwrap();
        (!has_others && read >= 200).then_some(read)
    })
}

fn analyze(database: &Database<'_, PostgresProduct>) {
    // Otherwise the server may analyze the table again at any time.
    database.ask("ALTER TABLE windlass_wait SET (autovacuum_enabled = false)").unwrap();
    database.ask("VACUUM ANALYZE windlass_wait").unwrap();
}

/// Commits many tasks of one queue, and this change. Returns their flow.
fn fill(store: &dyn Store, change: Option<Change>) -> Arc<Flow> {
    let flow = add_flow(store);
    renew(store);
    let changes: Vec<Change> = (1..=WAITING).map(|number| new_task(&flow, number)).chain(change).collect();
    let outcomes = block_on(store.commit(changes)).unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Committed));
    flow
}

fn claim_all(store: &dyn Store) -> Vec<Claimed> {
    let claims = (0..CLAIMS).map(|_| block_on(claim(store, SESSION, &claim_request(20), NOW)).unwrap());
    let claimed: Vec<Claimed> = claims.flatten().collect();
    assert_eq!(claimed.len(), CLAIMS * 20);
    claimed
}

fn limit(starts: Option<Starts>) -> Change {
    let running = starts.is_none().then_some(1_000);
    let limit =
        Limit { name: name("many"), queue: name("module"), command: None, per_key: false, running, starts };
    Change::Limit(LimitChange { name: name("many"), limit: Some(limit) })
}

#[test]
fn a_claim_does_not_read_the_whole_queue() {
    for change in [None, Some(limit(None))] {
        let Some(database) = database() else { return };
        let store = open(&database.url()).unwrap();
        analyze(&database);
        fill(&*store, change);
        claim_all(&*store);
        drop(store);
        let read = read(&database, "windlass_wait_ready");
        assert!(read < WAITING, "{read} entries");
    }
}

#[test]
fn what_is_claimed_is_not_read_as_a_whole() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let starts = Starts { count: 10_000, per: Millis::from_secs(60) };
    fill(&*store, Some(limit(Some(starts))));
    analyze(&database);
    for claimed in claim_all(&*store) {
        block_on(store.release(SESSION, claimed.id, None, NOW)).unwrap();
    }
    drop(store);
    let read = read(&database, "windlass_wait_claimed");
    assert!(read < 5_000, "{read} entries");
}

/// It would read the entries of attempts that were claimed a moment ago, with each commit.
#[test]
fn a_server_that_is_alone_does_not_search_for_ready_attempts_to_notify_others() {
    // More than the claims read: at most 20 + 40 + … + 200 entries, if PostgreSQL keeps those of claimed attempts.
    const COMMITS: u64 = 2_000;
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let flow = fill(&*store, None);
    claim_all(&*store);
    for number in WAITING + 1..=WAITING + COMMITS {
        block_on(store.commit(vec![new_task(&flow, number)])).unwrap();
    }
    drop(store);
    let read = read(&database, "windlass_wait_ready");
    assert!(read < COMMITS, "{read} entries");
}
