//! What is asked beside tasks: events, log lines, alarms and locks.

use std::collections::{BTreeMap, HashMap};

use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;
use windlass_core::{Alarm, AlarmId, Event, Lock, LockName, TaskId, Timestamp};
use windlass_store::{DamagedTask, LogLine, Quarantine, StoreError, StoredAlarm, Unannounced, stored};

use super::{connection::Connection, error::Fault};
use crate::rows::{
    act_key, free_holder_bytes, from_integer, in_order, lock, name, of_task, small, to_integer,
    unreadable_alarm,
};

const VERSIONS: &str = "SELECT id, events FROM windlass_task WHERE id = ANY($1::uuid[])";
const EVENTS: &str = "SELECT h.last, h.events FROM windlass_history h
    WHERE h.task = $1 AND h.last > $2 AND EXISTS (SELECT FROM windlass_task t WHERE t.id = $1)
    ORDER BY h.last LIMIT $3";
/// Without what stands behind damaged events of the same task.
const UNANNOUNCED: &str = "SELECT o.task, o.after, h.events
    FROM windlass_outbox o JOIN windlass_history h ON h.task = o.task AND h.last = o.last
    WHERE NOT EXISTS (SELECT FROM unnest($2::uuid[], $3::int8[]) AS d (task, after)
                      WHERE d.task = o.task AND o.after >= d.after)
    ORDER BY o.task, o.after LIMIT $1";
const LOGS: &str = "SELECT seq, act, attempt, at, line FROM windlass_log
    WHERE task = $1 AND seq > $2 AND EXISTS (SELECT FROM windlass_task t WHERE t.id = $1) ORDER BY seq LIMIT $3";
const ALARMS_BY_ID: &str = "SELECT id, data, version FROM windlass_alarm WHERE id = ANY($1::text[])";
const ALARMS: &str = "SELECT data, id FROM windlass_alarm ORDER BY raised_at DESC, id LIMIT $1";
const OPEN_ALARMS: &str =
    "SELECT data, id FROM windlass_alarm WHERE NOT resolved ORDER BY raised_at DESC, id LIMIT $1";
/// The floor is in every row; where none of the locks is stored, there is one row without a name.
const LOCKS_BY_NAME: &str = "SELECT l.name, l.version, l.holder, w.place, w.waiter, f.version
    FROM windlass_lock_floor f LEFT JOIN windlass_lock l ON l.name = ANY($1::text[])
    LEFT JOIN windlass_lock_waiter w ON w.name = l.name ORDER BY l.name, w.place";
const LOCK_FLOOR: &str = "SELECT version FROM windlass_lock_floor";
const FREE_LOCKS: &str = "SELECT name, version, holder, NULL::int8, NULL::bytea FROM windlass_lock
    WHERE octet_length(holder) <= $1 ORDER BY name LIMIT $2";
const LOCKS: &str = "SELECT l.name, l.version, l.holder, w.place, w.waiter
    FROM (SELECT * FROM windlass_lock WHERE ($1::text IS NULL OR name > $1) AND octet_length(holder) > $3
          ORDER BY name LIMIT $2) l
    LEFT JOIN windlass_lock_waiter w ON w.name = l.name ORDER BY l.name, w.place";

/// The versions of these tasks, in their order.
pub(super) async fn versions(
    connection: &mut Connection<'_>,
    ids: &[TaskId],
) -> Result<Vec<Option<u64>>, Fault> {
    let keys: Vec<Uuid> = ids.iter().map(|id| Uuid::from_u128(id.0)).collect();
    let rows = connection.query(VERSIONS, &[&keys]).await?;
    let mut found = BTreeMap::new();
    for row in &rows {
        found.insert(row.try_get::<_, Uuid>(0)?, from_integer(row.try_get(1)?));
    }
    Ok(keys.iter().map(|id| found.get(id).copied()).collect())
}

/// Events of a task with numbers above `after`, in order.
pub(super) async fn events(
    connection: &mut Connection<'_>,
    task: TaskId,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, Event)>, Fault> {
    let (id, most) = (Uuid::from_u128(task.0), to_integer(limit as u64));
    let rows = connection.query(EVENTS, &[&id, &to_integer(after), &most]).await?;
    let mut found = Vec::new();
    for row in &rows {
        let last = from_integer(row.try_get(0)?);
        let events = stored::read_events(row.try_get(1)?).map_err(|error| of_task(task, &error))?;
        let first = last + 1 - events.len() as u64;
        found.extend((first..).zip(events).filter(|(number, _)| *number > after));
    }
    found.truncate(limit);
    Ok(found)
}

/// At most `limit` of what is in the outbox, of the oldest tasks first; of one task in the order in which it happened. What
/// is behind damaged events of the same task is left out: it would overtake them.
pub(super) async fn unannounced(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    limit: usize,
) -> Result<Vec<Unannounced>, Fault> {
    let (mut tasks, mut afters) = (Vec::<Uuid>::new(), Vec::<i64>::new());
    loop {
        let parameters: [&(dyn ToSql + Sync); 3] = [&to_integer(limit as u64), &tasks, &afters];
        let rows = connection.query(UNANNOUNCED, &parameters).await?;
        let (mut found, before) = (Vec::new(), tasks.len());
        for row in &rows {
            let (id, after): (Uuid, i64) = (row.try_get(0)?, row.try_get(1)?);
            let task = TaskId(id.as_u128());
            if tasks[before..].contains(&id) {
                continue;
            }
            let events = stored::read_events(row.try_get(2)?).map_err(|error| of_task(task, &error));
            let damaged = |fault: &StoreError| DamagedTask::announcement(&task.to_string(), fault);
            match quarantine.readable_row(events, damaged)? {
                Some(events) => found.push(Unannounced { task, after: from_integer(after), events }),
                None => {
                    tasks.push(id);
                    afters.push(after);
                }
            }
        }
        // Damaged ones take up no place of sound ones.
        if tasks.len() == before || rows.len() < limit {
            return Ok(found);
        }
    }
}

/// Log lines of a task, in the order they came.
pub(super) async fn logs(
    connection: &mut Connection<'_>,
    task: TaskId,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, LogLine)>, Fault> {
    let id = Uuid::from_u128(task.0);
    let rows = connection.query(LOGS, &[&id, &to_integer(after), &to_integer(limit as u64)]).await?;
    let mut lines = Vec::with_capacity(rows.len());
    for row in &rows {
        let line = LogLine {
            task,
            key: act_key(row.try_get(1)?),
            attempt: small(row.try_get(2)?),
            at: Timestamp(row.try_get(3)?),
            line: String::from_utf8_lossy(row.try_get(4)?).into(),
        };
        lines.push((from_integer(row.try_get(0)?), line));
    }
    Ok(lines)
}

/// The alarms with these ids, in this order.
pub(super) async fn alarms_by_id(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    ids: &[AlarmId],
) -> Result<Vec<Option<StoredAlarm>>, Fault> {
    let names: Vec<&str> = ids.iter().map(|id| &*id.0).collect();
    let mut found = HashMap::new();
    for row in &connection.query(ALARMS_BY_ID, &[&names]).await? {
        let (id, data): (&str, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
        let (id, read) = (AlarmId(id.into()), stored::read_alarm(data));
        let alarm = quarantine.readable_row(read, |fault| DamagedTask::alarm(&id.0, fault))?;
        let alarm = alarm.unwrap_or_else(|| unreadable_alarm(&id));
        found.insert(id, StoredAlarm { alarm, version: from_integer(row.try_get(2)?) });
    }
    Ok(ids.iter().map(|id| found.remove(id)).collect())
}

/// At most `limit` alarms, those raised last first. Damaged ones are left out.
pub(super) async fn alarms(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    all: bool,
    limit: usize,
) -> Result<Vec<Alarm>, Fault> {
    let sql = if all { ALARMS } else { OPEN_ALARMS };
    let rows = connection.query(sql, &[&to_integer(limit as u64)]).await?;
    let mut alarms = Vec::with_capacity(rows.len());
    for row in &rows {
        let (read, id): (_, &str) = (stored::read_alarm(row.try_get(0)?), row.try_get(1)?);
        alarms.extend(quarantine.readable_row(read, |fault| DamagedTask::alarm(id, fault))?);
    }
    Ok(alarms)
}

/// The locks with these names, in this order.
pub(super) async fn locks_by_name(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    names: &[LockName],
) -> Result<Vec<Lock>, Fault> {
    let wanted: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let rows = connection.query(LOCKS_BY_NAME, &[&wanted]).await?;
    let floor = rows.first().map(|row| row.try_get(5)).transpose()?.map_or(0, from_integer);
    Ok(in_order(names, read_locks(&rows, quarantine)?, floor))
}

/// The floor of locks.
pub(super) async fn lock_floor(connection: &mut Connection<'_>) -> Result<u64, Fault> {
    let rows = connection.query(LOCK_FLOOR, &[]).await?;
    let floor = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(floor.map_or(0, from_integer))
}

/// At most `limit` locks that are stored and free.
pub(super) async fn free_locks(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    limit: usize,
) -> Result<Vec<Lock>, Fault> {
    let rows = connection.query(FREE_LOCKS, &[&free_holder_bytes(), &to_integer(limit as u64)]).await?;
    let locks = read_locks(&rows, quarantine)?;
    Ok(locks.into_iter().filter(Lock::is_free).collect())
}

/// At most `limit` locks with names above `after`, by name.
pub(super) async fn locks(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    after: Option<&LockName>,
    limit: usize,
) -> Result<Vec<Lock>, Fault> {
    let after = after.map(|name| name.as_str());
    let parameters: [&(dyn ToSql + Sync); 3] = [&after, &to_integer(limit as u64), &free_holder_bytes()];
    let rows = connection.query(LOCKS, &parameters).await?;
    read_locks(&rows, quarantine)
}

/// Locks from rows in the order of their names, each with a row for each who waits. What cannot be read is in `quarantine`.
fn read_locks(rows: &[Row], quarantine: &Quarantine) -> Result<Vec<Lock>, Fault> {
    let mut locks: Vec<Lock> = Vec::new();
    for row in rows {
        let Some(of) = row.try_get::<_, Option<&str>>(0)? else { continue };
        if locks.last().is_none_or(|lock| lock.name.as_str() != of) {
            let unknown = |fault: &StoreError| DamagedTask::unknown_lock(of, fault);
            let Some(name) = quarantine.readable_row(name(of), unknown)? else { continue };
            let holder = stored::read_lock_holder(row.try_get(2)?);
            locks.push(lock(quarantine, name, from_integer(row.try_get(1)?), holder)?);
        }
        let waiter = row.try_get::<_, Option<i64>>(3)?.zip(row.try_get::<_, Option<&[u8]>>(4)?);
        if let (Some((place, waiter)), Some(lock)) = (waiter, locks.last_mut()) {
            let place = from_integer(place);
            let damaged = |fault: &StoreError| DamagedTask::lock_waiter(of, place, None, fault);
            let waiter = quarantine.readable_row(stored::read_lock_waiter(waiter), damaged)?;
            if let Some(waiter) = waiter {
                lock.restore(place, waiter);
            }
        }
    }
    Ok(locks)
}
