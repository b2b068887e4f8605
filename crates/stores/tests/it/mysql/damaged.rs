//! Damaged rows that are of no task.

use super::{database, open};
use crate::damaged_sql::{self, Bench};

fn run(case: fn(&Bench<'_>)) {
    let Some(database) = database() else { return };
    case(&Bench {
        open: &|| open(&database.url()).unwrap(),
        ask: &|sql| drop(database.ask(sql).unwrap()),
        junk: "x'01ff'",
    });
}

#[test]
fn the_other_rows_are_read() {
    run(damaged_sql::the_other_rows_are_read);
}

#[test]
fn a_damaged_lock_is_closed() {
    run(damaged_sql::a_damaged_lock_is_closed);
}

#[test]
fn damaged_events_hold_up_their_own_task() {
    run(damaged_sql::damaged_events_hold_up_their_own_task);
}

#[test]
fn a_damaged_limit_closes_its_queue() {
    run(damaged_sql::a_damaged_limit_closes_its_queue);
}

#[test]
fn a_damaged_task_takes_up_no_place() {
    run(damaged_sql::a_damaged_task_takes_up_no_place);
}
