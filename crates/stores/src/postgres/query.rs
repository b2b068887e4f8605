//! Queries beside tasks.

use uuid::Uuid;
use windlass_core::{AlarmId, LockName, Name, TaskId};
use windlass_store::{JournalKind, JournalQuery, Now, RecordKind};

use super::{
    connection::{Batch, Connection, parameters},
    records, uuid, uuids,
};
use crate::rows::{free_holder_bytes, locks::LockSql, query::QuerySql, to_integer};

const VERSIONS: &str = "SELECT id, events FROM windlass_task WHERE id = ANY($1::uuid[])";
const EVENTS: &str = "SELECT h.last, h.events FROM windlass_history h
    WHERE h.task = $1 AND h.last > $2 AND EXISTS (SELECT FROM windlass_task t WHERE t.id = $1)
    ORDER BY h.last LIMIT $3";
/// Without what stands behind damaged events of the same task.
const UNANNOUNCED: &str = "SELECT o.task, o.after, h.events
    FROM windlass_outbox o JOIN windlass_history h ON h.task = o.task AND h.last = o.last
    WHERE o.task > $4 AND NOT EXISTS (SELECT FROM unnest($2::uuid[], $3::int8[]) AS d (task, after)
                                      WHERE d.task = o.task AND o.after >= d.after)
    ORDER BY o.task, o.after LIMIT $1";
const LOGS: &str = "SELECT seq, act, attempt, at, line FROM windlass_log
    WHERE task = $1 AND seq > $2 AND EXISTS (SELECT FROM windlass_task t WHERE t.id = $1) ORDER BY seq LIMIT $3";
const ALARMS_BY_ID: &str = "SELECT id, data, version FROM windlass_alarm WHERE id = ANY($1::text[])";
const ALARMS: &str = "SELECT data, id FROM windlass_alarm ORDER BY raised_at DESC, id LIMIT $1";
const OPEN_ALARMS: &str =
    "SELECT data, id FROM windlass_alarm WHERE NOT resolved ORDER BY raised_at DESC, id LIMIT $1";
const WAKES: &str =
    "SELECT task, act FROM windlass_wait WHERE due_at <= $1 ORDER BY due_at, task, act LIMIT $2";
const TIMED_OUT: &str = "SELECT task, act, attempt, claim, session, claimed_at, module FROM windlass_wait
    WHERE session IS NOT NULL AND timeout_at <= $1 ORDER BY timeout_at, task, act LIMIT $2";
const KEPT_BACK: &str = "SELECT task, act, attempt, free FROM windlass_wait
    WHERE session IS NULL AND free > 0 ORDER BY task, act LIMIT $1";
const MESSAGES: &str = "SELECT sender, n, data FROM windlass_message ORDER BY sender, n LIMIT $1";
const LOCKS_BY_NAME: &str = "SELECT l.name, l.version, l.holder, w.place, w.waiter FROM windlass_lock l
    LEFT JOIN windlass_lock_waiter w ON w.name = l.name WHERE l.name = ANY($1::text[]) ORDER BY l.name, w.place";
const LOCK_FLOOR: &str = "SELECT version FROM windlass_lock_floor";
const FREE_LOCKS: &str = "SELECT name, version, holder, NULL::int8, NULL::bytea FROM windlass_lock
    WHERE octet_length(holder) <= $1 ORDER BY name LIMIT $2";
const LOCKS: &str = "SELECT l.name, l.version, l.holder, w.place, w.waiter
    FROM (SELECT * FROM windlass_lock WHERE ($1::text IS NULL OR name > $1) AND octet_length(holder) > $3
          ORDER BY name LIMIT $2) l
    LEFT JOIN windlass_lock_waiter w ON w.name = l.name ORDER BY l.name, w.place";

impl QuerySql for Connection {
    fn versions(ids: &[TaskId]) -> Batch<'_> {
        Batch::one(VERSIONS, parameters![uuids(ids)])
    }

    fn events(task: TaskId, after: u64, limit: usize) -> Batch<'static> {
        Batch::one(EVENTS, parameters![uuid(task), to_integer(after), most(limit)])
    }

    fn unannounced(above: TaskId, damaged: &[(TaskId, i64)], limit: usize) -> Batch<'_> {
        let (tasks, after): (Vec<Uuid>, Vec<i64>) =
            damaged.iter().map(|(task, after)| (uuid(*task), *after)).unzip();
        Batch::one(UNANNOUNCED, parameters![most(limit), tasks, after, uuid(above)])
    }

    fn logs(task: TaskId, after: u64, limit: usize) -> Batch<'static> {
        Batch::one(LOGS, parameters![uuid(task), to_integer(after), most(limit)])
    }

    fn records_by_name(kind: RecordKind, names: &[Name]) -> Batch<'_> {
        records::by_name(kind, names)
    }

    fn records(kind: RecordKind, after: Option<&Name>, limit: usize) -> Batch<'_> {
        records::page(kind, after, limit)
    }

    fn journal(query: &JournalQuery) -> Batch<'_> {
        records::journal(query)
    }

    fn journal_sizes(kind: JournalKind, after: (i64, i64), limit: usize) -> Batch<'static> {
        records::journal_sizes(kind, after, limit)
    }

    fn alarms_by_id(ids: &[AlarmId]) -> Batch<'_> {
        let ids: Vec<&str> = ids.iter().map(|id| &*id.0).collect();
        Batch::one(ALARMS_BY_ID, parameters![ids])
    }

    fn alarms(all: bool, limit: usize) -> Batch<'static> {
        Batch::one(if all { ALARMS } else { OPEN_ALARMS }, parameters![most(limit)])
    }

    fn due(now: Now, limit: usize) -> Batch<'static> {
        let mut batch = Batch::one(WAKES, parameters![now.wall.0, most(limit)]);
        batch.add(TIMED_OUT, parameters![to_integer(now.mono.0), most(limit)]);
        batch.add(KEPT_BACK, parameters![most(limit)]);
        batch
    }

    fn messages(limit: usize) -> Batch<'static> {
        Batch::one(MESSAGES, parameters![most(limit)])
    }
}

impl LockSql for Connection {
    fn locks_by_name(names: &[LockName]) -> Batch<'_> {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        let mut batch = Self::lock_floor();
        batch.add(LOCKS_BY_NAME, parameters![names]);
        batch
    }

    fn lock_floor() -> Batch<'static> {
        Batch::one(LOCK_FLOOR, Vec::new())
    }

    fn free_locks(limit: usize) -> Batch<'static> {
        Batch::one(FREE_LOCKS, parameters![free_holder_bytes(), most(limit)])
    }

    fn locks(after: Option<&LockName>, limit: usize) -> Batch<'_> {
        let after = after.map(|name| name.as_str());
        Batch::one(LOCKS, parameters![after, most(limit), free_holder_bytes()])
    }
}

/// A limit as a parameter.
fn most(limit: usize) -> i64 {
    to_integer(limit as u64)
}
