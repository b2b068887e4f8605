//! What is asked beside tasks: versions, events, log lines, alarms and locks.

use std::collections::HashMap;

use mysql_async::Row;
use windlass_core::{Alarm, AlarmId, Event, Lock, LockName, TaskId, Timestamp};
use windlass_store::{DamagedTask, LogLine, Quarantine, StoreError, StoredAlarm, Unannounced, stored};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::{Fault, sound},
    script::{Cell, Script, cells},
};
use crate::rows::{
    act_key, free_holder_bytes, from_integer, in_order, lock, of_task, small, to_integer, unreadable_alarm,
};

/// The versions of these tasks, in their order.
pub(super) async fn versions(
    connection: &mut Connection<'_>,
    ids: &[TaskId],
) -> Result<Vec<Option<u64>>, Fault> {
    let mut script = Script::default();
    let keys = ids.iter().map(|id| Cell::from(*id));
    script.for_keys("SELECT task, events FROM windlass_state WHERE task", keys, "");
    let sets = connection.run(script).await?;
    let mut found = HashMap::new();
    for row in sets.iter().flatten() {
        found.insert(row.task(0)?, from_integer(row.number(1)?));
    }
    Ok(ids.iter().map(|id| found.get(id).copied()).collect())
}

/// Events of a task with numbers above `after`, in order.
pub(super) async fn events(
    connection: &mut Connection<'_>,
    task: TaskId,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, Event)>, Fault> {
    let mut script = Script::default();
    let sql = format!(
        "SELECT h.last, h.events FROM windlass_history h
         WHERE h.task = ? AND h.last > ? AND EXISTS (SELECT 1 FROM windlass_task t WHERE t.id = h.task)
         ORDER BY h.last LIMIT {limit}"
    );
    script.add(&sql, cells![task, to_integer(after)]);
    let sets = connection.run(script).await?;
    let mut found = Vec::new();
    for row in &sets[0] {
        let last = from_integer(row.number(0)?);
        let events = stored::read_events(row.bytes(1)?).map_err(|error| of_task(task, &error))?;
        let first = (last + 1).saturating_sub(events.len() as u64);
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
    let mut damaged: Vec<(TaskId, i64)> = Vec::new();
    loop {
        let mut script = Script::default();
        let sql = format!(
            "SELECT o.task, o.after, h.events
             FROM windlass_outbox o STRAIGHT_JOIN windlass_history h ON h.task = o.task AND h.last = o.last
             WHERE true{} ORDER BY o.task, o.after LIMIT {limit}",
            " AND NOT (o.task = ? AND o.after >= ?)".repeat(damaged.len())
        );
        script.add(&sql, damaged.iter().flat_map(|(task, after)| cells![*task, *after]));
        let sets = connection.run(script).await?;
        let (mut found, before) = (Vec::new(), damaged.len());
        for row in &sets[0] {
            let (task, after) = (row.task(0)?, row.number(1)?);
            if damaged[before..].iter().any(|(of, _)| *of == task) {
                continue;
            }
            let events = stored::read_events(row.bytes(2)?).map_err(|error| of_task(task, &error));
            let row = |fault: &StoreError| DamagedTask::announcement(&task.to_string(), fault);
            match quarantine.readable_row(events, row)? {
                Some(events) => found.push(Unannounced { task, after: from_integer(after), events }),
                None => damaged.push((task, after)),
            }
        }
        // Damaged ones take up no place of sound ones.
        if damaged.len() == before || sets[0].len() < limit {
            return Ok(found);
        }
    }
}

/// Log lines of a task with numbers above `after`, in the order they came.
pub(super) async fn logs(
    connection: &mut Connection<'_>,
    task: TaskId,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, LogLine)>, Fault> {
    let mut script = Script::default();
    let sql = format!(
        "SELECT l.act, l.attempt, l.at, l.line, l.seq FROM windlass_log l
         WHERE l.task = ? AND l.seq > ? AND EXISTS (SELECT 1 FROM windlass_task t WHERE t.id = l.task)
         ORDER BY l.seq LIMIT {limit}"
    );
    script.add(&sql, cells![task, to_integer(after)]);
    let sets = connection.run(script).await?;
    let mut lines = Vec::new();
    for row in &sets[0] {
        let line = LogLine {
            task,
            key: act_key(row.number(0)?),
            attempt: small(row.number(1)?),
            at: Timestamp(row.number(2)?),
            line: String::from_utf8_lossy(row.bytes(3)?).into(),
        };
        lines.push((from_integer(row.number(4)?), line));
    }
    Ok(lines)
}

/// The alarms with these ids, in this order.
pub(super) async fn alarms_by_id(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    ids: &[AlarmId],
) -> Result<Vec<Option<StoredAlarm>>, Fault> {
    let mut script = Script::default();
    script.for_keys(
        "SELECT id, data, version FROM windlass_alarm WHERE id",
        ids.iter().map(|id| Cell::from(&*id.0)),
        "",
    );
    let mut found = HashMap::new();
    for row in connection.run(script).await?.iter().flatten() {
        let (id, read) = (AlarmId(row.text(0)?.into()), stored::read_alarm(row.bytes(1)?));
        let alarm = quarantine.readable_row(read, |fault| DamagedTask::alarm(&id.0, fault))?;
        let alarm = alarm.unwrap_or_else(|| unreadable_alarm(&id));
        found.insert(id, StoredAlarm { alarm, version: from_integer(row.number(2)?) });
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
    let only = if all { "" } else { "WHERE resolved = 0" };
    let mut script = Script::default();
    let sql = format!("SELECT data, id FROM windlass_alarm {only} ORDER BY raised_at DESC, id LIMIT {limit}");
    script.add(&sql, []);
    let sets = connection.run(script).await?;
    let mut alarms = Vec::new();
    for row in &sets[0] {
        let read = stored::read_alarm(row.bytes(0)?);
        alarms.extend(quarantine.readable_row(read, |fault| DamagedTask::alarm(&row.any_text(1), fault))?);
    }
    Ok(alarms)
}

const LOCK: &str = "SELECT l.name, l.version, l.holder, w.place, w.waiter";
const LOCK_FLOOR: &str = "SELECT version FROM windlass_lock_floor";

/// The locks with these names, in this order. A floor that rises between the reads makes the commit a conflict.
pub(super) async fn locks_by_name(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    names: &[LockName],
) -> Result<Vec<Lock>, Fault> {
    let mut script = Script::default();
    script.add(LOCK_FLOOR, []);
    let head = format!(
        "{LOCK} FROM windlass_lock l LEFT JOIN windlass_lock_waiter w ON w.name = l.name WHERE l.name"
    );
    script.for_keys(&head, names.iter().map(Cell::from), "ORDER BY l.name, w.place");
    let sets = connection.run(script).await?;
    let floor = sets[0].first().map(|row| row.number(0)).transpose()?.map_or(0, from_integer);
    let mut stored = Vec::new();
    for rows in &sets[1..] {
        stored.extend(read_locks(rows, quarantine)?);
    }
    Ok(in_order(names, stored, floor))
}

/// The floor of locks.
pub(super) async fn lock_floor(connection: &mut Connection<'_>) -> Result<u64, Fault> {
    let mut script = Script::default();
    script.add(LOCK_FLOOR, []);
    let sets = connection.run(script).await?;
    Ok(sets[0].first().map(|row| row.number(0)).transpose()?.map_or(0, from_integer))
}

/// At most `limit` locks that are stored and free.
pub(super) async fn free_locks(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    limit: usize,
) -> Result<Vec<Lock>, Fault> {
    let mut script = Script::default();
    let sql = format!(
        "SELECT name, version, holder, NULL, NULL FROM windlass_lock WHERE length(holder) <= {}
         ORDER BY name LIMIT {limit}",
        free_holder_bytes()
    );
    script.add(&sql, []);
    let sets = connection.run(script).await?;
    let locks = read_locks(&sets[0], quarantine)?;
    Ok(locks.into_iter().filter(Lock::is_free).collect())
}

/// At most `limit` locks with names above `after`, by name.
pub(super) async fn locks(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    after: Option<&LockName>,
    limit: usize,
) -> Result<Vec<Lock>, Fault> {
    let mut script = Script::default();
    let sql = format!(
        "{LOCK} FROM (SELECT * FROM windlass_lock WHERE name > ? AND length(holder) > {}
                       ORDER BY name LIMIT {limit}) l
         LEFT JOIN windlass_lock_waiter w ON w.name = l.name ORDER BY l.name, w.place",
        free_holder_bytes()
    );
    // Every name is above none.
    script.add(&sql, cells![after.map_or("", |name| name.as_str())]);
    let sets = connection.run(script).await?;
    read_locks(&sets[0], quarantine)
}

/// Locks from rows in the order of their names, each with a row for each who waits. What cannot be read is in `quarantine`.
fn read_locks(rows: &[Row], quarantine: &Quarantine) -> Result<Vec<Lock>, Fault> {
    let mut locks: Vec<Lock> = Vec::new();
    for row in rows {
        let of = row.any_text(0);
        if locks.last().is_none_or(|lock| lock.name.as_str() != of) {
            let unknown = |fault: &StoreError| DamagedTask::unknown_lock(&of, fault);
            let Some(name) = sound(quarantine, row.name(0), unknown)? else { continue };
            let holder = stored::read_lock_holder(row.bytes(2)?);
            locks.push(lock(quarantine, name, from_integer(row.number(1)?), holder)?);
        }
        let waiter = row.optional_number(3)?.zip(row.optional_bytes(4)?);
        if let (Some((place, waiter)), Some(lock)) = (waiter, locks.last_mut()) {
            let place = from_integer(place);
            let damaged = |fault: &StoreError| DamagedTask::lock_waiter(&of, place, None, fault);
            let waiter = quarantine.readable_row(stored::read_lock_waiter(waiter), damaged)?;
            if let Some(waiter) = waiter {
                lock.restore(place, waiter);
            }
        }
    }
    Ok(locks)
}
