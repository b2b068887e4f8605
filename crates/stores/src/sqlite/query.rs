//! Queries for what is not in memory.

use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::{Alarm, AlarmId, Event, TaskId, Timestamp};
use windlass_engine::{
    ports::{LogLine, StoredAlarm, SubmitKey},
    resident::TaskRow,
    stored,
};

use super::{
    directory::{Directory, Place},
    encoding::{act_key, from_integer, task_id, to_integer},
    error::{Fault, of_task},
    read::{TASK_COLUMNS, from_sql, link, read_results, task_row},
    resting::resting,
};

pub(super) const SELECT_FINAL_PLACE: &str =
    "SELECT task, last FROM final WHERE status IN (1, 2, 3, 4) AND id = ?1";
pub(super) const SELECT_RESTING_PLACE: &str = "SELECT task, last FROM resting WHERE id = ?1";
pub(super) const SELECT_SUBMIT_KEY: &str = "SELECT task, fingerprint FROM submit_key WHERE scope = ?1";
pub(super) const SELECT_LOGS: &str =
    "SELECT act, attempt, at, line FROM log WHERE task = ?1 ORDER BY seq LIMIT ?2 OFFSET ?3";
pub(super) const SELECT_ALARM: &str = "SELECT data, version FROM alarm WHERE id = ?1";
pub(super) const SELECT_ALARMS: &str = "SELECT data FROM alarm ORDER BY raised_at DESC, id LIMIT ?1";
pub(super) const SELECT_OPEN_ALARMS: &str =
    "SELECT data FROM alarm WHERE resolved = 0 ORDER BY raised_at DESC, id LIMIT ?1";

/// An ended task by its id.
pub(super) fn select_ended() -> String {
    format!(
        "SELECT {TASK_COLUMNS}, final.state, final.task, final.last
         FROM final CROSS JOIN task ON task.n = final.task
         WHERE final.status IN (1, 2, 3, 4) AND final.id = ?1"
    )
}

/// Tasks that rest or have ended, with their results.
pub(super) fn load(connection: &Connection, ids: &[TaskId]) -> Result<Vec<Option<TaskRow>>, Fault> {
    let mut statement = connection.prepare_cached(&select_ended())?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        if let Some(task) = resting(connection, *id)? {
            found.push(Some(task));
            continue;
        }
        let mut rows = statement.query([id.to_bytes()])?;
        found.push(match rows.next()? {
            Some(row) => {
                let mut task = task_row(row)?;
                read_results(connection, &mut task, row.get(6)?, row.get(7)?)?;
                Some(task)
            }
            None => None,
        });
    }
    Ok(found)
}

/// The tasks that were submitted under these keys.
pub(super) fn submit_keys(
    connection: &Connection,
    scopes: &[[u8; 32]],
) -> Result<Vec<Option<(TaskId, SubmitKey)>>, Fault> {
    let mut statement = connection.prepare_cached(SELECT_SUBMIT_KEY)?;
    let keys = scopes.iter().map(|scope| {
        let read = |row: &rusqlite::Row<'_>| {
            Ok((task_id(row, 0)?, SubmitKey { scope: *scope, fingerprint: row.get(1)? }))
        };
        Ok(statement.query_row([scope], read).optional()?)
    });
    keys.collect()
}

/// Where the rows of a task are, whether it is active, rests or has ended.
fn place(connection: &Connection, directory: &Directory, task: TaskId) -> Result<Option<Place>, Fault> {
    if let Some(place) = directory.get(task) {
        return Ok(Some(place));
    }
    let read = |row: &rusqlite::Row<'_>| Ok(Place { task: row.get(0)?, last: row.get(1)? });
    for sql in [SELECT_RESTING_PLACE, SELECT_FINAL_PLACE] {
        let mut statement = connection.prepare_cached(sql)?;
        if let Some(place) = statement.query_row([task.to_bytes()], read).optional()? {
            return Ok(Some(place));
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
    let mut walked = Vec::new();
    let mut next = Some(place.last);
    while let Some(seq) = next {
        let link = link(connection, place.task, seq).map_err(|fault| of_task(task, fault))?;
        walked.push(seq);
        next = link.previous.filter(|_| link.first > wanted);
    }
    let mut found = Vec::new();
    let mut statement = connection.prepare_cached("SELECT first, events FROM history WHERE seq = ?1")?;
    for seq in walked.into_iter().rev() {
        let (first, events) = statement.query_row([seq], |row| {
            let events = row.get_ref(1)?.as_blob_or_null()?.map(stored::read_events);
            Ok((from_integer(row.get(0)?), events))
        })?;
        let Some(events) = events else { continue };
        let events = events.map_err(|error| of_task(task, error))?;
        found.extend((first..).zip(events).filter(|(number, _)| *number > after).take(limit - found.len()));
        if found.len() >= limit {
            break;
        }
    }
    Ok(Some(found))
}

/// Log lines of a task, in the order they came.
pub(super) fn logs(
    connection: &Connection,
    task: TaskId,
    skip: u64,
    limit: usize,
) -> Result<Vec<LogLine>, Fault> {
    let mut statement = connection.prepare_cached(SELECT_LOGS)?;
    let lines =
        statement.query_map(params![task.to_bytes(), to_integer(limit as u64), to_integer(skip)], |row| {
            Ok(LogLine {
                task,
                key: act_key(row.get(0)?),
                attempt: row.get(1)?,
                at: Timestamp(row.get(2)?),
                line: row.get_ref(3)?.as_str()?.into(),
            })
        })?;
    Ok(lines.collect::<Result<_, _>>()?)
}

/// The alarm with this id.
pub(super) fn alarm(connection: &Connection, id: &AlarmId) -> Result<Option<StoredAlarm>, Fault> {
    let mut statement = connection.prepare_cached(SELECT_ALARM)?;
    let mut rows = statement.query([&*id.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let alarm = stored::read_alarm(row.get_ref(0)?.as_blob().map_err(from_sql)?)?;
    Ok(Some(StoredAlarm { alarm, version: from_integer(row.get(1)?) }))
}

/// At most `limit` alarms, those raised last first; resolved ones only with `all`.
pub(super) fn alarms(connection: &Connection, all: bool, limit: usize) -> Result<Vec<Alarm>, Fault> {
    let mut statement = connection.prepare_cached(if all { SELECT_ALARMS } else { SELECT_OPEN_ALARMS })?;
    let alarms = statement.query_and_then([to_integer(limit as u64)], |row| {
        Ok(stored::read_alarm(row.get_ref(0)?.as_blob().map_err(from_sql)?)?)
    })?;
    alarms.collect()
}
