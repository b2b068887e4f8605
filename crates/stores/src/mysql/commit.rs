//! Writes and commits batches, and finds out what became of a commit whose connection was lost.
//!
//! Each transaction leaves a mark, the connection's number and its own, which only one transaction can leave. To find out
//! what became of it, the store tries to leave the same mark. If that succeeds, the transaction has not committed and never
//! will; if the mark is there, it has.

use std::sync::Arc;

use mysql_async::Row;

use super::{
    connection::Connection,
    error::lost,
    news::Notifier,
    script::{Script, cells},
    write::add_writes,
};
use crate::rows::{
    Columns as _, Fault, Keys, Link as _,
    commit::{CommitSql, Fate, Granted, Write},
};

/// The database's clock.
pub(super) const NOW: &str = "FLOOR(UNIX_TIMESTAMP(SYSDATE(6)) * 1000)";

/// Whether a queue has a ready attempt.
const HAS_READY: &str = "SELECT EXISTS (SELECT 1 FROM windlass_wait WHERE queue = ?)";

impl CommitSql for Connection {
    /// The mark of the transaction: the connection's number, and that of its commit.
    type Trace = (u128, i64);
    type Memory = Arc<Notifier>;

    const COMMITS_CLAIM: bool = false;

    fn is_recognised(_: &Keys) -> bool {
        true
    }

    fn trace(&mut self, _: &Keys, _: &[Row]) -> Result<(u128, i64), Fault> {
        self.next_mark().ok_or_else(|| lost("the connection is closed"))
    }

    async fn write(
        &mut self,
        notifier: &Arc<Notifier>,
        mark: &(u128, i64),
        write: Write<'_>,
    ) -> Result<Granted, Fault> {
        let (id, n) = *mark;
        let mut script = if write.begins { Script::begin() } else { Script::default() };
        let mut before = Vec::new();
        if notifier.is_due() {
            let modules = write.writes.modules();
            before.extend(modules.iter().map(|module| script.add(HAS_READY, cells![module])));
        }
        let queues = write.new_queues.iter().map(|name| cells![name, true]);
        script.insert("INSERT INTO windlass_queue (name, used)", queues, "ON DUPLICATE KEY UPDATE used = 1");
        add_writes(&mut script, write.writes);
        add_mark(&mut script, *mark);
        script.add("DELETE FROM windlass_commit WHERE connection = ? AND n = ?", cells![id, n - 1]);
        script.end_as(write.led);
        let answers = self.send(script).await?;
        let is_empty =
            |place: &usize| answers[*place].first().is_some_and(|row| row.flag(0).is_ok_and(|has| !has));
        if before.iter().any(is_empty) {
            notifier.notify();
        }
        Ok(Vec::new())
    }

    /// Waits for the transaction, if it is still in flight.
    async fn fate(&mut self, mark: &(u128, i64)) -> Result<Option<Fate>, Fault> {
        let mut script = Script::default();
        add_mark(&mut script, *mark);
        match self.send(script).await {
            Ok(_) => Ok(Some(Fate::Dead)),
            Err(fault) if fault.is_taken() => Ok(Some(Fate::Committed)),
            Err(fault) => Err(fault),
        }
    }
}

fn add_mark(script: &mut Script, (id, n): (u128, i64)) {
    let sql = format!("INSERT INTO windlass_commit (connection, n, at) VALUES (?, ?, {NOW})");
    script.add(&sql, cells![id, n]);
}
