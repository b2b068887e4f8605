//! Queries beside tasks: versions, events, log lines, alarms, due times and messages.

use std::collections::HashMap;

use windlass_core::{Alarm, AlarmId, Event, Name, TaskId, Timestamp, Wakeup};
use windlass_store::{
    DamagedTask, Due, Envelope, JournalEntry, JournalKind, JournalQuery, JournalSize, LogLine, Now,
    Quarantine, Record, RecordKind, SizeQuery, StoreError, StoredAlarm, Unannounced, stored,
};

use crate::rows::{
    Columns, Fault, Link, act_key, claims::claimed, free, from_integer, message, of_task, small, to_integer,
    unreadable_alarm, wakeup,
};

/// Statements of these queries, each with the columns it returns.
pub(crate) trait QuerySql: Link {
    /// Of these tasks: `task, events`.
    fn versions(ids: &[TaskId]) -> Self::Script<'_>;

    /// Events of a task with numbers above `after`, in order: `last, events`.
    fn events(task: TaskId, after: u64, limit: usize) -> Self::Script<'static>;

    /// The outbox by task and number, of tasks above `above`, without the rows of a damaged task from its damaged one on:
    /// `task, after, events`.
    fn unannounced(above: TaskId, damaged: &[(TaskId, i64)], limit: usize) -> Self::Script<'_>;

    /// Log lines of a task with numbers above `after`, in order: `seq, act, attempt, at, line`.
    fn logs(task: TaskId, after: u64, limit: usize) -> Self::Script<'static>;

    /// These records: `kind, name, version, body`.
    fn records_by_name(kind: RecordKind, names: &[Name]) -> Self::Script<'_>;

    /// Records of a kind with names above `after`, in order: the same columns.
    fn records(kind: RecordKind, after: Option<&Name>, limit: usize) -> Self::Script<'_>;

    /// Entries of a journal, the newest first: `seq, subject, at, body`.
    fn journal(query: &JournalQuery) -> Self::Script<'_>;

    /// The sizes of entries of a journal after this time and number, ordered by both: `at, seq, bytes`.
    fn journal_sizes(kind: JournalKind, after: (i64, i64), limit: usize) -> Self::Script<'static>;

    /// These alarms: `id, data, version`.
    fn alarms_by_id(ids: &[AlarmId]) -> Self::Script<'_>;

    /// Alarms, the latest first, and with `all` the resolved ones too: `data, id`.
    fn alarms(all: bool, limit: usize) -> Self::Script<'static>;

    /// Due times: `task, act`. Claims that timed out: the columns of [`claimed`]. Ready attempts that are not to be handed
    /// out: `task, act, attempt, free`.
    fn due(now: Now, limit: usize) -> Self::Script<'static>;

    /// Messages that were not consumed, in order: `sender, n, data`.
    fn messages(limit: usize) -> Self::Script<'static>;
}

/// The versions of these tasks, in their order.
pub(crate) async fn versions<D: QuerySql>(link: &mut D, ids: &[TaskId]) -> Result<Vec<Option<u64>>, Fault> {
    let mut found = HashMap::new();
    for row in link.rows(D::versions(ids)).await? {
        found.insert(row.task(0)?, from_integer(row.number(1)?));
    }
    Ok(ids.iter().map(|id| found.get(id).copied()).collect())
}

/// Events of a task with numbers above `after`, in order.
pub(crate) async fn events<D: QuerySql>(
    link: &mut D,
    task: TaskId,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, Event)>, Fault> {
    let mut found = Vec::new();
    for row in link.rows(D::events(task, after, limit)).await? {
        let last = from_integer(row.number(0)?);
        let events = stored::read_events(row.bytes(1)?).map_err(|error| of_task(task, &error))?;
        let first = (last + 1).saturating_sub(events.len() as u64);
        found.extend((first..).zip(events).filter(|(number, _)| *number > after));
    }
    found.truncate(limit);
    Ok(found)
}

/// At most `limit` events of the outbox, of tasks above `above`: those of the oldest tasks first, and those of one task in
/// their order. Events behind damaged ones of the same task are left out: they would overtake them.
pub(crate) async fn unannounced<D: QuerySql>(
    link: &mut D,
    quarantine: &Quarantine,
    above: TaskId,
    limit: usize,
) -> Result<Vec<Unannounced>, Fault> {
    let mut damaged: Vec<(TaskId, i64)> = Vec::new();
    loop {
        let rows = link.rows(D::unannounced(above, &damaged, limit)).await?;
        let (mut found, before) = (Vec::new(), damaged.len());
        for row in &rows {
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
        // Damaged events do not use up the limit.
        if damaged.len() == before || rows.len() < limit {
            return Ok(found);
        }
    }
}

/// Log lines of a task with numbers above `after`, in the order in which they arrived.
pub(crate) async fn logs<D: QuerySql>(
    link: &mut D,
    task: TaskId,
    after: u64,
    limit: usize,
) -> Result<Vec<(u64, LogLine)>, Fault> {
    let mut lines = Vec::new();
    for row in link.rows(D::logs(task, after, limit)).await? {
        let line = LogLine {
            task,
            key: act_key(row.number(1)?),
            attempt: small(row.number(2)?),
            at: Timestamp(row.number(3)?),
            line: row.any_text(4).into(),
        };
        lines.push((from_integer(row.number(0)?), line));
    }
    Ok(lines)
}

/// The records of a kind with these names, in this order.
pub(crate) async fn records_by_name<D: QuerySql>(
    link: &mut D,
    quarantine: &Quarantine,
    kind: RecordKind,
    names: &[Name],
) -> Result<Vec<Option<Record>>, Fault> {
    let mut found = HashMap::new();
    for row in link.rows(D::records_by_name(kind, names)).await? {
        found.extend(record(quarantine, kind, &row)?.map(|record| (record.name.clone(), record)));
    }
    Ok(names.iter().map(|name| found.get(name).cloned()).collect())
}

/// At most `limit` records of a kind with names above `after`, by name. Damaged ones are left out.
pub(crate) async fn records<D: QuerySql>(
    link: &mut D,
    quarantine: &Quarantine,
    (kind, after, limit): &(RecordKind, Option<Name>, usize),
) -> Result<Vec<Record>, Fault> {
    let mut records = Vec::new();
    for row in link.rows(D::records(*kind, after.as_ref(), *limit)).await? {
        records.extend(record(quarantine, *kind, &row)?);
    }
    Ok(records)
}

fn record(quarantine: &Quarantine, kind: RecordKind, row: &impl Columns) -> Result<Option<Record>, Fault> {
    let read = || {
        let (version, body) = (from_integer(row.number(2)?), row.bytes(3)?.into());
        Ok(Record { kind, name: row.name(1)?, version, body })
    };
    let damaged = |fault: &StoreError| DamagedTask::record(kind.as_str(), &row.any_text(1), fault);
    Ok(quarantine.readable_row(read().map_err(|fault: Fault| fault.into()), damaged)?)
}

/// Entries of a journal, the newest first.
pub(crate) async fn journal<D: QuerySql>(
    link: &mut D,
    query: &JournalQuery,
) -> Result<Vec<(u64, JournalEntry)>, Fault> {
    let mut entries = Vec::new();
    for row in link.rows(D::journal(query)).await? {
        let (subject, at, body) = (row.name(1)?, Timestamp(row.number(2)?), row.bytes(3)?.into());
        entries.push((from_integer(row.number(0)?), JournalEntry { kind: query.kind, subject, at, body }));
    }
    Ok(entries)
}

/// The sizes of entries of a journal.
pub(crate) async fn journal_sizes<D: QuerySql>(
    link: &mut D,
    SizeQuery { kind, after, limit }: SizeQuery,
) -> Result<Vec<JournalSize>, Fault> {
    let after = after.map_or((i64::MIN, 0), |(at, number)| (at.0, to_integer(number)));
    let mut sizes = Vec::new();
    for row in link.rows(D::journal_sizes(kind, after, limit)).await? {
        let (at, number, bytes) = (Timestamp(row.number(0)?), row.number(1)?, row.number(2)?);
        sizes.push(JournalSize { at, number: from_integer(number), bytes: from_integer(bytes) });
    }
    Ok(sizes)
}

/// The alarms with these ids, in this order.
pub(crate) async fn alarms_by_id<D: QuerySql>(
    link: &mut D,
    quarantine: &Quarantine,
    ids: &[AlarmId],
) -> Result<Vec<Option<StoredAlarm>>, Fault> {
    let mut found = HashMap::new();
    for row in link.rows(D::alarms_by_id(ids)).await? {
        let (id, read) = (AlarmId(row.text(0)?.into()), stored::read_alarm(row.bytes(1)?));
        let alarm = quarantine.readable_row(read, |fault| DamagedTask::alarm(&id.0, fault))?;
        let alarm = alarm.unwrap_or_else(|| unreadable_alarm(&id));
        found.insert(id, StoredAlarm { alarm, version: from_integer(row.number(2)?) });
    }
    Ok(ids.iter().map(|id| found.remove(id)).collect())
}

/// At most `limit` alarms, the latest first. Damaged ones are left out.
pub(crate) async fn alarms<D: QuerySql>(
    link: &mut D,
    quarantine: &Quarantine,
    all: bool,
    limit: usize,
) -> Result<Vec<Alarm>, Fault> {
    let mut alarms = Vec::new();
    for row in link.rows(D::alarms(all, limit)).await? {
        let read = stored::read_alarm(row.bytes(0)?);
        alarms.extend(quarantine.readable_row(read, |fault| DamagedTask::alarm(&row.any_text(1), fault))?);
    }
    Ok(alarms)
}

/// At most `limit` things that are due.
pub(crate) async fn due<D: QuerySql>(link: &mut D, now: Now, limit: usize) -> Result<Vec<Due>, Fault> {
    let answers = link.send(D::due(now, limit)).await?;
    let [wakes, timed_out, kept_back] = &answers[..] else { return Ok(Vec::new()) };
    let mut due = Vec::new();
    for row in wakes {
        due.push(Due::Wake { task: row.task(0)?, wakeup: wakeup(row.number(1)?) });
    }
    for row in timed_out {
        due.push(Due::TimeOut(claimed(row)?));
    }
    for row in kept_back {
        let Wakeup::Act(key) = wakeup(row.number(1)?) else { continue };
        let code = i16::try_from(row.number(3)?).unwrap_or_default();
        due.extend(Due::of_free(row.task(0)?, key, small(row.number(2)?), free(code)));
    }
    due.truncate(limit);
    Ok(due)
}

/// At most `limit` messages that were not consumed. Damaged ones are left out.
pub(crate) async fn messages<D: QuerySql>(
    link: &mut D,
    quarantine: &Quarantine,
    limit: usize,
) -> Result<Vec<Envelope>, Fault> {
    let mut messages = Vec::new();
    for row in link.rows(D::messages(limit)).await? {
        let n = from_integer(row.number(1)?);
        messages.extend(message(quarantine, row.bytes(0)?, n, row.bytes(2)?)?);
    }
    Ok(messages)
}
