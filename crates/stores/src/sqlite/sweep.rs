//! Deleting what is kept too long, a little at a time.

use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::{Millis, TaskId, Timestamp};
use windlass_engine::ports::{Now, Retention};

use super::{
    encoding::{ENDED, task_id, to_integer},
    error::Fault,
};

/// Tasks looked at in one go, in each status.
const LOOK_AT: i64 = 1_000;

/// How long a task keeps its idempotency key at least, and so is kept itself.
const KEY_KEPT: Millis = Millis::from_secs(24 * 3600);

/// Where the last sweep stopped. Tasks are looked at oldest first; one that took long to end stays behind while
/// others that began later go, so each sweep goes on where the last one stopped.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    after: [Option<TaskId>; ENDED.len()],
}

struct Expired {
    id: TaskId,
    status: i64,
    task: i64,
    last: i64,
}

impl Sweeper {
    /// Deletes at most `limit` rows in the transaction that is open. Tells how many went.
    pub(super) fn sweep(
        &mut self,
        connection: &Connection,
        retention: &Retention,
        now: Now,
        limit: usize,
    ) -> Result<u64, Fault> {
        let before = |kept: Millis| Timestamp(now.wall.0.saturating_sub_unsigned(kept.0));
        let mut left = to_integer(limit as u64);
        left -= sweep_logs(connection, before(retention.logs), left)?;
        for index in 0..ENDED.len() {
            if left <= 0 {
                break;
            }
            for expired in self.expired(connection, index, before(retention.tasks), before(KEY_KEPT))? {
                if left <= 0 {
                    // Not all of them went: look at them again.
                    self.after[index] = None;
                    break;
                }
                left -= delete_task(connection, &expired, left)?;
            }
        }
        Ok(u64::try_from(to_integer(limit as u64) - left).unwrap_or(0))
    }

    /// The next tasks of one status that ended before `ended_before`.
    fn expired(
        &mut self,
        connection: &Connection,
        index: usize,
        ended_before: Timestamp,
        keyed_before: Timestamp,
    ) -> Result<Vec<Expired>, Fault> {
        let status = ENDED[index].1;
        // An id holds the time it was made at: one made after `ended_before` cannot have ended before it.
        let made_before = TaskId(u128::try_from(ended_before.0).unwrap_or(0) << 80);
        let mut statement = connection.prepare_cached(
            "SELECT final.id, final.task, final.last, final.ended_at, task.created_at, task.scope IS NOT NULL
             FROM final CROSS JOIN task ON task.n = final.task
             WHERE final.status = ?1 AND final.id > ?2 AND final.id < ?3 ORDER BY final.id LIMIT ?4",
        )?;
        let after = self.after[index].unwrap_or(TaskId(0));
        let mut rows = statement.query(params![status, after.to_bytes(), made_before.to_bytes(), LOOK_AT])?;
        let (mut expired, mut seen) = (Vec::new(), 0);
        let mut last = None;
        while let Some(row) = rows.next()? {
            let id = task_id(row, 0)?;
            (last, seen) = (Some(id), seen + 1);
            let (ended_at, created_at) = (Timestamp(row.get(3)?), Timestamp(row.get(4)?));
            let keyed: bool = row.get(5)?;
            if ended_at < ended_before && (!keyed || created_at < keyed_before) {
                expired.push(Expired { id, status, task: row.get(1)?, last: row.get(2)? });
            }
        }
        self.after[index] = last.filter(|_| seen == LOOK_AT);
        Ok(expired)
    }
}

fn sweep_logs(connection: &Connection, before: Timestamp, limit: i64) -> Result<i64, Fault> {
    // Lines come in the order of time, so the oldest are first.
    let mut statement = connection.prepare_cached(
        "DELETE FROM log WHERE seq IN (SELECT seq FROM log ORDER BY seq LIMIT ?2) AND at < ?1",
    )?;
    Ok(statement.execute(params![before.0, limit])? as i64)
}

/// Deletes at most `limit` rows of a task, its history from the newest back, the task itself last. What is left
/// is a task with a shorter history, and goes next time.
fn delete_task(connection: &Connection, expired: &Expired, limit: i64) -> Result<i64, Fault> {
    let id = expired.id.to_bytes();
    let mut gone = delete_logs(connection, &id, limit)?;
    let mut previous = connection.prepare_cached("SELECT previous FROM history WHERE seq = ?1")?;
    let mut delete = connection.prepare_cached("DELETE FROM history WHERE seq = ?1")?;
    let mut next = Some(expired.last);
    while let Some(seq) = next {
        if gone >= limit {
            connection
                .prepare_cached("UPDATE final SET last = ?3 WHERE status = ?1 AND id = ?2")?
                .execute(params![expired.status, id, seq])?;
            return Ok(gone);
        }
        next = previous.query_row([seq], |row| row.get(0)).optional()?.flatten();
        gone += delete.execute([seq])? as i64;
    }
    for sql in [
        "DELETE FROM submit_key WHERE scope = (SELECT task.scope FROM task WHERE task.n = ?1)",
        "DELETE FROM alarm WHERE task = (SELECT task.id FROM task WHERE task.n = ?1) AND resolved = 1",
        "DELETE FROM task WHERE n = ?1",
    ] {
        gone += connection.prepare_cached(sql)?.execute([expired.task])? as i64;
    }
    gone += connection
        .prepare_cached("DELETE FROM final WHERE status = ?1 AND id = ?2")?
        .execute(params![expired.status, id])? as i64;
    Ok(gone)
}

fn delete_logs(connection: &Connection, id: &[u8; 16], limit: i64) -> Result<i64, Fault> {
    let mut statement = connection
        .prepare_cached("DELETE FROM log WHERE seq IN (SELECT seq FROM log WHERE task = ?1 LIMIT ?2)")?;
    Ok(statement.execute(params![id, limit])? as i64)
}
