//! Queries beside tasks.

use windlass_core::{AlarmId, LockName, Name, TaskId};
use windlass_store::{JournalKind, JournalQuery, Now, RecordKind};

use super::{
    claim::CLAIMED,
    connection::Connection,
    script::{Cell, Script, cells},
};
use crate::rows::{free_holder_bytes, locks::LockSql, query::QuerySql, to_integer};

const LOCK: &str = "SELECT l.name, l.version, l.holder, w.place, w.waiter";
const LOCK_FLOOR: &str = "SELECT version FROM windlass_lock_floor";

impl QuerySql for Connection {
    fn versions(ids: &[TaskId]) -> Script {
        let mut script = Script::default();
        let keys = ids.iter().map(|id| Cell::from(*id));
        script.for_keys("SELECT task, events FROM windlass_state WHERE task", keys, "");
        script
    }

    fn events(task: TaskId, after: u64, limit: usize) -> Script {
        let sql = format!(
            "SELECT h.last, h.events FROM windlass_history h
             WHERE h.task = ? AND h.last > ? AND EXISTS (SELECT 1 FROM windlass_task t WHERE t.id = h.task)
             ORDER BY h.last LIMIT {limit}"
        );
        Script::one(&sql, cells![task, to_integer(after)])
    }

    fn unannounced(above: TaskId, damaged: &[(TaskId, i64)], limit: usize) -> Script {
        let sql = format!(
            "SELECT o.task, o.after, h.events
             FROM windlass_outbox o STRAIGHT_JOIN windlass_history h ON h.task = o.task AND h.last = o.last
             WHERE o.task > ?{} ORDER BY o.task, o.after LIMIT {limit}",
            " AND NOT (o.task = ? AND o.after >= ?)".repeat(damaged.len())
        );
        let damaged = damaged.iter().flat_map(|(task, after)| cells![*task, *after]);
        Script::one(&sql, cells![above].into_iter().chain(damaged))
    }

    fn logs(task: TaskId, after: u64, limit: usize) -> Script {
        let sql = format!(
            "SELECT l.seq, l.act, l.attempt, l.at, l.line FROM windlass_log l
             WHERE l.task = ? AND l.seq > ? AND EXISTS (SELECT 1 FROM windlass_task t WHERE t.id = l.task)
             ORDER BY l.seq LIMIT {limit}"
        );
        Script::one(&sql, cells![task, to_integer(after)])
    }

    fn records_by_name(kind: RecordKind, names: &[Name]) -> Script {
        let mut script = Script::default();
        let head = format!(
            "SELECT kind, name, version, body FROM windlass_record WHERE kind = {} AND name",
            kind.code()
        );
        script.for_keys(&head, names.iter().map(Cell::from), "");
        script
    }

    fn records(kind: RecordKind, after: Option<&Name>, limit: usize) -> Script {
        let above = if after.is_some() { "AND name > ?" } else { "" };
        let sql = format!(
            "SELECT kind, name, version, body FROM windlass_record WHERE kind = {} {above} ORDER BY name LIMIT {limit}",
            kind.code()
        );
        Script::one(&sql, after.map(Cell::from))
    }

    fn journal(query: &JournalQuery) -> Script {
        let (kind, limit) = (query.kind.code(), query.limit);
        let before = query.before.map_or(i64::MAX, to_integer);
        let of = if query.subject.is_some() { "AND subject = ?" } else { "" };
        let sql = format!(
            "SELECT seq, subject, at, body FROM windlass_journal WHERE kind = {kind} AND seq < {before} {of}
             ORDER BY seq DESC LIMIT {limit}"
        );
        Script::one(&sql, query.subject.as_ref().map(Cell::from))
    }

    fn journal_sizes(kind: JournalKind, (at, seq): (i64, i64), limit: usize) -> Script {
        let sql = format!(
            "SELECT at, seq, CAST(LENGTH(body) AS SIGNED) FROM windlass_journal
             WHERE kind = {} AND at >= {at} AND (at > {at} OR seq > {seq}) ORDER BY at, seq LIMIT {limit}",
            kind.code()
        );
        Script::one(&sql, [])
    }

    fn alarms_by_id(ids: &[AlarmId]) -> Script {
        let mut script = Script::default();
        let keys = ids.iter().map(|id| Cell::from(&*id.0));
        script.for_keys("SELECT id, data, version FROM windlass_alarm WHERE id", keys, "");
        script
    }

    fn alarms(all: bool, limit: usize) -> Script {
        let only = if all { "" } else { "WHERE resolved = 0" };
        let sql =
            format!("SELECT data, id FROM windlass_alarm {only} ORDER BY raised_at DESC, id LIMIT {limit}");
        Script::one(&sql, [])
    }

    fn due(now: Now, limit: usize) -> Script {
        let wakes = format!(
            "SELECT task, act FROM windlass_wait FORCE INDEX (by_due) WHERE due_at <= ?
             ORDER BY due_at, task, act LIMIT {limit}"
        );
        let mut script = Script::one(&wakes, cells![now.wall.0]);
        let timed_out = format!(
            "{CLAIMED} FROM windlass_wait FORCE INDEX (by_timeout) WHERE timeout_at <= ?
             ORDER BY timeout_at, task, act LIMIT {limit}"
        );
        script.add(&timed_out, cells![to_integer(now.mono.0)]);
        let kept_back = format!(
            "SELECT task, act, attempt, free FROM windlass_wait FORCE INDEX (by_kept_back)
             WHERE kept_back = 1 ORDER BY task, act LIMIT {limit}"
        );
        script.add(&kept_back, []);
        script
    }

    fn messages(limit: usize) -> Script {
        Script::one(
            &format!("SELECT sender, n, data FROM windlass_message ORDER BY sender, n LIMIT {limit}"),
            [],
        )
    }
}

impl LockSql for Connection {
    fn locks_by_name(names: &[LockName]) -> Script {
        let mut script = Self::lock_floor();
        let head = format!(
            "{LOCK} FROM windlass_lock l LEFT JOIN windlass_lock_waiter w ON w.name = l.name WHERE l.name"
        );
        script.for_keys(&head, names.iter().map(Cell::from), "ORDER BY l.name, w.place");
        script
    }

    fn lock_floor() -> Script {
        Script::one(LOCK_FLOOR, [])
    }

    fn free_locks(limit: usize) -> Script {
        let sql = format!(
            "SELECT name, version, holder, NULL, NULL FROM windlass_lock WHERE length(holder) <= {}
             ORDER BY name LIMIT {limit}",
            free_holder_bytes()
        );
        Script::one(&sql, [])
    }

    fn locks(after: Option<&LockName>, limit: usize) -> Script {
        let sql = format!(
            "{LOCK} FROM (SELECT * FROM windlass_lock WHERE name > ? AND length(holder) > {}
                           ORDER BY name LIMIT {limit}) l
             LEFT JOIN windlass_lock_waiter w ON w.name = l.name ORDER BY l.name, w.place",
            free_holder_bytes()
        );
        // Every name is above the empty one.
        Script::one(&sql, cells![after.map_or("", |name| name.as_str())])
    }
}
