//! Queries for what is not in memory.

use std::sync::LazyLock;

use rusqlite::{Connection, Row, params};
use windlass_core::{Alarm, AlarmId, Event, Name, TaskId, Timestamp};
use windlass_store::{DamagedTask, LogLine, StoredAlarm, SubmitKey, resident::ReadTask, stored};

use super::{
    checksum::Table,
    directory::{Directory, Place},
    encoding::{act_key, from_integer, task_id, to_integer},
    error::{Fault, of_task, or_damaged, or_reason, or_row},
    read::{SELECT_HISTORY, complete, from_sql, history_row, task_row},
    resting::resting,
};

pub(super) const SELECT_RESTING_PLACE: &str = "SELECT task, last FROM resting WHERE id = ?1";

/// Of a task that has succeeded: no other end is left again.
pub(super) const SELECT_FINAL_PLACE: &str = "SELECT task, last FROM final WHERE status = 1 AND id = ?1";

pub(super) const DELETE_FINAL: &str = "DELETE FROM final WHERE status = 1 AND id = ?1";

fn select(table: Table, condition: &str) -> String {
    format!("SELECT {} FROM {} WHERE {condition}", table.select(), table.name())
}

pub(super) static SELECT_SUBMIT_KEY: LazyLock<String> =
    LazyLock::new(|| select(Table::SubmitKey, "scope = ?1"));

pub(super) fn select_logs() -> String {
    select(Table::Log, "task = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3")
}

pub(super) fn select_alarm() -> String {
    select(Table::Alarm, "id = ?1")
}

pub(super) fn select_alarms() -> String {
    select(Table::Alarm, "true ORDER BY raised_at DESC, id LIMIT ?1")
}

pub(super) fn select_open_alarms() -> String {
    select(Table::Alarm, "resolved = 0 ORDER BY raised_at DESC, id LIMIT ?1")
}

pub(super) fn select_resting_row() -> String {
    select(Table::Resting, "id = ?1")
}

pub(super) fn select_final_row() -> String {
    select(Table::Final, "status IN (1, 2, 3, 4) AND id = ?1")
}

/// An ended task by its id.
pub(super) static SELECT_ENDED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {}, {} FROM final CROSS JOIN task ON task.n = final.task
         WHERE final.status IN (1, 2, 3, 4) AND final.id = ?1",
        Table::Task.select(),
        Table::Final.select()
    )
});

/// Tasks that rest or have ended, with their results.
pub(super) fn load(connection: &Connection, ids: &[TaskId]) -> Result<Vec<Option<ReadTask>>, Fault> {
    let mut statement = connection.prepare_cached(&SELECT_ENDED)?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        if let Some(task) = resting(connection, *id)? {
            found.push(Some(task));
            continue;
        }
        let mut rows = statement.query([id.to_bytes()])?;
        let ended = |row| {
            let (mut task, place) = task_row(row, Table::Final)?;
            if task.id != *id {
                return Err(of_task(*id, Fault::damaged("what was submitted is of another task")));
            }
            complete(connection, &mut task, place)?;
            Ok(task)
        };
        found.push(rows.next()?.map(|row| or_damaged(*id, ended(row))).transpose()?);
    }
    Ok(found)
}

/// An active task by its number.
static SELECT_ACTIVE_TASK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {}, {} FROM active CROSS JOIN task ON task.n = active.task WHERE active.task = ?1",
        Table::Task.select(),
        Table::Active.select()
    )
});

/// Tasks wherever they are, with their results. A reader answers in one transaction, so the state and the items of a task
/// are of one moment.
pub(super) fn load_active(
    connection: &Connection,
    directory: &Directory,
    ids: &[TaskId],
) -> Result<Vec<Option<ReadTask>>, Fault> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let task = match directory.get(*id) {
            Some(place) => active(connection, *id, place)?,
            None => None,
        };
        found.push(match task {
            Some(task) => Some(task),
            None => load(connection, &[*id])?.pop().flatten(),
        });
    }
    Ok(found)
}

fn active(connection: &Connection, id: TaskId, place: Place) -> Result<Option<ReadTask>, Fault> {
    let mut statement = connection.prepare_cached(&SELECT_ACTIVE_TASK)?;
    let mut rows = statement.query([place.task])?;
    let read = |row| {
        let (mut task, place) = task_row(row, Table::Active).map_err(|fault| of_task(id, fault))?;
        if task.id != id {
            return Err(of_task(id, Fault::damaged("what was submitted is of another task")));
        }
        complete(connection, &mut task, place)?;
        Ok(task)
    };
    rows.next()?.map(|row| or_damaged(id, read(row))).transpose()
}

/// The tasks that were submitted under these keys.
pub(super) fn submit_keys(
    connection: &Connection,
    scopes: &[[u8; 32]],
) -> Result<Vec<Option<(TaskId, SubmitKey)>>, Fault> {
    let mut statement = connection.prepare_cached(&SELECT_SUBMIT_KEY)?;
    let mut keys = Vec::with_capacity(scopes.len());
    for scope in scopes {
        let mut rows = statement.query([scope])?;
        let Some(row) = rows.next()? else {
            keys.push(None);
            continue;
        };
        Table::SubmitKey.check(row, 0)?;
        keys.push(Some((task_id(row, 2)?, SubmitKey { scope: *scope, fingerprint: row.get(1)? })));
    }
    Ok(keys)
}

/// Where the rows of a task are, whether it is active, rests or has ended.
fn place(connection: &Connection, directory: &Directory, task: TaskId) -> Result<Option<Place>, Fault> {
    if let Some(place) = directory.get(task) {
        return Ok(Some(place));
    }
    for (table, sql, place) in
        [(Table::Resting, select_resting_row(), 1), (Table::Final, select_final_row(), 2)]
    {
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([task.to_bytes()])?;
        if let Some(row) = rows.next()? {
            table.check(row, 0).map_err(|fault| of_task(task, fault))?;
            return Ok(Some(Place { task: row.get(place)?, last: row.get(place + 1)? }));
        }
    }
    Ok(None)
}

/// Events of a task with numbers above `after`; nothing when it is not found. Walks back from the newest, so asking for what is new is cheap
/// however long the history is.
pub(super) fn events(
    connection: &Connection,
    directory: &Directory,
    task: TaskId,
    after: u64,
    limit: usize,
) -> Result<Option<Vec<(u64, Event)>>, Fault> {
    let Some(place) = place(connection, directory, task)? else { return Ok(None) };
    let wanted = to_integer(after.saturating_add(1));
    let mut select = connection.prepare_cached(&SELECT_HISTORY)?;
    let mut walked = Vec::new();
    let mut next = Some(place.last);
    while let Some(seq) = next {
        let read = history_row(&mut select, place.task, seq, |_, _| Ok(()));
        let (link, ()) = read.map_err(|fault| of_task(task, fault))?;
        walked.push(seq);
        next = link.previous.filter(|_| link.first > wanted);
    }
    let mut found = Vec::new();
    for seq in walked.into_iter().rev() {
        let read = history_row(&mut select, place.task, seq, |row, _| {
            let events = row.get_ref(6)?.as_blob_or_null().map_err(from_sql)?;
            Ok(events.map(stored::read_events).transpose()?)
        });
        let (link, events) = read.map_err(|fault| of_task(task, fault))?;
        let (Some(events), first) = (events, from_integer(link.first)) else { continue };
        found.extend((first..).zip(events).filter(|(number, _)| *number > after).take(limit - found.len()));
        if found.len() >= limit {
            break;
        }
    }
    Ok(Some(found))
}

/// Log lines of a task with numbers above `after`, in the order they came.
pub(super) fn logs(
    connection: &Connection,
    task: TaskId,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, LogLine)>, Fault> {
    let mut statement = connection.prepare_cached(&select_logs())?;
    let parameters = params![task.to_bytes(), to_integer(after), to_integer(limit as u64)];
    let lines = statement.query_and_then(parameters, |row| {
        Table::Log.check(row, 0).map_err(|fault| of_task(task, fault))?;
        let line = LogLine {
            task,
            key: act_key(row.get(2)?),
            attempt: row.get(3)?,
            at: Timestamp(row.get(4)?),
            line: row.get_ref(5)?.as_str().map_err(from_sql)?.into(),
        };
        Ok((from_integer(row.get(0)?), line))
    })?;
    lines.collect()
}

/// The alarm with this id. One whose row is damaged is as if it had never been raised: the next time it is raised
/// replaces the row.
pub(super) fn alarm(connection: &Connection, id: &AlarmId) -> Result<Option<StoredAlarm>, Fault> {
    let mut statement = connection.prepare_cached(&select_alarm())?;
    let mut rows = statement.query([&*id.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let read = alarm_row(row).and_then(|alarm| Ok(StoredAlarm { alarm, version: from_integer(row.get(1)?) }));
    Ok(or_reason(read)?.ok())
}

/// At most `limit` alarms, those raised last first; resolved ones only with `all`.
pub(super) fn alarms(
    connection: &Connection,
    all: bool,
    limit: usize,
) -> Result<Vec<Result<Alarm, DamagedTask>>, Fault> {
    let sql = if all { select_alarms() } else { select_open_alarms() };
    let mut statement = connection.prepare_cached(&sql)?;
    let read = |row: &Row<'_>| {
        or_row(alarm_row(row), |fault| {
            DamagedTask::alarm(&row.get::<_, String>(0).unwrap_or_default(), fault)
        })
    };
    statement.query_and_then([to_integer(limit as u64)], read)?.collect()
}

fn alarm_row(row: &Row<'_>) -> Result<Alarm, Fault> {
    let read = || {
        Table::Alarm.check(row, 0)?;
        Ok(stored::read_alarm(row.get_ref(5)?.as_blob().map_err(from_sql)?)?)
    };
    let id: String = row.get(0)?;
    read().map_err(|fault: Fault| Fault::damaged(format!("alarm {id}: {fault}")))
}

/// Whether a flow that came with tasks has any: by the index of those alone.
pub(super) const HAS_TASKS: &str = "SELECT 1 FROM task WHERE flow = ?1 AND flow GLOB 'adhoc-*' LIMIT 1";

/// Whether there are tasks of these flows, which came with tasks.
pub(super) fn have_tasks(connection: &Connection, flows: &[Name]) -> Result<Vec<bool>, Fault> {
    let mut statement = connection.prepare_cached(HAS_TASKS)?;
    let mut found = Vec::with_capacity(flows.len());
    for flow in flows {
        found.push(statement.exists([flow.as_str()])?);
    }
    Ok(found)
}
