//! What the leader of a service writes in MariaDB.

use super::{database, open, wait};
use crate::{
    leading::{Shared, a_release_is_heard, fences_never_fall},
    snapshot::fill,
};

const SLEEP: &str = "select sleep(3)";
const ASLEEP: &str = "select count(*) from information_schema.processlist
        where db = database() and info = 'select sleep(3)'";

#[test]
fn a_takeover_of_a_lease_is_waited_for() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let ask = |statement: &str| database.ask(statement).unwrap();
    Shared { store: &*store, ask: &ask, sleep: SLEEP, asleep: ASLEEP }.a_takeover_is_waited_for();
}

#[test]
fn a_released_lease_is_heard_of() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    wait(a_release_is_heard(store));
}

#[test]
fn checking_a_lease_takes_no_round_trip() {
    let Some(database) = database() else { return };
    let store = open(&database.url()).unwrap();
    let ask = |statement: &str| database.ask(statement).unwrap();
    Shared { store: &*store, ask: &ask, sleep: SLEEP, asleep: ASLEEP }.a_check_takes_no_trip();
}

#[test]
fn fences_never_fall_over_restarts_and_imports() {
    let Some((into, from)) = database().zip(database()) else { return };
    fill(&*open(&from.url()).unwrap());
    wait(fences_never_fall(into.url(), from.url()));
}
