//! Tasks that applications enqueued, by the functions of `migrations/0002.sql`.

use windlass_core::TaskId;
use windlass_store::{Leadership, Settlement};

use super::{
    connection::{Batch, Connection, parameters},
    uuid,
};
use crate::rows::{Fault, Link as _, enqueued::EnqueuedSql, to_integer};

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
const FORGET: &str = "DELETE FROM windlass_enqueued WHERE id IN (
        SELECT id FROM windlass_enqueued
        WHERE stands_for IS NOT NULL AND stood_for_at < clock_timestamp() - interval '1 day'
        ORDER BY stood_for_at LIMIT 1000 FOR UPDATE SKIP LOCKED
    )";

impl EnqueuedSql for Connection {
    fn waiting(limit: usize, after: u64) -> Batch<'static> {
        Batch::one(WAITING, parameters![to_integer(limit as u64), to_integer(after)])
    }

    fn standing(id: TaskId) -> Batch<'static> {
        Batch::one(STANDING, parameters![uuid(id)])
    }

    async fn settle(
        &mut self,
        settled: &[(TaskId, Settlement)],
        led: Option<Leadership>,
    ) -> Result<usize, Fault> {
        let (mut accepted, mut refused, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        let (mut stood_for, mut others) = (Vec::new(), Vec::new());
        for (id, settlement) in settled {
            let id = uuid(*id);
            match settlement {
                Settlement::Accepted => accepted.push(id),
                Settlement::Refused(why) => {
                    refused.push(id);
                    // Text of the database cannot hold this character.
                    reasons.push(why.replace('\0', "\u{fffd}"));
                }
                Settlement::StandsFor(task) => {
                    stood_for.push(id);
                    others.push(uuid(*task));
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
        let results = self.send(batch.led(led)).await?;
        let settled = results.len() - usize::from(led.is_some());
        Ok(results.iter().take(settled).map(Vec::len).sum())
    }
}
