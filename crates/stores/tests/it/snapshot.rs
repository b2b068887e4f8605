//! An export of a database is what was in it at one moment, whatever is written to it meanwhile.

use std::io::{self, Write};

use windlass_conformance::block_on;
use windlass_store::{Change, Outcome, RowSnapshot, Snapshot, Store, archive, examine};

use crate::{
    disturbed::{add_flow, line, new_task},
    story,
};

/// More than are read at once.
pub(crate) const TASKS: u64 = 150;

/// The number of bytes of an export that are in the middle of the tasks that are read first.
const IN_THE_MIDDLE: usize = 10_000;

/// What somebody does to the database in the middle of an export. Tasks are deleted last, as a sweep does it.
pub(crate) const DISTURB: [&str; 5] = [
    "delete from windlass_outbox",
    "delete from windlass_log",
    "delete from windlass_history",
    "delete from windlass_wait",
    "delete from windlass_task",
];

/// Tasks with events and lines of log.
pub(crate) fn fill(store: &dyn Store) {
    let flow = add_flow(store);
    for number in 1..=TASKS {
        let mut task = new_task(&flow, number);
        if let Change::Task(change) = &mut task {
            change.announces = number % 2 == 0;
        }
        let changes = vec![task, line(number)];
        assert_eq!(block_on(store.commit(changes)).unwrap(), [Outcome::Committed, Outcome::Committed]);
    }
}

/// Exports all of it, and does something to the database once some tasks are written.
pub(crate) async fn export(snapshot: &mut dyn Snapshot, disturb: impl FnOnce() + Send) -> Vec<u8> {
    let mut file = Disturbed { bytes: Vec::new(), disturb: Some(disturb) };
    let totals = archive::export(snapshot, &mut file, &mut |_| {}, story::now(0)).await.unwrap();
    assert!(file.disturb.is_none(), "it was not disturbed");
    assert!(totals.to_string().contains(&TASKS.to_string()), "{totals}");
    file.bytes
}

/// What is done to a database of [`fill`] behind the servers' back, and what is said of it then.
pub(crate) const DAMAGES: [(&str, &str); 4] = [
    ("update windlass_history set events = NAUGHT where task = FIRST", "events of task"),
    ("delete from windlass_history where task = FIRST", "0 of its 2 events are there"),
    ("delete from windlass_wait where task = FIRST", "without what would wake it"),
    ("delete from windlass_task where id = FIRST", "waits of tasks that are not there: 1"),
];

/// Everything in it is counted, and these are its problems.
pub(crate) async fn examined(snapshot: &mut dyn RowSnapshot) -> (u64, Vec<String>) {
    let findings = examine(snapshot).await.unwrap();
    assert_eq!((findings.flows, findings.open_alarms, findings.ended.len()), ((1, 1), 0, 0));
    (findings.active, findings.problems)
}

/// What is written, and what happens in the middle of it.
struct Disturbed<F> {
    bytes: Vec<u8>,
    disturb: Option<F>,
}

impl<F: FnOnce()> Write for Disturbed<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend(bytes);
        if self.bytes.len() > IN_THE_MIDDLE
            && let Some(disturb) = self.disturb.take()
        {
            disturb();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
