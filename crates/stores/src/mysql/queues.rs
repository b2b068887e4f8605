//! Queues, and places in them.

use std::sync::Arc;

use windlass_core::{ActKey, Actor, TaskId, Timestamp};
use windlass_store::{DamagedTask, Quarantine, QueuePause, QueueState, StoreError};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::{Fault, sound},
    script::{Script, cells},
};
use crate::rows::{KeyInLine, Turn, act_code, from_integer, place_among};

/// All queues, by name.
pub(super) async fn queues(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
) -> Result<Vec<QueueState>, Fault> {
    let mut script = Script::default();
    script.add(
        "SELECT q.name, q.paused_at, q.by_name, q.by_claimed,
             (SELECT count(*) FROM windlass_wait w WHERE w.queue = q.name), coalesce(r.running, 0),
             (SELECT w.ready_at FROM windlass_wait w WHERE w.queue = q.name ORDER BY w.place, w.task, w.act LIMIT 1)
         FROM windlass_queue q
         LEFT JOIN (
             SELECT module, count(*) AS running FROM windlass_wait FORCE INDEX (by_session)
             WHERE session IS NOT NULL GROUP BY module
         ) r ON r.module = q.name
         WHERE q.used OR q.paused_at IS NOT NULL ORDER BY q.name",
        [],
    );
    let sets = connection.run(script).await?;
    let mut queues = Vec::new();
    for row in &sets[0] {
        let damaged = |fault: &StoreError| DamagedTask::unknown_queue(&row.any_text(0), fault);
        let Some(name) = sound(quarantine, row.name(0), damaged)? else { continue };
        let by = row.optional_bytes(2)?.zip(row.optional_number(3)?);
        let by = by.map(|(name, claimed)| Actor {
            name: Arc::from(&*String::from_utf8_lossy(name)),
            claimed: claimed == 1,
        });
        queues.push(QueueState {
            name,
            ready: from_integer(row.number(4)?),
            running: from_integer(row.number(5)?),
            oldest_ready_at: row.optional_number(6)?.map(Timestamp),
            paused: row.optional_number(1)?.map(|at| QueuePause { at: Timestamp(at), by }),
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
    let mut script = Script::default();
    script.add(
        "SELECT w.fairness, count(*), sum((w.place, w.task, w.act) < (this.place, this.task, this.act)),
             w.fairness = this.fairness, q.turn
         FROM windlass_wait this
         JOIN windlass_wait w FORCE INDEX (by_queue) ON w.queue = this.queue
         LEFT JOIN windlass_queue q ON q.name = this.queue
         WHERE this.task = ? AND this.act = ?
         GROUP BY w.fairness, w.fairness = this.fairness, q.turn",
        cells![task, act_code(key)],
    );
    let sets = connection.run(script).await?;
    let (mut keys, mut turn) = (Vec::new(), None);
    for row in &sets[0] {
        turn = Turn::read(row.optional_bytes(4)?, i64::MAX);
        keys.push(KeyInLine {
            key: row.bytes(0)?.to_vec(),
            count: from_integer(row.number(1)?),
            before: from_integer(row.number(2)?),
            is_own: row.number(3)? == 1,
        });
    }
    Ok(place_among(keys, turn.as_ref().map(|turn| &turn.key[..])))
}
