//! The outbox: which rows of history are to be announced.

use rusqlite::{Connection, Row, Statement, params};
use windlass_core::{Event, TaskId};
use windlass_store::{Announced, DamagedTask, Unannounced, stored};

use crate::sqlite::{
    checksum::{Checksum, Table},
    encoding::{from_integer, task_id, to_integer},
    error::{Fault, of_task, or_row},
    read::from_sql,
};

/// The statements that write the outbox.
pub(in crate::sqlite) struct OutboxRows<'c> {
    insert: Statement<'c>,
    delete: Statement<'c>,
}

impl<'c> OutboxRows<'c> {
    pub(in crate::sqlite) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            insert: connection
                .prepare("INSERT INTO outbox (id, after, seq, checksum) VALUES (?1, ?2, ?3, ?4)")?,
            delete: connection.prepare("DELETE FROM outbox WHERE id = ?1 AND after = ?2")?,
        })
    }

    /// Adds the events of a task behind event number `after`, which are in this row of history.
    pub(in crate::sqlite) fn keep(&mut self, task: TaskId, after: u64, seq: i64) -> Result<(), Fault> {
        let (id, after) = (task.to_bytes(), to_integer(after));
        let checksum = Checksum::of(Table::Outbox).blob(&id).number(after).number(seq).finish();
        self.insert.execute(params![id, after, seq, checksum])?;
        Ok(())
    }

    /// These were announced.
    pub(in crate::sqlite) fn forget(&mut self, announced: &[Announced]) -> Result<(), Fault> {
        for Announced { task, after } in announced {
            self.delete.execute(params![task.to_bytes(), to_integer(*after)])?;
        }
        Ok(())
    }
}

/// As a limit of rows: damaged ones are not counted, so where to end is known as they are read.
const NO_LIMIT: i64 = -1;

/// What is in the outbox, each with its row of history where that is there.
pub(in crate::sqlite) fn select_unannounced() -> String {
    format!(
        "SELECT {}, {} FROM outbox LEFT JOIN history ON history.seq = outbox.seq
         WHERE outbox.id > ?2 ORDER BY outbox.id, outbox.after LIMIT ?1",
        Table::Outbox.select(),
        Table::History.select()
    )
}

/// At most `limit` entries of the outbox, of tasks above `above`: those of the oldest tasks first; those of one task in the
/// order in which they happened. Damaged rows are added to these. The entries behind one of the same task are left out: they
/// would overtake the events in that row.
pub(in crate::sqlite) fn unannounced(
    connection: &Connection,
    above: TaskId,
    limit: usize,
) -> Result<Vec<Result<Unannounced, DamagedTask>>, Fault> {
    let mut statement = connection.prepare_cached(&select_unannounced())?;
    let mut rows = statement.query(params![NO_LIMIT, above.to_bytes()])?;
    let (mut found, mut sound, mut stopped) = (Vec::new(), 0, None);
    while sound < limit
        && let Some(row) = rows.next()?
    {
        let task = task_id(row, 0)?;
        if stopped == Some(task) {
            continue;
        }
        let after = from_integer(row.get(1)?);
        let read = events(row, after).map(|events| Unannounced { task, after, events });
        let read = read.map_err(|fault| of_task(task, fault));
        let read = or_row(read, |fault| DamagedTask::announcement(&task.to_string(), fault))?;
        match &read {
            Ok(_) => sound += 1,
            Err(_) => stopped = Some(task),
        }
        found.push(read);
    }
    Ok(found)
}

fn events(row: &Row<'_>, after: u64) -> Result<Vec<Event>, Fault> {
    Table::Outbox.check(row, 0)?;
    let from = Table::Outbox.width();
    let damaged = |what| Err(Fault::damaged(format!("what is to be announced {what}")));
    let Some(first) = row.get::<_, Option<i64>>(from + 3)? else {
        return damaged("is missing in the history");
    };
    Table::History.check(row, from)?;
    match row.get_ref(from + 6)?.as_blob_or_null().map_err(from_sql)? {
        Some(events) if from_integer(first) == after + 1 => Ok(stored::read_events(events)?),
        _ => damaged("is not what its row of history has"),
    }
}

/// Whether anything of a task is to be announced.
pub(in crate::sqlite) const IS_UNANNOUNCED: &str = "SELECT 1 FROM outbox WHERE id = ?1 LIMIT 1";

/// What is to be announced of a task, at most `?2`.
pub(in crate::sqlite) const DELETE_UNANNOUNCED: &str = "DELETE FROM outbox WHERE id = ?1 AND after IN
    (SELECT after FROM outbox WHERE id = ?1 LIMIT ?2)";
