//! Tasks that applications enqueued, by the functions of `migrations/0002.sql`.

use uuid::Uuid;
use windlass_core::TaskId;
use windlass_store::{Enqueued, Settlement, Standing};

use super::{
    connection::{Batch, Connection, parameters},
    error::Fault,
};
use crate::rows::to_integer;

/// No more than 8 MiB and one task beyond.
const WAITING: &str = "SELECT id, enqueued_by, task, refusals, seq FROM (
        SELECT seq, id, enqueued_by, task, refusals,
            sum(octet_length(task)) OVER (ORDER BY seq) - octet_length(task) AS before
        FROM (
            SELECT seq, id, enqueued_by, task::text AS task, refusals FROM windlass_enqueued
            WHERE refused IS NULL AND stands_for IS NULL AND seq > $2 ORDER BY seq LIMIT $1
        ) AS first
    ) AS counted
    WHERE before < 8388608 ORDER BY seq";
const STANDING: &str = "SELECT refused, stands_for FROM windlass_enqueued WHERE id = $1";
/// Rows that an application is just about to enqueue again are left out: it may take its time.
const ACCEPTED: &str = "DELETE FROM windlass_enqueued WHERE id IN (
        SELECT id FROM windlass_enqueued WHERE id = ANY($1) FOR UPDATE SKIP LOCKED
    ) RETURNING true";
const REFUSED: &str = "UPDATE windlass_enqueued e SET refused = n.why, refusals = e.refusals + 1
    FROM unnest($1::uuid[], $2::text[]) AS n (id, why)
    WHERE e.id = n.id AND e.id IN (
        SELECT id FROM windlass_enqueued WHERE id = ANY($1) FOR UPDATE SKIP LOCKED
    ) RETURNING true";
const STOOD_FOR: &str = "UPDATE windlass_enqueued e SET stands_for = n.task, stood_for_at = clock_timestamp()
    FROM unnest($1::uuid[], $2::uuid[]) AS n (id, task)
    WHERE e.id = n.id AND e.id IN (
        SELECT id FROM windlass_enqueued WHERE id = ANY($1) FOR UPDATE SKIP LOCKED
    ) RETURNING true";
/// It is told for a day which task stands for one.
const FORGET: &str = "DELETE FROM windlass_enqueued WHERE id IN (
        SELECT id FROM windlass_enqueued
        WHERE stands_for IS NOT NULL AND stood_for_at < clock_timestamp() - interval '1 day'
        ORDER BY stood_for_at LIMIT 1000 FOR UPDATE SKIP LOCKED
    )";

/// What waits to be taken in.
pub(super) async fn waiting(
    connection: &mut Connection<'_>,
    limit: usize,
    after: u64,
) -> Result<Vec<Enqueued>, Fault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = connection.query(WAITING, &[&limit, &to_integer(after)]).await?;
    let mut waiting = Vec::with_capacity(rows.len());
    for row in &rows {
        let (id, refusals): (Uuid, i32) = (row.try_get(0)?, row.try_get(3)?);
        waiting.push(Enqueued {
            place: row.try_get::<_, i64>(4)?.try_into().unwrap_or(0),
            id: TaskId(id.as_u128()),
            by: row.try_get::<_, &str>(1)?.into(),
            task: row.try_get::<_, &str>(2)?.into(),
            refusals: refusals.try_into().unwrap_or(0),
        });
    }
    Ok(waiting)
}

/// What is known of one.
pub(super) async fn standing(connection: &mut Connection<'_>, id: TaskId) -> Result<Option<Standing>, Fault> {
    let rows = connection.query(STANDING, &[&Uuid::from_u128(id.0)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (refused, stands_for): (Option<&str>, Option<Uuid>) = (row.try_get(0)?, row.try_get(1)?);
    let task = stands_for.map(|task| Standing::StandsFor(TaskId(task.as_u128())));
    Ok(Some(refused.map(|why| Standing::Refused(why.into())).or(task).unwrap_or(Standing::Waits)))
}

/// Notes what became of some.
pub(super) async fn settle(
    connection: &mut Connection<'_>,
    settled: &[(TaskId, Settlement)],
) -> Result<usize, Fault> {
    let (mut accepted, mut refused, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    let (mut stood_for, mut others) = (Vec::new(), Vec::new());
    for (id, settlement) in settled {
        let id = Uuid::from_u128(id.0);
        match settlement {
            Settlement::Accepted => accepted.push(id),
            Settlement::Refused(why) => {
                refused.push(id);
                // Text of the database cannot hold this character.
                reasons.push(why.replace('\0', "\u{fffd}"));
            }
            Settlement::StandsFor(task) => {
                stood_for.push(id);
                others.push(Uuid::from_u128(task.0));
            }
        }
    }
    let mut batch = Batch::default();
    if !accepted.is_empty() {
        batch.add(ACCEPTED, parameters![accepted]);
    }
    if !refused.is_empty() {
        batch.add(REFUSED, parameters![refused, reasons]);
    }
    if !stood_for.is_empty() {
        batch.add(STOOD_FOR, parameters![stood_for, others]);
        batch.add(FORGET, parameters![]);
    }
    let results = connection.send(batch).await?;
    Ok(results.iter().map(Vec::len).sum())
}
