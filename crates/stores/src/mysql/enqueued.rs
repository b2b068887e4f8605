//! Tasks that applications enqueued, by the procedures of `migrations/0002.sql`.

use windlass_core::TaskId;
use windlass_store::{Enqueued, Settlement, Standing};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::Fault,
    script::{Cell, Script, cells},
};
use crate::rows::{small, to_integer};

/// What waits to be taken in: no more than 8 MiB and one task beyond.
pub(super) async fn waiting(
    connection: &mut Connection<'_>,
    limit: usize,
    after: u64,
) -> Result<Vec<Enqueued>, Fault> {
    let mut script = Script::default();
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
    script.add(&sql, cells![to_integer(after)]);
    let sets = connection.run(script).await?;
    let mut waiting = Vec::with_capacity(sets[0].len());
    for row in &sets[0] {
        let (by, task) = (row.text(1)?.into(), row.text(2)?.into());
        let place = row.number(4)?.try_into().unwrap_or(0);
        waiting.push(Enqueued { place, id: row.task(0)?, by, task, refusals: small(row.number(3)?) });
    }
    Ok(waiting)
}

/// What is known of one.
pub(super) async fn standing(connection: &mut Connection<'_>, id: TaskId) -> Result<Option<Standing>, Fault> {
    let mut script = Script::default();
    script.add("SELECT refused, stands_for FROM windlass_enqueued WHERE id = ?", cells![id]);
    let sets = connection.run(script).await?;
    let Some(row) = sets[0].first() else { return Ok(None) };
    if row.optional_bytes(0)?.is_some() {
        return Ok(Some(Standing::Refused(row.text(0)?.into())));
    }
    let task = row.optional_id(1)?.map(|task| Standing::StandsFor(TaskId(task)));
    Ok(Some(task.unwrap_or(Standing::Waits)))
}

/// Notes what became of some, but of those that an application is just about to enqueue again: it may take its time.
pub(super) async fn settle(
    connection: &mut Connection<'_>,
    settled: &[(TaskId, Settlement)],
) -> Result<usize, Fault> {
    let mut script = Script::begin();
    let ids = settled.iter().map(|(id, _)| Cell::from(*id));
    let lookups = script.for_keys("SELECT id FROM windlass_enqueued WHERE id", ids, "FOR UPDATE SKIP LOCKED");
    let stands = settled.iter().any(|(_, settlement)| matches!(settlement, Settlement::StandsFor(_)));
    if stands {
        // It is told for a day which task stands for one.
        let old = "SELECT id FROM windlass_enqueued
            WHERE waits IS NULL AND stands_for IS NOT NULL AND stood_for_at < NOW() - INTERVAL 1 DAY
            ORDER BY seq LIMIT 1000 FOR UPDATE SKIP LOCKED";
        script.add(old, []);
    }
    let sets = connection.send(script).await?;
    let mut found = Vec::new();
    for row in sets.iter().skip(1).take(lookups).flatten() {
        found.push(row.task(0)?);
    }
    found.sort();
    let mut gone = Vec::new();
    for row in sets.iter().skip(1 + lookups).flatten() {
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
                let sql = "UPDATE windlass_enqueued SET refused = ?, refusals = refusals + 1 WHERE id = ?";
                script.add(sql, cells![&**why, *id]);
            }
            Settlement::StandsFor(task) => {
                let sql = "UPDATE windlass_enqueued SET stands_for = ?, stood_for_at = NOW() WHERE id = ?";
                script.add(sql, cells![*task, *id]);
            }
        }
    }
    script.for_keys("DELETE FROM windlass_enqueued WHERE id", gone, "");
    script.end();
    connection.run(script).await?;
    Ok(found.len())
}
