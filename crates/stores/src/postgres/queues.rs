//! Queues, and places in them.

use std::sync::Arc;

use uuid::Uuid;
use windlass_core::{ActKey, Actor, TaskId, Timestamp};
use windlass_engine::ports::{QueuePause, QueueState};

use super::{
    connection::{Batch, Connection, parameters},
    error::Fault,
};
use crate::rows::{act_code, from_integer, name};

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
/// Of each key how many are in line, and how many of them before this one.
const LINE: &str = "SELECT w.fairness, count(*),
        count(*) FILTER (WHERE (w.rank, w.task, w.act) < (this.rank, this.task, this.act)),
        w.fairness = this.fairness, q.turn
    FROM windlass_wait this
    JOIN windlass_wait w ON w.module = this.module AND w.session IS NULL AND w.free = 0
    LEFT JOIN windlass_queue q ON q.name = this.module
    WHERE this.task = $1 AND this.act = $2 AND this.session IS NULL AND this.free = 0
    GROUP BY w.fairness, w.fairness = this.fairness, q.turn ORDER BY w.fairness";

/// All queues, by name.
pub(super) async fn queues(connection: &mut Connection<'_>) -> Result<Vec<QueueState>, Fault> {
    let rows = connection.query(QUEUES, &[]).await?;
    let mut queues = Vec::with_capacity(rows.len());
    for row in &rows {
        let by = row.try_get::<_, Option<&[u8]>>(2)?.zip(row.try_get::<_, Option<bool>>(3)?);
        let by =
            by.map(|(name, claimed)| Actor { name: Arc::from(&*String::from_utf8_lossy(name)), claimed });
        let paused = row.try_get::<_, Option<i64>>(1)?;
        queues.push(QueueState {
            name: name(row.try_get(0)?)?,
            ready: from_integer(row.try_get(4)?),
            running: from_integer(row.try_get(5)?),
            oldest_ready_at: row.try_get::<_, Option<i64>>(6)?.map(Timestamp),
            paused: paused.map(|at| QueuePause { at: Timestamp(at), by }),
        });
    }
    Ok(queues)
}

/// A key in line: itself, how many it has, how many of them stand before the one that is asked for, whether that one
/// has this key.
type KeyInLine = (Vec<u8>, u64, u64, bool);

/// How many attempts stand before this act's.
pub(super) async fn place(
    connection: &mut Connection<'_>,
    task: TaskId,
    key: ActKey,
) -> Result<Option<u64>, Fault> {
    let mut batch = Batch::default();
    batch.add(LINE, parameters![Uuid::from_u128(task.0), act_code(key)]);
    let rows = connection.send(batch).await?.remove(0);
    let mut turn: Option<Vec<u8>> = None;
    let mut keys: Vec<KeyInLine> = Vec::with_capacity(rows.len());
    for row in &rows {
        turn = row.try_get(4)?;
        let (count, before) = (from_integer(row.try_get(1)?), from_integer(row.try_get(2)?));
        keys.push((row.try_get(0)?, count, before, row.try_get(3)?));
    }
    Ok(place_among(keys, turn.as_deref()))
}

/// As keys take turns: those behind the one that had its turn last, then the others, one of each at a time.
fn place_among(mut keys: Vec<KeyInLine>, turn: Option<&[u8]>) -> Option<u64> {
    let behind = keys.iter().position(|(key, ..)| turn.is_some_and(|turn| &key[..] > turn));
    keys.rotate_left(behind.unwrap_or(0));
    let own = keys.iter().position(|(.., is_own)| *is_own)?;
    let round = keys[own].2;
    let others = keys.iter().enumerate().filter(|(index, _)| *index != own);
    let before = others.map(|(index, (_, count, ..))| (*count).min(round + u64::from(index < own)));
    Some(round + before.sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_in_turns() {
        let keys = |own: &str, before| -> Vec<KeyInLine> {
            let key = |(key, count): (&str, u64)| {
                let is_own = key == own;
                (key.as_bytes().to_vec(), count, if is_own { before } else { 0 }, is_own)
            };
            [("=a", 5), ("=b", 2), ("=c", 1)].map(key).into()
        };
        assert_eq!(place_among(keys("=c", 0), None), Some(2));
        assert_eq!(place_among(keys("=a", 4), None), Some(7));
        assert_eq!(place_among(keys("=a", 0), Some(b"=a")), Some(2));
        assert_eq!(place_among(Vec::new(), None), None);
    }
}
