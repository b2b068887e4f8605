//! Deleting what is kept too long, a little at a time.
//!
//! A task goes at once, with its settled alarms; its history, members and log lines, of which there may be many, go as far
//! as there is room, and the rest later. What is left is noted in `remains`, so nothing that can be asked for is
//! ever half there. An alarm that is settled only after its task went is found by itself.
//!
//! Where what happened is announced, a task stays until all of it was. A child that succeeded stays until the topmost task above it has ended: it may be asked to roll back.
//!
//! Where flows say how long their tasks are kept, all tasks are looked at that are older than the shortest of them, so
//! those that are kept longer are passed by again and again: a bounded number in each sweep.

use rusqlite::{Connection, OptionalExtension, Row, params};
use windlass_core::{Ending, Millis, TaskId, Timestamp};
use windlass_store::{Now, Retention, stored};

use super::{
    checksum::{Checksum, Table},
    directory::Directory,
    encoding::{ENDED, ending_code, from_integer, task_id, to_integer},
    error::Fault,
    list::ORDER_TOLERANCE,
    outbox::{DELETE_UNANNOUNCED, IS_UNANNOUNCED},
    query::SELECT_RESTING_PLACE,
    read::from_sql,
    record_rows,
};

/// Tasks looked at in one go, in each status.
const LOOK_AT: i64 = 1_000;

/// How long an idempotency key is kept at least, though its task may go before.
const KEY_KEPT: Millis = Millis::from_secs(24 * 3600);

/// Where the last sweep stopped. Tasks are looked at oldest first; one that took long to end stays behind while
/// others that began later go, so each sweep goes on where the last one stopped.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    after: [Option<TaskId>; ENDED.len()],
}

/// From how long ago tasks go.
#[derive(Clone, Copy)]
struct Cut {
    now: Timestamp,
    /// Where their flow does not say.
    kept: Millis,
    /// The shortest that any flow or the server says.
    kept_min: Millis,
    /// What is to be announced of a task keeps it.
    keeps_unannounced: bool,
}

impl Cut {
    fn new(connection: &Connection, now: Timestamp, retention: &Retention) -> Result<Self, Fault> {
        let (kept, keeps_unannounced) = (retention.tasks, retention.keeps_unannounced);
        let mut statement = connection.prepare_cached(SELECT_SHORTEST)?;
        let shortest: Option<i64> = statement.query_row([], |row| row.get(0))?;
        let kept_min = shortest.map_or(kept, |shortest| kept.min(Millis(from_integer(shortest))));
        Ok(Self { now, kept, kept_min, keeps_unannounced })
    }
}

/// What is exactly as old as this goes.
fn until(now: Timestamp, kept: Millis) -> Timestamp {
    Timestamp(now.0.saturating_sub_unsigned(kept.0))
}

/// A task that is to go.
struct Expired {
    id: TaskId,
    status: i64,
    task: i64,
    last: i64,
}

/// What is left of a task that went.
struct Remains {
    id: [u8; 16],
    task: i64,
    last: Option<i64>,
}

impl Sweeper {
    /// Deletes at most `limit` tasks, rows of history, alarms, keys and log lines together, in the transaction
    /// that is open. Returns how many were deleted.
    pub(super) fn sweep(
        &mut self,
        connection: &Connection,
        directory: &Directory,
        retention: &Retention,
        now: Now,
        limit: usize,
    ) -> Result<u64, Fault> {
        let until = |kept: Millis| until(now.wall, kept);
        let limit = to_integer(limit as u64);
        let mut left = limit;
        left -= delete_logs(connection, until(retention.logs), left)?;
        left -= record_rows::sweep(connection, retention, now, left)?;
        left -= delete_remains(connection, left)?;
        let cut = Cut::new(connection, now.wall, retention)?;
        for index in 0..ENDED.len() {
            if left == 0 {
                break;
            }
            for expired in self.expired(connection, directory, index, cut, left)? {
                delete_task(connection, &expired)?;
                left -= 1;
            }
        }
        left -= delete_remains(connection, left)?;
        left -= delete_alarms(connection, until(retention.tasks), left)?;
        left -= delete_orphans(connection, until(KEY_KEPT), left)?;
        Ok(u64::try_from(limit - left).unwrap_or(0))
    }

    /// The next tasks of one status that have been kept long enough, at most `limit`.
    fn expired(
        &mut self,
        connection: &Connection,
        directory: &Directory,
        index: usize,
        cut: Cut,
        limit: i64,
    ) -> Result<Vec<Expired>, Fault> {
        let status = ENDED[index].1;
        let mut statement = connection.prepare_cached(&select_expired())?;
        let after = self.after[index].take().map_or(Vec::new(), |id| id.to_bytes().to_vec());
        let mut rows = statement.query(params![status, after, LOOK_AT])?;
        let (mut expired, mut seen) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let id = task_id(row, 1)?;
            let (ended_at, created_at) = (Timestamp(row.get(4)?), Timestamp(row.get(Table::Final.width())?));
            // Those that follow were accepted later still, so they cannot have ended in time.
            if created_at > until(cut.now, cut.kept_min) + ORDER_TOLERANCE {
                return Ok(expired);
            }
            let kept: Option<i64> = row.get(Table::Final.width() + 1)?;
            let kept = kept.map_or(cut.kept, |kept| Millis(from_integer(kept)));
            let old = ended_at <= until(cut.now, kept);
            let is_kept = old && cut.keeps_unannounced && is_unannounced(connection, id)?;
            if old && !is_kept && !is_needed(connection, directory, row)? {
                match Table::Final.check(row, 0) {
                    Ok(()) => expired.push(Expired { id, status, task: row.get(2)?, last: row.get(3)? }),
                    // It is left for people to look at.
                    Err(fault) => tracing::warn!(task = %id, %fault, "a damaged task is not deleted"),
                }
            }
            seen += 1;
            if expired.len() as i64 == limit || seen == LOOK_AT {
                self.after[index] = Some(id);
                return Ok(expired);
            }
        }
        Ok(expired)
    }
}

/// Whether the task of a row of [`select_expired`] is a child that may have to roll back.
fn is_needed(connection: &Connection, directory: &Directory, row: &Row<'_>) -> Result<bool, Fault> {
    if row.get::<_, i64>(0)? != ending_code(Ending::Succeeded) {
        return Ok(false);
    }
    let head = row.get_ref(Table::Final.width() + 2)?.as_blob().map_err(from_sql)?;
    // What cannot be read belongs to a damaged task, which people are to look at.
    let Ok(input) = stored::read_input(head, "{}") else { return Ok(true) };
    let Some(top) = input.parent.map(|parent| parent.top) else { return Ok(false) };
    let mut resting = connection.prepare_cached(SELECT_RESTING_PLACE)?;
    Ok(directory.get(top).is_some() || resting.exists([top.to_bytes()])?)
}

/// Whether anything of a task is to be announced.
fn is_unannounced(connection: &Connection, task: TaskId) -> Result<bool, Fault> {
    Ok(connection.prepare_cached(IS_UNANNOUNCED)?.exists([task.to_bytes()])?)
}

/// The shortest that a flow says its tasks are kept.
pub(super) const SELECT_SHORTEST: &str = "SELECT min(kept) FROM flow_retention";

/// Ended tasks of one status behind an id, oldest first, with the time of their acceptance, how long their flow says
/// they are kept, and what was submitted.
pub(super) fn select_expired() -> String {
    format!(
        "SELECT {}, task.created_at, flow_retention.kept, task.head FROM final CROSS JOIN task ON task.n = final.task
         LEFT JOIN flow_retention ON flow_retention.name = task.flow AND flow_retention.version = task.version
         WHERE final.status = ?1 AND final.id > ?2 ORDER BY final.id LIMIT ?3",
        Table::Final.select()
    )
}

/// Deletes a task with its settled alarms, and notes what is left of it.
fn delete_task(connection: &Connection, expired: &Expired) -> Result<(), Fault> {
    let Expired { id, status, task, last } = expired;
    let id = id.to_bytes();
    let execute = |sql, parameters: &[&dyn rusqlite::ToSql]| -> rusqlite::Result<usize> {
        connection.prepare_cached(sql)?.execute(parameters)
    };
    // Whether the key is old enough to go as well is seen with the other orphans.
    execute("UPDATE submit_key SET orphan = 1 WHERE scope = (SELECT scope FROM task WHERE n = ?1)", &[task])?;
    execute("DELETE FROM unique_task WHERE task = ?1", &[&id])?;
    execute("DELETE FROM alarm WHERE task = ?1 AND resolved = 1", &[&id])?;
    execute("DELETE FROM final WHERE status = ?1 AND id = ?2", &[status, &id])?;
    execute("DELETE FROM task WHERE n = ?1", &[task])?;
    execute("INSERT INTO remains (task, id, last) VALUES (?1, ?2, ?3)", &[task, &id, last])?;
    Ok(())
}

/// Deletes at most `limit` log lines that came at `until` or before.
fn delete_logs(connection: &Connection, until: Timestamp, limit: i64) -> Result<i64, Fault> {
    // Lines come in the order of time, so the oldest are first.
    let mut statement = connection.prepare_cached(
        "DELETE FROM log WHERE seq IN (SELECT seq FROM log ORDER BY seq LIMIT ?2) AND at <= ?1
             AND seq < (SELECT max(seq) FROM log)",
    )?;
    let gone = statement.execute(params![until.0, limit])? as i64;
    if gone == limit {
        return Ok(gone);
    }
    Ok(gone + blank_newest(connection, |newest| newest.at <= until)?)
}

/// Deletes at most `limit` rows of what is left of tasks.
fn delete_remains(connection: &Connection, limit: i64) -> Result<i64, Fault> {
    let mut select = connection.prepare_cached("SELECT id, task, last FROM remains LIMIT 1")?;
    let mut gone = 0;
    loop {
        let read =
            |row: &rusqlite::Row<'_>| Ok(Remains { id: row.get(0)?, task: row.get(1)?, last: row.get(2)? });
        let Some(remains) = select.query_row([], read).optional()? else { return Ok(gone) };
        gone += delete_log_of(connection, &remains.id, limit - gone)?;
        // Before the history to which it leads.
        gone += delete_unannounced(connection, &remains.id, limit - gone)?;
        let (deleted, next) = delete_history(connection, remains.task, remains.last, limit - gone)?;
        gone += deleted;
        gone += delete_members(connection, remains.task, limit - gone)?;
        if gone == limit {
            connection
                .prepare_cached("UPDATE remains SET last = ?2 WHERE task = ?1")?
                .execute(params![remains.task, next])?;
            return Ok(gone);
        }
        connection.prepare_cached("DELETE FROM remains WHERE task = ?1")?.execute([remains.task])?;
    }
}

fn delete_log_of(connection: &Connection, id: &[u8; 16], limit: i64) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM log WHERE seq IN (SELECT seq FROM log WHERE task = ?1 LIMIT ?2)
             AND seq < (SELECT max(seq) FROM log)",
    )?;
    let gone = statement.execute(params![id, limit])? as i64;
    if gone == limit {
        return Ok(gone);
    }
    Ok(gone + blank_newest(connection, |newest| newest.task == *id)?)
}

/// The task that blank lines are of: none.
pub(super) const NOBODY: [u8; 16] = [0; 16];

/// The newest log line.
struct Newest {
    seq: i64,
    task: [u8; 16],
    at: Timestamp,
}

/// Blanks the newest log line where it is to be deleted, and returns how many lines were deleted with it. Its number stays, so that
/// none comes again: those who follow a task ask for lines above the last they saw.
fn blank_newest(connection: &Connection, goes: impl Fn(&Newest) -> bool) -> Result<i64, Fault> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Newest { seq: row.get(0)?, task: row.get(1)?, at: Timestamp(row.get(2)?) })
    };
    let mut select = connection.prepare_cached("SELECT seq, task, at FROM log ORDER BY seq DESC LIMIT 1")?;
    let Some(newest) = select.query_row([], read).optional()? else { return Ok(0) };
    if newest.task == NOBODY || !goes(&newest) {
        return Ok(0);
    }
    let mut checksum = Checksum::of(Table::Log);
    checksum.number(newest.seq).blob(&NOBODY).number(0).number(0).number(newest.at.0).text("");
    connection
        .prepare_cached(
            "UPDATE log SET task = ?2, act = 0, attempt = 0, line = '', checksum = ?3 WHERE seq = ?1",
        )?
        .execute(params![newest.seq, NOBODY, checksum.finish()])?;
    Ok(1)
}

/// Deletes at most `limit` of what is to be announced.
fn delete_unannounced(connection: &Connection, id: &[u8; 16], limit: i64) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached(DELETE_UNANNOUNCED)?;
    Ok(statement.execute(params![id, limit])? as i64)
}

/// Deletes at most `limit` members.
fn delete_members(connection: &Connection, task: i64, limit: i64) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached(DELETE_MEMBERS)?;
    Ok(statement.execute(params![task, limit])? as i64)
}

/// Members of the task `?1`, at most `?2`.
pub(super) const DELETE_MEMBERS: &str = "DELETE FROM member WHERE task = ?1 AND (step, number) IN
    (SELECT step, number FROM member WHERE task = ?1 LIMIT ?2)";

/// Deletes at most `limit` rows of history from `last` back. Returns how many were deleted, and which is the next.
fn delete_history(
    connection: &Connection,
    task: i64,
    last: Option<i64>,
    limit: i64,
) -> Result<(i64, Option<i64>), Fault> {
    // Only rows of the task, and only backwards, whatever a damaged row leads to.
    let mut previous = connection.prepare_cached(
        "SELECT previous FROM history WHERE seq = ?1 AND task = ?2 AND coalesce(previous < seq, true)",
    )?;
    let mut delete = connection.prepare_cached("DELETE FROM history WHERE seq = ?1")?;
    let (mut gone, mut next) = (0, last);
    while let Some(seq) = next.filter(|_| gone < limit) {
        let Some(before) = previous.query_row([seq, task], |row| row.get(0)).optional()? else {
            return Ok((gone, None));
        };
        next = before;
        gone += delete.execute([seq])? as i64;
    }
    Ok((gone, next))
}

/// Settled alarms of tasks that are gone. Few are as old as that, and most of them belong to a task that has ended
/// and goes later, so what has not ended is read only where one is left over.
pub(super) const DELETE_ALARMS: &str = "DELETE FROM alarm WHERE id IN
    (SELECT id FROM alarm INDEXED BY alarm_by_time WHERE raised_at <= ?1 AND resolved = 1
     AND NOT EXISTS (SELECT 1 FROM final WHERE final.status IN (1, 2, 3, 4) AND final.id = alarm.task)
     AND NOT EXISTS (SELECT 1 FROM resting WHERE resting.id = alarm.task)
     AND alarm.task NOT IN (SELECT task.id FROM active CROSS JOIN task ON task.n = active.task) LIMIT ?2)";

/// Deletes at most `limit` settled alarms that were raised at `until` or before, and whose tasks are gone.
fn delete_alarms(connection: &Connection, until: Timestamp, limit: i64) -> Result<i64, Fault> {
    Ok(connection.prepare_cached(DELETE_ALARMS)?.execute(params![until.0, limit])? as i64)
}

/// Deletes at most `limit` keys of deleted tasks that were submitted at `until` or before.
fn delete_orphans(connection: &Connection, until: Timestamp, limit: i64) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM submit_key WHERE scope IN
         (SELECT scope FROM submit_key WHERE orphan = 1 AND created_at <= ?1 ORDER BY created_at LIMIT ?2)",
    )?;
    Ok(statement.execute(params![until.0, limit])? as i64)
}
