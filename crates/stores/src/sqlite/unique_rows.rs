//! The rows of unique tasks: the newest task of each key.

use rusqlite::{Connection, Statement, params};
use windlass_core::TaskId;
use windlass_store::{TaskChange, UniqueKey};

use super::{
    checksum::{Checksum, Table},
    encoding::task_id,
    error::Fault,
};

pub(super) fn select_unique_task() -> String {
    format!("SELECT {} FROM unique_task WHERE flow = ?1 AND key = ?2", Table::Unique.select())
}

/// The statement that writes what new tasks have in common with others.
pub(super) struct UniqueRows<'c> {
    upsert: Statement<'c>,
}

impl<'c> UniqueRows<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let upsert = connection.prepare(
            "INSERT INTO unique_task (flow, key, task, checksum) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (flow, key) DO UPDATE SET task = ?3, checksum = ?4",
        )?;
        Ok(Self { upsert })
    }

    /// A new task is the newest of its key, if it has one.
    pub(super) fn write(&mut self, change: &TaskChange) -> Result<(), Fault> {
        let Some(UniqueKey { flow, key }) = change.unique() else { return Ok(()) };
        let (flow, task) = (flow.as_str(), change.task.id.to_bytes());
        let checksum = Checksum::of(Table::Unique).text(flow).text(&key).blob(&task).finish();
        self.upsert.execute(params![flow, &*key, task, checksum])?;
        Ok(())
    }
}

/// The newest tasks with these keys.
pub(super) fn unique_tasks(
    connection: &Connection,
    keys: &[UniqueKey],
) -> Result<Vec<Option<TaskId>>, Fault> {
    let mut statement = connection.prepare_cached(&select_unique_task())?;
    let mut tasks = Vec::with_capacity(keys.len());
    for key in keys {
        let mut rows = statement.query([key.flow.as_str(), &key.key])?;
        tasks.push(match rows.next()? {
            None => None,
            Some(row) => {
                Table::Unique.check(row, 0)?;
                Some(task_id(row, 2)?)
            }
        });
    }
    Ok(tasks)
}
