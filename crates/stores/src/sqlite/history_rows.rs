//! Rows of history, and which of them are to be announced.

use rusqlite::{Connection, Statement, params};
use windlass_store::{Announced, TaskChange, stored};

use super::{
    checksum::{Checksum, Table},
    directory::Place,
    encoding::{act_code, to_integer},
    error::Fault,
    outbox::OutboxRows,
};

/// The statements that write history, and the number of its next row.
pub(super) struct HistoryRows<'c> {
    insert: Statement<'c>,
    outbox: OutboxRows<'c>,
    next: i64,
}

impl<'c> HistoryRows<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            insert: connection.prepare(
                "INSERT INTO history (seq, task, previous, first, count, act, events, result, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?,
            outbox: OutboxRows::new(connection)?,
            next: connection
                .query_row("SELECT coalesce(max(seq), 0) + 1 FROM history", [], |row| row.get(0))?,
        })
    }

    /// Writes what happened by a change of the task at `place`, which goes on to its newest row.
    pub(super) fn write(&mut self, change: &TaskChange, place: &mut Place) -> Result<(), Fault> {
        // A row for the events, which has room for one result; each further result has a row without events.
        let mut results = change.results.iter();
        let mut events = (!change.events.is_empty()).then(|| stored::write_events(&change.events));
        if events.is_some() && change.announces {
            self.outbox.keep(change.task.id, change.before, self.next)?;
        }
        let mut first = to_integer(change.before + 1);
        let mut count = change.events.len() as i64;
        loop {
            let result = results.next();
            if events.is_none() && result.is_none() {
                return Ok(());
            }
            let seq = self.next;
            self.next += 1;
            let act = result.map(|(key, _)| act_code(*key));
            let row = HistoryRow {
                seq,
                place: *place,
                first,
                count,
                act,
                events: events.as_deref(),
                result: result.map(|(_, json)| json.as_str()),
            };
            insert_history(&mut self.insert, &row)?;
            place.last = seq;
            (events, first, count) = (None, first + count, 0);
        }
    }

    /// These were announced.
    pub(super) fn forget(&mut self, announced: &[Announced]) -> Result<(), Fault> {
        self.outbox.forget(announced)
    }
}

/// A row of history: the events of a commit, and a result that came with them.
struct HistoryRow<'r> {
    seq: i64,
    /// Whose it is, and the row before it; 0 = it is the first.
    place: Place,
    /// Number of the first event.
    first: i64,
    count: i64,
    act: Option<i64>,
    events: Option<&'r [u8]>,
    result: Option<&'r str>,
}

fn insert_history(insert: &mut Statement<'_>, row: &HistoryRow<'_>) -> Result<(), Fault> {
    let HistoryRow { seq, place, first, count, act, events, result } = *row;
    let previous = (place.last != 0).then_some(place.last);
    let checksum = Checksum::of(Table::History)
        .number(seq)
        .number(place.task)
        .optional_number(previous)
        .number(first)
        .number(count)
        .optional_number(act)
        .optional_blob(events)
        .optional_text(result)
        .finish();
    insert.execute(params![seq, place.task, previous, first, count, act, events, result, checksum])?;
    Ok(())
}
