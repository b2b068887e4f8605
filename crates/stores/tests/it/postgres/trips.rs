//! How often something goes to the database and is waited for.

use windlass_conformance::block_on;
use windlass_store::{Ask, Change, Claimed, Cluster as _, Leave, Outcome, Store};
use windlass_stores::postgres::PostgresStore;

use super::{database, open};
use crate::disturbed::{NOW, SESSION, add_flow, claim_request, id, line, new_task, renew};

/// Commits and claims with it; gives what was claimed, and how many trips it took.
fn commit_and_claim(store: &PostgresStore, changes: Vec<Change>, free: u32) -> (Vec<Claimed>, u64) {
    let before = store.round_trips().unwrap();
    let ask = Ask { session: SESSION, claim_request: claim_request(free).remove(0) };
    let answers = block_on(store.commit_and_claim(changes, &[ask], &Leave::default(), None, NOW)).unwrap();
    assert!(answers.0.iter().all(|outcome| *outcome == Outcome::Committed));
    let claimed = answers.1.into_iter().map(|claimed| claimed.expect("nothing rules the queue"));
    (claimed.flatten().collect(), store.round_trips().unwrap() - before)
}

#[test]
fn what_is_claimed_with_a_commit_takes_no_trip_of_its_own() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let flow = add_flow(&*store);
    renew(&*store);
    let tasks = (1..=100).map(|number| new_task(&flow, number)).collect();
    let (claimed, trips) = commit_and_claim(&store, tasks, 60);
    assert_eq!((claimed.len(), trips), (60, 1));
    assert_eq!(claimed[0].id.task, id(1));
    let (claimed, trips) = commit_and_claim(&store, vec![line(1)], 60);
    assert_eq!((claimed.len(), trips), (40, 2));
}
