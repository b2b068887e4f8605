//! Reading what is active: at a start, and after a failed write.
//!
//! What is read is the table `active` with the `task` rows and results of what is in it, the catalogue, paused
//! queues and messages under way. What has ended is not read, so a start costs what is active, however long
//! the history has grown; a test looks at the query plans.

use rusqlite::{Connection, Row};
use windlass_core::{Actor, Name, TaskId, Timestamp};
use windlass_store::{
    DamagedTask, QueueChange, QueuePause, StoredFlow,
    resident::{Recovered, Room, TaskRow},
};

use super::{
    checksum::Table,
    claim_rows,
    directory::{Directory, Place},
    encoding::task_id,
    error::{Fault, or_damaged, or_reason},
    limits,
    lock_rows::{mend_floor, read_floor, read_locks, read_messages},
    meta,
    read::{any_text, complete, name, stored_flow, task_row},
    record_rows, resting,
};

// What recovery reads. A test looks at their plans.
/// All rows of a table that is read whole.
pub(super) fn select_all(table: Table) -> String {
    format!("SELECT {} FROM {}", table.select(), table.name())
}

pub(super) const COUNT_LOST: &str =
    "SELECT count(*) FROM active WHERE NOT EXISTS (SELECT 1 FROM task WHERE n = active.task)";

/// Active tasks, oldest first.
pub(super) fn select_active() -> String {
    format!(
        "SELECT {}, {} FROM active CROSS JOIN task ON task.n = active.task ORDER BY active.task",
        Table::Task.select(),
        Table::Active.select()
    )
}

/// Begins a new epoch, in the transaction that is open. Returns what was damaged and is written again: what a start cannot
/// do without.
pub(super) fn begin_epoch(connection: &Connection) -> Result<Vec<DamagedTask>, Fault> {
    let mut mended: Vec<DamagedTask> = meta::mend(connection)?.into_iter().collect();
    mended.extend(mend_floor(connection)?);
    resting::mend_lines(connection, &mut mended)?;
    // What is damaged here must not get a checksum that says it is sound.
    connection.query_row_and_then(&select_all(Table::Meta), [], |row| Table::Meta.check(row, 0))?;
    connection.execute("UPDATE meta SET epoch = epoch + 1", [])?;
    Table::Meta.seal(connection, "one = 1", &[])?;
    Ok(mended)
}

/// Reads what is active, in the transaction that is open; `directory` is filled with it. `damaged` is what is known to be
/// damaged.
pub(super) fn recover(
    connection: &Connection,
    directory: &Directory,
    mut damaged: Vec<DamagedTask>,
    mut room: Room,
) -> Result<Recovered, Fault> {
    let (epoch, latest_at, token_key) =
        connection.query_row_and_then(&select_all(Table::Meta), [], |row| {
            Table::Meta.check(row, 0)?;
            Ok::<_, Fault>((row.get(2)?, Timestamp(row.get(3)?), row.get(4)?))
        })?;
    let (flows, damaged_flows) = read_flows(connection, &mut damaged)?;
    let (mut tasks, places) = read_tasks(connection, &mut damaged, &mut room)?;
    let queues = read_queues(connection, &mut damaged)?;
    let limits = limits::read(connection, &mut damaged)?;
    let records = record_rows::read(connection, &mut damaged)?;
    let messages = read_messages(connection, &mut damaged)?;
    let (locks, damaged_locks) = read_locks(connection, &mut damaged)?;
    let lock_floor = read_floor(connection)?;
    let mut active = directory.lock();
    active.clear();
    active.extend(tasks.iter().map(|task| task.id).zip(places));
    drop(active);
    let (lines, in_hands) = resting::lines(connection, &mut room)?;
    for task in in_hands {
        match task {
            Ok(task) => tasks.push(task),
            Err(found) => damaged.push(found),
        }
    }
    let claims = claim_rows::read(connection)?;
    Ok(Recovered {
        epoch,
        token_key,
        flows,
        damaged_flows,
        lines,
        tasks,
        damaged,
        queues,
        limits,
        records,
        messages,
        locks,
        damaged_locks,
        lock_floor,
        latest_at,
        claims,
    })
}

/// Active tasks and where their rows are. Those that are damaged are added to `damaged`.
fn read_tasks(
    connection: &Connection,
    damaged: &mut Vec<DamagedTask>,
    room: &mut Room,
) -> Result<(Vec<TaskRow>, Vec<Place>), Fault> {
    let (mut tasks, mut places) = (Vec::new(), Vec::new());
    let lost: i64 = connection.query_row(COUNT_LOST, [], |row| row.get(0))?;
    if lost > 0 {
        // Their ids went with what was submitted.
        let reason = format!("{lost} active tasks have lost what was submitted. Restore a backup");
        damaged.push(DamagedTask::row("task", "lost", reason));
    }
    let mut statement = connection.prepare(&select_active())?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id = task_id(row, 1).unwrap_or(TaskId::NONE);
        let read = task_row(row, Table::Active).and_then(|(mut task, place)| {
            complete(connection, &mut task, place)?;
            Ok((task, place))
        });
        match or_damaged(id, read)? {
            Ok((mut task, place)) => {
                room.admit(&mut task);
                tasks.push(task);
                places.push(place);
            }
            Err(found) => damaged.push(found),
        }
    }
    Ok((tasks, places))
}

/// Flows, and which versions are damaged.
type ReadFlows = (Vec<StoredFlow>, Vec<(Name, u32)>);

/// All flows, and which versions are damaged. What is wrong with those is added to `damage`; their tasks cannot be read.
fn read_flows(connection: &Connection, damage: &mut Vec<DamagedTask>) -> Result<ReadFlows, Fault> {
    let mut statement = connection.prepare(&select_all(Table::Flow))?;
    let mut rows = statement.query([])?;
    let (mut flows, mut damaged) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        match or_reason(stored_flow(row))? {
            Ok(flow) => flows.push(flow),
            Err(reason) => {
                let version: u32 = row.get(1).unwrap_or_default();
                damage.push(DamagedTask::flow(&any_text(row, 0), version, reason));
                // Where these are damaged as well, nobody knows which version it was.
                damaged.extend(name(row, 0).ok().zip(row.get(1).ok()));
            }
        }
    }
    Ok((flows, damaged))
}

/// Paused queues. One whose row is damaged is paused as well; what is wrong is added to `damage`.
fn read_queues(connection: &Connection, damage: &mut Vec<DamagedTask>) -> Result<Vec<QueueChange>, Fault> {
    let mut statement = connection.prepare(&select_all(Table::Queue))?;
    let mut rows = statement.query([])?;
    let mut queues = Vec::new();
    while let Some(row) = rows.next()? {
        match or_reason(read_queue(row))? {
            Ok(queue) => queues.push(queue),
            Err(fault) => match name(row, 0) {
                Ok(name) => {
                    damage.push(DamagedTask::queue(&name, fault));
                    let at = Timestamp(row.get(1).unwrap_or_default());
                    queues.push(QueueChange { name, paused: Some(QueuePause { at, by: None }) });
                }
                Err(_) => damage.push(DamagedTask::unknown_queue(&any_text(row, 0), fault)),
            },
        }
    }
    Ok(queues)
}

fn read_queue(row: &Row<'_>) -> Result<QueueChange, Fault> {
    Table::Queue.check(row, 0)?;
    let by: Option<String> = row.get(2)?;
    let claimed: Option<bool> = row.get(3)?;
    let by = by.map(|name| Actor { name: name.into(), claimed: claimed.unwrap_or(true) });
    let paused = Some(QueuePause { at: Timestamp(row.get(1)?), by });
    Ok(QueueChange { name: name(row, 0)?, paused })
}
