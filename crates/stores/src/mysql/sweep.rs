//! Deletes what is kept too long: rows are looked for first, and deleted by their keys.

use windlass_core::{TaskId, is_adhoc};
use windlass_store::{JournalKind, Leadership, Now, Retention};

use super::{
    commit::NOW,
    connection::Connection,
    script::{Cell, Script, cells},
};
use crate::rows::{
    Columns as _, Fault, Link as _,
    sweep::{KEY_KEPT, SweepSql, until},
};

/// How long the mark of a connection's last commit is kept: far longer than anybody asks about it.
const MARK_KEPT_MS: u64 = 3_600_000;

impl SweepSql for Connection {
    async fn sweep(
        &mut self,
        retention: &Retention,
        led: Option<Leadership>,
        now: Now,
        limit: usize,
    ) -> Result<u64, Fault> {
        let keeps_unannounced = retention.keeps_unannounced;
        let mut sweeper = Sweeper { connection: self, led, keeps_unannounced, left: limit };
        sweeper.marks().await?;
        sweeper.logs(until(now, retention.logs)).await?;
        for kind in JournalKind::ALL {
            sweeper.entries(kind, kind.until(retention, now.wall).0).await?;
        }
        sweeper.remains().await?;
        sweeper.tasks("kept_until", now.wall.0).await?;
        sweeper.tasks("kept_since", until(now, retention.tasks)).await?;
        sweeper.remains().await?;
        sweeper.alarms(until(now, retention.tasks)).await?;
        sweeper.orphans(until(now, KEY_KEPT)).await?;
        sweeper.flows().await?;
        Ok((limit - sweeper.left) as u64)
    }
}

struct Sweeper<'c> {
    connection: &'c mut Connection,
    /// The lease that must still stand when something is deleted.
    led: Option<Leadership>,
    /// What is to be announced of a task keeps it.
    keeps_unannounced: bool,
    /// The number of rows that may still be deleted.
    left: usize,
}

impl Sweeper<'_> {
    /// Marks of connections that are gone. Nobody counts them.
    async fn marks(&mut self) -> Result<(), Fault> {
        let mut script = Script::begin();
        let old = format!("DELETE FROM windlass_commit WHERE at < {NOW} - {MARK_KEPT_MS} LIMIT 1000");
        script.add(&old, []);
        script.end_as(self.led);
        self.connection.send(script).await?;
        Ok(())
    }

    /// Lines come in the order of time, so the oldest are first.
    async fn logs(&mut self, until: i64) -> Result<(), Fault> {
        let lines = format!("SELECT seq, at <= ? FROM windlass_log ORDER BY seq LIMIT {}", self.left);
        let mut script = Script::default();
        script.add(&lines, cells![until]);
        let sets = self.connection.send(script).await?;
        let mut old = Vec::new();
        for row in &sets[0] {
            if row.number(1)? == 1 {
                old.push(Cell::from(row.number(0)?));
            }
        }
        self.delete("DELETE FROM windlass_log WHERE seq", old).await
    }

    /// Entries of a journal.
    async fn entries(&mut self, kind: JournalKind, until: i64) -> Result<(), Fault> {
        let old = format!(
            "SELECT seq FROM windlass_journal WHERE kind = {} AND at <= ? ORDER BY at LIMIT {}",
            kind.code(),
            self.left
        );
        let mut script = Script::default();
        script.add(&old, cells![until]);
        let sets = self.connection.send(script).await?;
        let mut old = Vec::new();
        for row in &sets[0] {
            old.push(Cell::from(row.number(0)?));
        }
        self.delete("DELETE FROM windlass_journal WHERE seq", old).await
    }

    /// Deletes rows by their keys.
    async fn delete(&mut self, head: &str, keys: Vec<Cell<'_>>) -> Result<(), Fault> {
        if keys.is_empty() {
            return Ok(());
        }
        self.left = self.left.saturating_sub(keys.len());
        let mut script = Script::begin();
        script.for_keys(head, keys, "");
        script.end_as(self.led);
        self.connection.send(script).await?;
        Ok(())
    }

    /// Tasks with a time in this column that is over.
    async fn tasks(&mut self, column: &str, until: i64) -> Result<(), Fault> {
        if self.left == 0 {
            return Ok(());
        }
        let announced = match self.keeps_unannounced {
            true => "AND NOT EXISTS (SELECT 1 FROM windlass_outbox o WHERE o.task = s.task)",
            false => "",
        };
        let mut script = Script::begin();
        let expired = format!(
            "SELECT s.task, t.scope FROM windlass_state s FORCE INDEX (by_{column})
             STRAIGHT_JOIN windlass_task t ON t.id = s.task
             WHERE s.{column} <= ? AND NOT EXISTS (
                 SELECT 1 FROM windlass_state top WHERE top.task = s.kept_for AND top.ending IS NULL
             ) {announced}
             ORDER BY s.{column} LIMIT {} FOR UPDATE SKIP LOCKED",
            self.left
        );
        let expired = script.add(&expired, cells![until]);
        let sets = self.connection.send(script).await?;
        let (mut tasks, mut scopes): (Vec<TaskId>, Vec<Cell<'_>>) = (Vec::new(), Vec::new());
        for row in &sets[expired] {
            tasks.push(row.task(0)?);
            scopes.extend(row.optional_bytes(1)?.map(Cell::from));
        }
        if tasks.is_empty() {
            return self.connection.roll_back().await;
        }
        let keys = || tasks.iter().map(|task| Cell::from(*task));
        let mut script = Script::default();
        // Whether a key is old enough to go as well is seen with the other orphans.
        script.for_keys("UPDATE windlass_submit_key SET orphan = 1 WHERE scope", scopes, "");
        script.for_keys("DELETE FROM windlass_unique_task WHERE task", keys(), "");
        script.for_keys("DELETE FROM windlass_alarm WHERE resolved = 1 AND task", keys(), "");
        script.for_keys("DELETE FROM windlass_wait WHERE task", keys(), "");
        script.for_keys("DELETE FROM windlass_state WHERE task", keys(), "");
        script.for_keys("DELETE FROM windlass_task WHERE id", keys(), "");
        script.insert("INSERT IGNORE INTO windlass_remains (task)", keys().map(|key| vec![key]), "");
        script.end_as(self.led);
        self.connection.send(script).await?;
        self.left -= tasks.len();
        Ok(())
    }

    /// What is left of tasks that are gone.
    async fn remains(&mut self) -> Result<(), Fault> {
        while self.left > 0 {
            let mut script = Script::begin();
            let some = "SELECT task FROM windlass_remains ORDER BY task LIMIT 500 FOR UPDATE SKIP LOCKED";
            let some = script.add(some, []);
            let sets = self.connection.send(script).await?;
            let tasks = sets[some].iter().map(|row| row.task(0)).collect::<Result<Vec<_>, _>>()?;
            if tasks.is_empty() {
                return self.connection.roll_back().await;
            }
            let keys = || tasks.iter().map(|task| Cell::from(*task));
            // The outbox before the history to which it leads.
            for table in ["log", "outbox", "history", "member", "result"] {
                let mut script = Script::default();
                let head = format!("DELETE FROM windlass_{table} WHERE task");
                script.for_keys(&head, keys(), &format!("LIMIT {}", self.left));
                let gone = script.add("SELECT ROW_COUNT()", []);
                let sets = self.connection.send(script).await?;
                let gone = sets[gone].first().map(|row| row.number(0)).transpose()?.unwrap_or(0);
                self.left = self.left.saturating_sub(usize::try_from(gone).unwrap_or(0));
            }
            let mut script = Script::default();
            if self.left > 0 {
                script.for_keys("DELETE FROM windlass_remains WHERE task", keys(), "");
            }
            script.end_as(self.led);
            self.connection.send(script).await?;
        }
        Ok(())
    }

    /// Settled alarms of tasks that are gone.
    async fn alarms(&mut self, until: i64) -> Result<(), Fault> {
        let sql = format!(
            "SELECT a.id FROM windlass_alarm a WHERE a.resolved = 1 AND a.raised_at <= ?
             AND NOT EXISTS (SELECT 1 FROM windlass_task t WHERE t.id = a.task) LIMIT {}",
            self.left
        );
        self.delete_found(&sql, until, "DELETE FROM windlass_alarm WHERE resolved = 1 AND id").await
    }

    /// Idempotency keys of tasks that are gone.
    async fn orphans(&mut self, until: i64) -> Result<(), Fault> {
        let sql = format!(
            "SELECT scope FROM windlass_submit_key WHERE orphan = 1 AND created_at <= ?
             ORDER BY created_at LIMIT {}",
            self.left
        );
        self.delete_found(&sql, until, "DELETE FROM windlass_submit_key WHERE orphan = 1 AND scope").await
    }

    /// Flows that came with tasks and have none any more. They are held while it is looked once more: a task may just
    /// have come.
    async fn flows(&mut self) -> Result<(), Fault> {
        if self.left == 0 {
            return Ok(());
        }
        const UNUSED: &str = "NOT EXISTS (SELECT 1 FROM windlass_task t WHERE t.flow = windlass_flow.name)";
        let mut script = Script::begin();
        let sql = format!(
            "SELECT name FROM windlass_flow WHERE name LIKE 'adhoc-%' AND {UNUSED}
             ORDER BY name LIMIT {} FOR UPDATE SKIP LOCKED",
            self.left.min(500)
        );
        let unused = script.add(&sql, []);
        let sets = self.connection.send(script).await?;
        let names = sets[unused].iter().map(|row| row.name(0)).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<Cell<'_>> =
            names.iter().filter(|name| is_adhoc(name.as_str())).map(Cell::from).collect();
        if names.is_empty() {
            return self.connection.roll_back().await;
        }
        let mut script = Script::default();
        script.for_keys(&format!("DELETE FROM windlass_flow WHERE {UNUSED} AND name"), names, "");
        let gone = script.add("SELECT ROW_COUNT()", []);
        script.end_as(self.led);
        let sets = self.connection.send(script).await?;
        let gone = sets[gone].first().map(|row| row.number(0)).transpose()?.unwrap_or(0);
        self.left = self.left.saturating_sub(usize::try_from(gone).unwrap_or(0));
        Ok(())
    }

    async fn delete_found(&mut self, sql: &str, until: i64, head: &str) -> Result<(), Fault> {
        if self.left == 0 {
            return Ok(());
        }
        let mut script = Script::default();
        script.add(sql, cells![until]);
        let sets = self.connection.send(script).await?;
        let keys = sets[0].iter().map(|row| Ok(row.bytes(0)?.into()));
        let keys = keys.collect::<Result<Vec<Cell<'_>>, Fault>>()?;
        self.delete(head, keys).await
    }
}
