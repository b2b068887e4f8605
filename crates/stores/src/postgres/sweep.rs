//! Deletes what is kept too long: one statement for each kind of row.

use uuid::Uuid;
use windlass_store::{JournalKind, Leadership, Now, Retention};

use super::{
    connection::{Batch, Connection, parameters},
    records::OLD_ENTRIES,
};
use crate::rows::{
    Columns as _, Fault, Link as _,
    sweep::{KEY_KEPT, SweepSql, until},
    to_integer,
};

/// Lines come in the order of time, so the oldest are first.
const LOGS: &str = "DELETE FROM windlass_log WHERE seq IN (
        SELECT seq FROM (SELECT seq, at FROM windlass_log ORDER BY seq LIMIT $2) oldest WHERE at <= $1
    ) RETURNING true";
/// Tasks whose flows do not say for how long they are kept, and those whose flows do. A child that succeeded stays until
/// the topmost task above it has ended: it may have to roll back. Where what happened is announced, a task stays until
/// all of it was.
const OLD: &str = "SELECT t.id, t.scope FROM windlass_task t
    WHERE t.ending IS NOT NULL AND t.kept_for IS NULL AND t.ended_at <= $1
      AND (t.ending <> 1 OR t.top IS NULL
           OR NOT EXISTS (SELECT FROM windlass_task p WHERE p.id = t.top AND p.ending IS NULL))
      AND (NOT $3 OR NOT EXISTS (SELECT FROM windlass_outbox o WHERE o.task = t.id))
    ORDER BY t.ended_at LIMIT $2 FOR UPDATE OF t SKIP LOCKED";
const OLD_BY_FLOW: &str = "SELECT t.id, t.scope FROM windlass_task t
    WHERE t.ending IS NOT NULL AND t.kept_for IS NOT NULL AND t.ended_at + t.kept_for <= $1
      AND (t.ending <> 1 OR t.top IS NULL
           OR NOT EXISTS (SELECT FROM windlass_task p WHERE p.id = t.top AND p.ending IS NULL))
      AND (NOT $3 OR NOT EXISTS (SELECT FROM windlass_outbox o WHERE o.task = t.id))
    ORDER BY t.ended_at + t.kept_for LIMIT $2 FOR UPDATE OF t SKIP LOCKED";
const ORPHAN: &str = "UPDATE windlass_submit_key SET orphan = true WHERE scope = ANY($1::bytea[])";
const UNIQUE: &str = "DELETE FROM windlass_unique_task WHERE task = ANY($1::uuid[])";
const ALARMS_OF: &str = "DELETE FROM windlass_alarm WHERE task = ANY($1::uuid[]) AND resolved";
const WAITS_OF: &str = "DELETE FROM windlass_wait WHERE task = ANY($1::uuid[])";
const TASKS: &str = "DELETE FROM windlass_task WHERE id = ANY($1::uuid[])";
const NOTE: &str = "INSERT INTO windlass_remains (task) SELECT unnest($1::uuid[]) ON CONFLICT DO NOTHING";
const REMAINS: &str = "SELECT task FROM windlass_remains ORDER BY task LIMIT $1 FOR UPDATE SKIP LOCKED";
const FORGET: &str = "DELETE FROM windlass_remains WHERE task = ANY($1::uuid[])";
const OF_TASKS: [&str; 5] = [
    "DELETE FROM windlass_log WHERE seq IN
        (SELECT seq FROM windlass_log WHERE task = ANY($1::uuid[]) LIMIT $2) RETURNING true",
    // Before the history to which it leads.
    "DELETE FROM windlass_outbox WHERE (task, after) IN
        (SELECT task, after FROM windlass_outbox WHERE task = ANY($1::uuid[]) LIMIT $2) RETURNING true",
    "DELETE FROM windlass_history WHERE (task, last) IN
        (SELECT task, last FROM windlass_history WHERE task = ANY($1::uuid[]) LIMIT $2) RETURNING true",
    "DELETE FROM windlass_member WHERE (task, step, number) IN
        (SELECT task, step, number FROM windlass_member WHERE task = ANY($1::uuid[]) LIMIT $2) RETURNING true",
    "DELETE FROM windlass_result WHERE (task, act) IN
        (SELECT task, act FROM windlass_result WHERE task = ANY($1::uuid[]) LIMIT $2) RETURNING true",
];
/// Flows that came with tasks and have none any more. They are held while it is looked once more: a task may just have
/// come.
const UNUSED_FLOWS: &str = "SELECT f.name FROM windlass_flow f
    WHERE f.name LIKE 'adhoc-%' AND f.name ~ '^adhoc-[0-9a-f]{16}$'
      AND NOT EXISTS (SELECT FROM windlass_task t WHERE t.flow = f.name AND t.flow LIKE 'adhoc-%')
    ORDER BY f.name LIMIT $1 FOR UPDATE SKIP LOCKED";
const FLOWS: &str = "DELETE FROM windlass_flow f WHERE f.name = ANY($1::text[])
    AND NOT EXISTS (SELECT FROM windlass_task t WHERE t.flow = f.name AND t.flow LIKE 'adhoc-%')
    RETURNING true";
/// Settled alarms of tasks that are gone.
const ALARMS: &str = "DELETE FROM windlass_alarm WHERE id IN (
        SELECT a.id FROM windlass_alarm a WHERE a.raised_at <= $1 AND a.resolved
        AND NOT EXISTS (SELECT FROM windlass_task t WHERE t.id = a.task) LIMIT $2
    ) RETURNING true";
const ORPHANS: &str = "DELETE FROM windlass_submit_key WHERE scope IN (
        SELECT scope FROM windlass_submit_key WHERE orphan AND created_at <= $1 ORDER BY created_at LIMIT $2
    ) RETURNING true";

impl SweepSql for Connection {
    async fn sweep(
        &mut self,
        retention: &Retention,
        led: Option<Leadership>,
        now: Now,
        limit: usize,
    ) -> Result<u64, Fault> {
        let limit = to_integer(limit as u64);
        let mut left = limit;
        let mut sweeper = Sweeper { connection: self, led, keeps_unannounced: retention.keeps_unannounced };
        left -= sweeper.delete(LOGS, until(now, retention.logs), left).await?;
        for kind in JournalKind::ALL {
            left -= sweeper.delete_entries(kind, kind.until(retention, now.wall).0, left).await?;
        }
        left -= sweeper.delete_remains(left).await?;
        left -= sweeper.delete_tasks(OLD, until(now, retention.tasks), left).await?;
        left -= sweeper.delete_tasks(OLD_BY_FLOW, now.wall.0, left).await?;
        left -= sweeper.delete_remains(left).await?;
        left -= sweeper.delete_flows(left).await?;
        left -= sweeper.delete(ALARMS, until(now, retention.tasks), left).await?;
        left -= sweeper.delete(ORPHANS, until(now, KEY_KEPT), left).await?;
        Ok(u64::try_from(limit - left).unwrap_or(0))
    }
}

struct Sweeper<'c> {
    connection: &'c mut Connection,
    /// The lease that must still stand when something is deleted.
    led: Option<Leadership>,
    /// What is to be announced of a task keeps it.
    keeps_unannounced: bool,
}

impl Sweeper<'_> {
    async fn delete(&mut self, sql: &'static str, until: i64, most: i64) -> Result<i64, Fault> {
        if most <= 0 {
            return Ok(0);
        }
        let batch = Batch::one(sql, parameters![until, most]).led(self.led);
        Ok(self.connection.rows(batch).await?.len() as i64)
    }

    async fn delete_entries(&mut self, kind: JournalKind, until: i64, most: i64) -> Result<i64, Fault> {
        if most <= 0 {
            return Ok(0);
        }
        let batch = Batch::one(OLD_ENTRIES, parameters![until, most, kind.code()]).led(self.led);
        Ok(self.connection.rows(batch).await?.len() as i64)
    }

    async fn delete_tasks(&mut self, sql: &'static str, until: i64, most: i64) -> Result<i64, Fault> {
        if most <= 0 {
            return Ok(0);
        }
        let mut batch = Batch::begin();
        batch.add(sql, parameters![until, most, self.keeps_unannounced]);
        let rows = self.connection.send(batch).await?.remove(0);
        if rows.is_empty() {
            self.connection.roll_back().await?;
            return Ok(0);
        }
        let (mut tasks, mut scopes): (Vec<Uuid>, Vec<&[u8]>) = (Vec::new(), Vec::new());
        for row in &rows {
            tasks.push(row.try_get(0)?);
            scopes.extend(row.optional_bytes(1)?);
        }
        let mut batch = Batch::default();
        // Whether a key is old enough to go as well is seen with the other orphans.
        batch.add(ORPHAN, parameters![scopes]);
        for sql in [UNIQUE, ALARMS_OF, WAITS_OF, TASKS, NOTE] {
            batch.add(sql, parameters![tasks.clone()]);
        }
        self.connection.send(batch.and_commit_as(self.led)).await?;
        Ok(tasks.len() as i64)
    }

    /// Deletes at most `most` flows that came with tasks and have none any more.
    async fn delete_flows(&mut self, most: i64) -> Result<i64, Fault> {
        if most <= 0 {
            return Ok(0);
        }
        let mut batch = Batch::begin();
        batch.add(UNUSED_FLOWS, parameters![most]);
        let rows = self.connection.send(batch).await?.remove(0);
        if rows.is_empty() {
            self.connection.roll_back().await?;
            return Ok(0);
        }
        let names = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let mut batch = Batch::default();
        batch.add(FLOWS, parameters![names]);
        Ok(self.connection.send(batch.and_commit_as(self.led)).await?.remove(0).len() as i64)
    }

    /// Deletes at most `most` rows of what is left of tasks.
    async fn delete_remains(&mut self, most: i64) -> Result<i64, Fault> {
        let mut gone = 0;
        while gone < most {
            let mut batch = Batch::begin();
            batch.add(REMAINS, parameters![most]);
            let rows = self.connection.send(batch).await?.remove(0);
            if rows.is_empty() {
                self.connection.roll_back().await?;
                return Ok(gone);
            }
            let tasks = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<Uuid>, _>>()?;
            for sql in OF_TASKS {
                let room = most - gone;
                gone +=
                    self.connection.rows(Batch::one(sql, parameters![&tasks[..], room])).await?.len() as i64;
            }
            let mut batch = Batch::default();
            if gone < most {
                batch.add(FORGET, parameters![tasks]);
            }
            self.connection.send(batch.and_commit_as(self.led)).await?;
        }
        Ok(gone)
    }
}
