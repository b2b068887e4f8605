//! How many entries of an index the database reads. Its plans are made when the tables are empty, as the queues of most servers
//! are most of the time.

use windlass_conformance::{block_on, claim};
use windlass_store::{Change, Limit, LimitChange, Outcome, Store};

use super::{database, open};
use crate::{
    disturbed::{NOW, SESSION, add_flow, claim_request, new_task, renew, until},
    story::name,
};

/// Tasks that wait.
const WAITING: u64 = 2_000;

/// Claims, of 20 attempts each.
const CLAIMS: usize = 10;

/// Claims from a long queue, with this change before. Returns how many entries were read of the index of what is ready.
fn read_by_claims(change: Option<Change>) -> Option<u64> {
    let database = database()?;
    let store = open(&database.url()).unwrap();
    // From now on the database takes the table for an empty one.
    database.ask("VACUUM ANALYZE windlass_wait").unwrap();
    let flow = add_flow(&*store);
    renew(&*store);
    let changes: Vec<Change> = (1..=WAITING).map(|number| new_task(&flow, number)).chain(change).collect();
    let outcomes = block_on(store.commit(changes)).unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Committed));
    for _ in 0..CLAIMS {
        assert_eq!(block_on(claim(&*store, SESSION, &claim_request(20), NOW)).unwrap().len(), 20);
    }
    // A connection reports what it has read when it ends.
    drop(store);
    until("the store has disconnected", || {
        let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
        (database.ask(others).unwrap() == "0").then_some(())
    });
    let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'windlass_wait_ready'";
    Some(database.ask(read).unwrap().parse().unwrap())
}

#[test]
fn a_claim_does_not_read_the_whole_queue() {
    let Some(read) = read_by_claims(None) else { return };
    assert!((200..WAITING).contains(&read), "{read} entries");
}

#[test]
fn a_claim_under_a_limit_does_not_read_the_whole_queue() {
    let limit = Limit {
        name: name("many"),
        queue: name("module"),
        command: None,
        per_key: false,
        running: Some(1_000),
        starts: None,
    };
    let limit = Change::Limit(LimitChange { name: name("many"), limit: Some(limit) });
    let Some(read) = read_by_claims(Some(limit)) else { return };
    assert!((200..WAITING).contains(&read), "{read} entries");
}
