//! Tasks that applications enqueued, by the procedures of `migrations/0002.sql`.

use windlass_core::TaskId;
use windlass_store::{Leadership, Settlement};

use super::{
    connection::Connection,
    script::{Cell, Script, cells},
};
use crate::rows::{Columns as _, Fault, Link as _, enqueued::EnqueuedSql, to_integer};

impl EnqueuedSql for Connection {
    fn waiting(limit: usize, after: u64) -> Script {
        let sql = format!(
            "SELECT id, enqueued_by, task, refusals, seq FROM (
                 SELECT seq, id, enqueued_by, task, refusals,
                     SUM(LENGTH(task)) OVER (ORDER BY seq) - LENGTH(task) AS bytes_before
                 FROM (
                     SELECT seq, id, enqueued_by, task, refusals FROM windlass_enqueued FORCE INDEX (by_waits)
                     WHERE waits = 1 AND seq > ? ORDER BY seq LIMIT {limit}
                 ) AS the_first
             ) AS counted
             WHERE bytes_before < 8388608 ORDER BY seq"
        );
        Script::one(&sql, cells![to_integer(after)])
    }

    fn standing(id: TaskId) -> Script {
        Script::one("SELECT refused, stands_for FROM windlass_enqueued WHERE id = ?", cells![id])
    }

    async fn settle(
        &mut self,
        settled: &[(TaskId, Settlement)],
        led: Option<Leadership>,
    ) -> Result<usize, Fault> {
        let mut script = Script::begin();
        let ids = settled.iter().map(|(id, _)| Cell::from(*id));
        script.for_keys("SELECT id FROM windlass_enqueued WHERE id", ids, "FOR UPDATE SKIP LOCKED");
        let stands = settled.iter().any(|(_, settlement)| matches!(settlement, Settlement::StandsFor(_)));
        if stands {
            let old = "SELECT id FROM windlass_enqueued
                WHERE waits IS NULL AND stands_for IS NOT NULL AND stood_for_at < NOW() - INTERVAL 1 DAY
                ORDER BY seq LIMIT 1000 FOR UPDATE SKIP LOCKED";
            script.add(old, []);
        }
        let sets = self.send(script).await?;
        let mut found = Vec::new();
        for row in sets.iter().take(1).flatten() {
            found.push(row.task(0)?);
        }
        found.sort();
        let mut gone = Vec::new();
        for row in sets.iter().skip(1).flatten() {
            gone.push(Cell::from(row.task(0)?));
        }
        let mut script = Script::default();
        for (id, settlement) in settled {
            if found.binary_search(id).is_err() {
                continue;
            }
            match settlement {
                Settlement::Accepted => gone.push(Cell::from(*id)),
                Settlement::Refused(why) => {
                    let sql =
                        "UPDATE windlass_enqueued SET refused = ?, refusals = refusals + 1 WHERE id = ?";
                    script.add(sql, cells![&**why, *id]);
                }
                Settlement::StandsFor(task) => {
                    let sql =
                        "UPDATE windlass_enqueued SET stands_for = ?, stood_for_at = NOW() WHERE id = ?";
                    script.add(sql, cells![*task, *id]);
                }
            }
        }
        script.for_keys("DELETE FROM windlass_enqueued WHERE id", gone, "");
        script.end_as(led);
        self.send(script).await?;
        Ok(found.len())
    }
}
