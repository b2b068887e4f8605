//! Limits, and what counts under them.

use std::collections::HashMap;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{Millis, Name};
use windlass_store::{Claimed, Limit, Now, Quarantine, Starts};

use super::{
    connection::{Batch, Connection, parameters},
    error::Fault,
};
use crate::rows::{
    Limits, any_name, claimed_wait, count, fairness_key, from_integer, limit_or_closed, name, to_integer,
};

/// The limits of one queue, or all, by name.
pub(super) const READ_LIMITS: &str = "SELECT name, queue, command, per_key, running, starts, per
    FROM windlass_limit WHERE $1::text IS NULL OR queue = $1 ORDER BY name";
const HELD: &str = "SELECT w.task, w.act, w.attempt, w.claim, w.session, w.claimed_at, w.module,
        w.command, w.fairness
    FROM windlass_wait w
    WHERE w.session IS NOT NULL AND w.module IN (SELECT queue FROM windlass_limit)
    ORDER BY w.claimed_at, w.task, w.act";
const BEGUN: &str = "SELECT b.name, b.key, b.at FROM windlass_begun b
    JOIN windlass_limit l ON l.name = b.name WHERE b.at > $1 - l.per ORDER BY b.at";

/// The limits from the rows of [`READ_LIMITS`]. In place of a damaged one its queue is closed.
pub(super) fn read_limits(rows: &[Row], quarantine: &Quarantine) -> Result<Vec<Limit>, Fault> {
    let mut limits = Vec::with_capacity(rows.len());
    for row in rows {
        let read = match limit(row) {
            Ok(limit) => Ok(limit),
            Err(Fault::Store(error)) => Err(error),
            Err(fault) => return Err(fault),
        };
        limits.extend(limit_or_closed(quarantine, (row.try_get(0)?, row.try_get(1)?), read)?);
    }
    Ok(limits)
}

fn limit(row: &Row) -> Result<Limit, Fault> {
    let starts = match (row.try_get::<_, Option<i64>>(5)?, row.try_get::<_, Option<i64>>(6)?) {
        (Some(number), Some(per)) => Some(Starts { count: count(number)?, per: Millis(from_integer(per)) }),
        _ => None,
    };
    Ok(Limit {
        name: name(row.try_get(0)?)?,
        queue: name(row.try_get(1)?)?,
        command: row.try_get::<_, Option<&str>>(2)?.map(name).transpose()?,
        per_key: row.try_get(3)?,
        running: row.try_get::<_, Option<i64>>(4)?.map(count).transpose()?,
        starts,
    })
}

/// A start that counts under a limit.
pub(super) struct Counted {
    pub(super) limit: Name,
    pub(super) key: Vec<u8>,
    pub(super) at: Millis,
}

impl Counted {
    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        let at = Millis(from_integer(row.try_get(2)?));
        Ok(Self { limit: name(row.try_get(0)?)?, key: row.try_get(1)?, at })
    }
}

/// All limits with what counts under them.
pub(super) async fn limits(
    connection: &mut Connection<'_>,
    quarantine: &Quarantine,
    now: Now,
) -> Result<Limits, Fault> {
    let mut batch = Batch::default();
    batch.add(READ_LIMITS, parameters![None::<&str>]);
    batch.add(HELD, Vec::new());
    batch.add(BEGUN, parameters![to_integer(now.mono.0)]);
    let results = connection.send(batch).await?;
    let limits = read_limits(&results[0], quarantine)?;
    let mut held = Vec::new();
    for row in &results[1] {
        held.push((claimed(row)?, any_name(row.try_get(7)?), fairness_key(row.try_get(8)?)));
    }
    let mut begun: HashMap<Name, Vec<(Vec<u8>, Millis)>> = HashMap::new();
    for row in &results[2] {
        let Counted { limit, key, at } = Counted::read(row)?;
        begun.entry(limit).or_default().push((key, at));
    }
    Ok(Limits { limits, held, begun, now })
}

/// A claimed row, from its first columns.
pub(super) fn claimed(row: &Row) -> Result<Claimed, Fault> {
    let (task, session): (Uuid, Uuid) = (row.try_get(0)?, row.try_get(4)?);
    Ok(claimed_wait(
        task.as_u128(),
        row.try_get(1)?,
        row.try_get(2)?,
        row.try_get(3)?,
        session.as_u128(),
        row.try_get(5)?,
        row.try_get(6)?,
    )?)
}
