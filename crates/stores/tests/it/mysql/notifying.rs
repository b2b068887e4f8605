//! Servers on one MariaDB notify each other of attempts in a queue where there were none.

use std::{thread, time::Duration};

use windlass_conformance::block_on;
use windlass_store::{Outcome, Store as _};
use windlass_testkit::{Database, MariaDbProduct};

use super::{database, open};
use crate::disturbed::{add_flow, new_task, until};

/// The connections that wait for notifications: their numbers, each with that of its statement.
fn sleeping(database: &Database<'_, MariaDbProduct>) -> Vec<(u64, u64)> {
    let statement = "select concat(id, ' ', query_id) from information_schema.processlist
        where db = database() and info like 'SELECT SLEEP(20) /* windlass waits%' order by id";
    let numbers = |line: &str| {
        let (id, statement) = line.split_once(' ')?;
        Some((id.parse().ok()?, statement.parse().ok()?))
    };
    database.ask(statement).unwrap().lines().filter_map(numbers).collect()
}

#[test]
fn an_attempt_in_an_empty_queue_wakes_the_other_servers() {
    let Some(database) = database() else { return };
    let one = open(&database.url()).unwrap();
    let of = |count: usize| Some(sleeping(&database)).filter(|all| all.len() == count);
    let own = until("the first server waits for notifications", || of(1))[0];
    let _other = open(&database.url()).unwrap();
    let before = until("both servers wait for notifications", || of(2));
    let flow = add_flow(&*one);
    assert_eq!(of(2), Some(before.clone()), "a flow is not an attempt");
    assert_eq!(block_on(one.commit(vec![new_task(&flow, 1)])).unwrap(), [Outcome::Committed]);
    let after = until("the other server is woken", || of(2).filter(|after| *after != before));
    assert!(after.contains(&own), "the server does not notify itself: {before:?} {after:?}");
    assert_eq!(block_on(one.commit(vec![new_task(&flow, 2)])).unwrap(), [Outcome::Committed]);
    // Time for a notification, which is sent after the commit.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(of(2), Some(after), "the queue was not empty any more");
}
