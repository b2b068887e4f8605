//! Limits, and what counts under them.

use std::collections::HashMap;

use tokio_postgres::Row;
use uuid::Uuid;
use windlass_core::{Millis, Name, Ready};
use windlass_engine::ports::{Claimed, Limit, LimitHolder, LimitState, Now, Starts};

use super::{
    connection::{Batch, Connection, parameters},
    error::Fault,
};
use crate::rows::{claimed_wait, fairness_bytes, fairness_key, from_integer, name, small, to_integer};

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

pub(super) fn limit(row: &Row) -> Result<Limit, Fault> {
    let starts = match (row.try_get::<_, Option<i64>>(5)?, row.try_get::<_, Option<i64>>(6)?) {
        (Some(count), Some(per)) => Some(Starts { count: small(count), per: Millis(from_integer(per)) }),
        _ => None,
    };
    Ok(Limit {
        name: name(row.try_get(0)?)?,
        queue: name(row.try_get(1)?)?,
        command: row.try_get::<_, Option<&str>>(2)?.map(name).transpose()?,
        per_key: row.try_get(3)?,
        running: row.try_get::<_, Option<i64>>(4)?.map(small),
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
pub(super) struct Limits {
    limits: Vec<Limit>,
    held: Vec<(Claimed, Name, Option<String>)>,
    begun: HashMap<Name, Vec<(Vec<u8>, Millis)>>,
    now: Now,
}

impl Limits {
    pub(super) async fn read(connection: &mut Connection<'_>, now: Now) -> Result<Self, Fault> {
        let mut batch = Batch::default();
        batch.add(READ_LIMITS, parameters![None::<&str>]);
        batch.add(HELD, Vec::new());
        batch.add(BEGUN, parameters![to_integer(now.mono.0)]);
        let results = connection.send(batch).await?;
        let limits = results[0].iter().map(limit).collect::<Result<Vec<_>, _>>()?;
        let mut held = Vec::new();
        for row in &results[1] {
            held.push((claimed(row)?, name(row.try_get(7)?)?, fairness_key(row.try_get(8)?)));
        }
        let mut begun: HashMap<Name, Vec<(Vec<u8>, Millis)>> = HashMap::new();
        for row in &results[2] {
            let Counted { limit, key, at } = Counted::read(row)?;
            begun.entry(limit).or_default().push((key, at));
        }
        Ok(Self { limits, held, begun, now })
    }

    /// The state of each limit, by name.
    pub(super) fn states(&self) -> Vec<LimitState> {
        self.limits.iter().map(|limit| self.state(limit, None)).collect()
    }

    /// The limits that keep a ready attempt back.
    pub(super) fn keeping_back(&self, ready: &Ready) -> Vec<LimitState> {
        let mut states = Vec::new();
        for limit in &self.limits {
            let Some(key) = limit.counts_ready(ready) else { continue };
            let state = self.state(limit, Some(key));
            let full = limit.running.is_some_and(|most| state.running >= u64::from(most));
            if full || state.next_start_at.is_some() {
                states.push(state);
            }
        }
        states
    }

    /// A limit with what counts under it: under a key, or under any.
    fn state(&self, limit: &Limit, of: Option<Option<&str>>) -> LimitState {
        let holders = self.held.iter().filter(|(claimed, ..)| claimed.module == limit.queue);
        let holders = holders.filter_map(|(claimed, command, fairness)| {
            let key = limit.counts(command, fairness.as_deref())?;
            let counts = of.is_none_or(|of| of == key);
            counts.then(|| LimitHolder { claimed: claimed.clone(), key: fairness.as_deref().map(Into::into) })
        });
        let holders: Vec<LimitHolder> = holders.collect();
        let starts = self.begun.get(&limit.name).into_iter().flatten();
        let of_key = |key: Option<&str>| fairness_bytes(key);
        let recent: Vec<Millis> =
            starts.filter(|(key, _)| of.is_none_or(|of| of_key(of) == *key)).map(|(_, at)| *at).collect();
        let key = of.or((!limit.per_key).then_some(None));
        let next = key.zip(limit.starts).and_then(|(_, starts)| {
            let at = recent.get(recent.len().checked_sub(starts.count as usize)?)?;
            let at = at.0.saturating_add(starts.per.0);
            Some(self.now.wall + Millis(at.saturating_sub(self.now.mono.0)))
        });
        LimitState {
            limit: limit.clone(),
            running: holders.len() as u64,
            started: recent.len() as u64,
            next_start_at: next,
            holders,
        }
    }
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
