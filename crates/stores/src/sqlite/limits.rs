//! The rows of limits.

use rusqlite::{Connection, Row, Statement, params, types::ValueRef};
use windlass_core::Millis;
use windlass_store::{DamagedTask, Limit, LimitChange, Starts};

use super::{
    checksum::{Checksum, Table},
    encoding::{from_integer, to_integer},
    error::{Fault, or_reason},
    read::{any_text, name},
    recover::select_all,
};

/// The statements that write limits.
pub(super) struct LimitRows<'c> {
    upsert: Statement<'c>,
    delete: Statement<'c>,
}

impl<'c> LimitRows<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            upsert: connection.prepare(
                "INSERT INTO limit_rule (name, queue, command, per_key, running, starts, per, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT (name) DO UPDATE SET queue = ?2, command = ?3, per_key = ?4, running = ?5,
                 starts = ?6, per = ?7, checksum = ?8",
            )?,
            delete: connection.prepare("DELETE FROM limit_rule WHERE name = ?1")?,
        })
    }

    /// Writes a limit, or deletes it.
    pub(super) fn write(&mut self, change: &LimitChange) -> Result<(), Fault> {
        let name = change.name.as_str();
        let Some(limit) = &change.limit else {
            self.delete.execute([name])?;
            return Ok(());
        };
        let (queue, command) = (limit.queue.as_str(), limit.command.as_ref().map(|command| command.as_str()));
        let starts = limit.starts.map(|starts| i64::from(starts.count));
        let per = limit.starts.map(|starts| to_integer(starts.per.0));
        let checksum = Checksum::of(Table::Limit)
            .text(name)
            .text(queue)
            .optional_text(command)
            .number(limit.per_key.into())
            .optional_number(limit.running.map(i64::from))
            .optional_number(starts)
            .optional_number(per)
            .finish();
        self.upsert.execute(params![
            name,
            queue,
            command,
            limit.per_key,
            limit.running,
            starts,
            per,
            checksum
        ])?;
        Ok(())
    }
}

/// All limits. In place of a damaged one its queue is closed; what is wrong is added to `damage`.
pub(super) fn read(connection: &Connection, damage: &mut Vec<DamagedTask>) -> Result<Vec<Limit>, Fault> {
    let mut statement = connection.prepare(&select_all(Table::Limit))?;
    let mut rows = statement.query([])?;
    let mut limits = Vec::new();
    while let Some(row) = rows.next()? {
        match or_reason(limit(row))? {
            Ok(limit) => limits.push(limit),
            Err(fault) => match (name(row, 0), name(row, 1)) {
                (Ok(name), Ok(queue)) => {
                    damage.push(DamagedTask::limit(&name, &queue, &fault));
                    limits.push(Limit::closed(name, queue));
                }
                _ => damage.push(DamagedTask::unknown_limit(&any_text(row, 0), fault)),
            },
        }
    }
    Ok(limits)
}

fn limit(row: &Row<'_>) -> Result<Limit, Fault> {
    Table::Limit.check(row, 0)?;
    let has_command = row.get_ref(2)? != ValueRef::Null;
    let starts = match (row.get::<_, Option<u32>>(5)?, row.get::<_, Option<i64>>(6)?) {
        (Some(count), Some(per)) => Some(Starts { count, per: Millis(from_integer(per)) }),
        _ => None,
    };
    Ok(Limit {
        name: name(row, 0)?,
        queue: name(row, 1)?,
        command: if has_command { Some(name(row, 2)?) } else { None },
        per_key: row.get(3)?,
        running: row.get(4)?,
        starts,
    })
}
