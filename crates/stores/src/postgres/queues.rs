//! Queues, and places in them.

use std::sync::Arc;

use uuid::Uuid;
use windlass_core::{ActKey, Actor, TaskId, Timestamp};
use windlass_store::{DamagedTask, Quarantine, QueuePause, QueueState, StoreError};

use super::{
    connection::{Batch, Connection, parameters},
    error::Fault,
};
use crate::rows::{KeyInLine, Turn, act_code, from_integer, name, place_among};

const QUEUES: &str = "SELECT q.name, q.paused_at, q.by_name, q.by_claimed,
        (SELECT count(*) FROM windlass_wait w
         WHERE w.module = q.name AND w.session IS NULL AND w.free = 0),
        coalesce(r.running, 0),
        (SELECT w.ready_at FROM windlass_wait w WHERE w.module = q.name AND w.session IS NULL AND w.free = 0
         ORDER BY w.rank, w.task, w.act LIMIT 1)
    FROM windlass_queue q
    LEFT JOIN (SELECT module, count(*) AS running FROM windlass_wait WHERE session IS NOT NULL GROUP BY module) r
        ON r.module = q.name
    WHERE q.used OR q.paused_at IS NOT NULL ORDER BY q.name";
/// Of each key how many are in line, and how many of them before this one. Those without a key are the whole line but
/// those with one: so all is counted in indexes, and no row is read. Where nobody has a key, those behind are of no
/// interest.
const LINE: &str = "WITH this AS (
        SELECT w.module, w.rank, w.task, w.act, w.fairness, q.turn
        FROM windlass_wait w LEFT JOIN windlass_queue q ON q.name = w.module
        WHERE w.task = $1 AND w.act = $2 AND w.session IS NULL AND w.free = 0
    ), keyed AS MATERIALIZED (
        SELECT w.fairness, count(*) AS n,
               count(*) FILTER (WHERE (w.rank, w.task, w.act) < (this.rank, this.task, this.act)) AS before
        FROM this JOIN windlass_wait w
            ON w.module = this.module AND w.session IS NULL AND w.free = 0 AND w.fairness <> ''
        GROUP BY w.fairness
    ), line AS MATERIALIZED (
        SELECT (SELECT count(*) FROM windlass_wait w
                WHERE w.module = this.module AND w.session IS NULL AND w.free = 0
                  AND (w.rank, w.task, w.act) < (this.rank, this.task, this.act)) AS before,
               CASE WHEN EXISTS (SELECT FROM keyed) THEN (
                   SELECT count(*) FROM windlass_wait w
                   WHERE w.module = this.module AND w.session IS NULL AND w.free = 0) END AS n
        FROM this
    ), keyless AS (
        SELECT ''::bytea AS fairness,
               coalesce(line.n - (SELECT sum(n) FROM keyed)::int8, line.before + 1) AS n,
               line.before - coalesce((SELECT sum(before) FROM keyed), 0)::int8 AS before
        FROM line
    )
    SELECT k.fairness, k.n, k.before, k.fairness = this.fairness, this.turn
    FROM this CROSS JOIN (SELECT * FROM keyed UNION ALL SELECT * FROM keyless WHERE n > 0) k
    ORDER BY k.fairness";

/// All queues, by name.
pub(super) async fn queues(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
) -> Result<Vec<QueueState>, Fault> {
    let rows = connection.query(QUEUES, &[]).await?;
    let mut queues = Vec::with_capacity(rows.len());
    for row in &rows {
        let found: &str = row.try_get(0)?;
        let damaged = |fault: &StoreError| DamagedTask::unknown_queue(found, fault);
        let Some(name) = quarantine.readable_row(name(found), damaged)? else { continue };
        let by = row.try_get::<_, Option<&[u8]>>(2)?.zip(row.try_get::<_, Option<bool>>(3)?);
        let by =
            by.map(|(name, claimed)| Actor { name: Arc::from(&*String::from_utf8_lossy(name)), claimed });
        let paused = row.try_get::<_, Option<i64>>(1)?;
        queues.push(QueueState {
            name,
            ready: from_integer(row.try_get(4)?),
            running: from_integer(row.try_get(5)?),
            oldest_ready_at: row.try_get::<_, Option<i64>>(6)?.map(Timestamp),
            paused: paused.map(|at| QueuePause { at: Timestamp(at), by }),
        });
    }
    Ok(queues)
}

/// How many attempts stand before this act's.
pub(super) async fn place(
    connection: &mut Connection<'_>,
    task: TaskId,
    key: ActKey,
) -> Result<Option<u64>, Fault> {
    let mut batch = Batch::default();
    batch.add(LINE, parameters![Uuid::from_u128(task.0), act_code(key)]);
    let rows = connection.send(batch).await?.remove(0);
    let mut turn = None;
    let mut keys: Vec<KeyInLine> = Vec::with_capacity(rows.len());
    for row in &rows {
        turn = Turn::read(row.try_get(4)?, i64::MAX);
        let (count, before) = (from_integer(row.try_get(1)?), from_integer(row.try_get(2)?));
        keys.push(KeyInLine { key: row.try_get(0)?, count, before, is_own: row.try_get(3)? });
    }
    Ok(place_among(keys, turn.as_ref().map(|turn| &turn.key[..])))
}
