//! Damaged rows that are of no task.

use super::{database, open};
use crate::damaged_sql::{self, Bench};

fn run(case: fn(&Bench<'_>)) {
    let Some(database) = database() else { return };
    case(&Bench {
        open: &|| open(&database.url()).unwrap(),
        ask: &|sql| drop(database.ask(sql).unwrap()),
        junk: "'\\x01ff'::bytea",
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

#[test]
fn a_damaged_key_of_tokens_refuses_the_start_and_says_how_to_mend_it() {
    let Some(database) = database() else { return };
    drop(open(&database.url()).unwrap());
    database.ask("UPDATE windlass_meta SET token_key = '\\x00'").unwrap();
    let refused = open(&database.url()).unwrap_err().to_string();
    let (_, statement) = refused.split_once("handed out again: ").expect("it names a statement");
    let end = statement.find("::bytea)").expect("it ends there") + "::bytea)".len();
    database.ask(&statement[..end]).unwrap();
    assert!(open(&database.url()).is_ok());
}
