//! Claims as rows: claims of sessions, limits and what counts under them, queues and places in them.

mod limits;
pub(crate) mod ruled;
pub(crate) mod sessions;
mod turns;

use std::{collections::HashMap, sync::Arc};

use windlass_core::{ActKey, Actor, Name, TaskId, Timestamp};
use windlass_store::{
    ClaimRequest, Claimed, DamagedTask, KeyInLine, Leave, Limit, Now, Quarantine, QueuePause, QueueState,
    SessionId, Starts, StoreError, place_among,
};

use super::{
    Columns, Fault, act_code, any_name, claimed_wait, count, damaged, fairness_key, from_integer, left_out,
    limit_or_closed, policy::retrying, sound,
};

use self::ruled::{Claiming, RuledSql, claim_ruled};
pub(crate) use limits::Limits;
pub(crate) use turns::{Blocked, Candidate, KeyTurn, KeysInTurn, read_turn, write_turn};

/// Claiming, which each product does its own way, and statements about claims.
pub(crate) trait ClaimSql: RuledSql {
    /// Attempts that one claim may take.
    const CLAIMS_MAX: usize;

    /// Claims attempts of a queue that nothing rules; `None` where limits or turns rule it. What other servers have just made
    /// ready is left to them as `leave` says.
    ///
    /// A claim whose connection is lost is not repeated, see [`Fault::of_claim`].
    fn claim(
        &mut self,
        claiming: Claiming<'_>,
        leave: &Leave,
    ) -> impl Future<Output = Result<Option<Vec<Claimed>>, Fault>> + Send;

    /// The limits by name: `name, queue, command, per_key, running, starts, per`. Claims in queues with limits, the oldest
    /// first: the columns of [`claimed`], then `command, fairness`. Starts that count under limits, the oldest first:
    /// `name, key, at`.
    fn limits(now: Now) -> Self::Script<'static>;

    /// Queues by name: `name, paused_at, by_name, by_claimed, ready, running, oldest_ready_at`.
    fn queues() -> Self::Script<'static>;

    /// Of each concurrency key in the queue of this attempt: `key, count, before, is_own, turn`, where `before` counts the
    /// attempts before this one.
    fn line(task: TaskId, act: i64) -> Self::Script<'static>;
}

/// Claims attempts for a session. Attempts claimed for one request reach the worker also where the next one fails.
pub(crate) async fn claim_all<D: ClaimSql>(
    database: &Arc<D::Database>,
    quarantine: &Quarantine,
    session: SessionId,
    claim_requests: &[ClaimRequest],
    leave: &Leave,
    now: Now,
) -> Result<Vec<Claimed>, StoreError> {
    let damaged = left_out(quarantine);
    let mut claimed = Vec::new();
    for claim_request in claim_requests.iter().filter(|claim_request| claim_request.free > 0) {
        let most = (claim_request.free as usize).min(D::CLAIMS_MAX);
        let claiming = Claiming { session, claim_request, most, now, damaged: &damaged };
        let found: Result<Vec<Claimed>, StoreError> = retrying!(database, |link| {
            match link.claim(claiming, leave).await? {
                Some(claimed) => Ok(claimed),
                None => claim_ruled(&mut link, quarantine, claiming).await,
            }
        });
        match found {
            Ok(found) => claimed.extend(found),
            Err(error) if claimed.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(claimed)
}

/// A claim from its first columns: `task, act, attempt, claim, session, claimed_at, module`.
pub(crate) fn claimed(row: &impl Columns) -> Result<Claimed, Fault> {
    let (task, act, attempt) = (row.id(0)?, row.number(1)?, row.number(2)?);
    let (claim, session, at) = (row.number(3)?, row.id(4)?, row.number(5)?);
    Ok(claimed_wait(task, act, attempt, claim, session, at, &row.any_text(6))?)
}

/// Limits from their rows. In place of a damaged one its queue is closed.
pub(crate) fn read_limits(rows: &[impl Columns], quarantine: &Quarantine) -> Result<Vec<Limit>, Fault> {
    let mut limits = Vec::with_capacity(rows.len());
    for row in rows {
        let read = match limit(row) {
            Ok(limit) => Ok(limit),
            Err(Fault::Store(error)) => Err(error),
            Err(fault) => return Err(fault),
        };
        limits.extend(limit_or_closed(quarantine, (&row.any_text(0), &row.any_text(1)), read)?);
    }
    Ok(limits)
}

fn limit(row: &impl Columns) -> Result<Limit, Fault> {
    let starts = match row.optional_number(5)?.zip(row.optional_number(6)?) {
        Some((number, _)) => Some(Starts { count: count(number)?, per: row.millis(6)? }),
        None => None,
    };
    Ok(Limit {
        name: row.name(0)?,
        queue: row.name(1)?,
        command: row.optional_name(2)?,
        per_key: row.flag(3)?,
        running: row.optional_number(4)?.map(count).transpose()?,
        starts,
    })
}

/// All limits with what counts under them.
pub(crate) async fn limits<D: ClaimSql>(
    link: &mut D,
    quarantine: &Quarantine,
    now: Now,
) -> Result<Limits, Fault> {
    let answers = link.send(D::limits(now)).await?;
    let [limits, claims, starts] = &answers[..] else { return Err(damaged("an answer is missing")) };
    let limits = read_limits(limits, quarantine)?;
    let mut held = Vec::with_capacity(claims.len());
    for row in claims {
        held.push((claimed(row)?, any_name(&row.any_text(7)), fairness_key(row.bytes(8)?)));
    }
    let mut begun: HashMap<Name, Vec<_>> = HashMap::new();
    for row in starts {
        begun.entry(row.name(0)?).or_default().push((row.bytes(1)?.to_vec(), row.millis(2)?));
    }
    Ok(Limits { limits, held, begun, now })
}

/// All queues, by name.
pub(crate) async fn queues<D: ClaimSql>(
    link: &mut D,
    quarantine: &Quarantine,
) -> Result<Vec<QueueState>, Fault> {
    let mut queues = Vec::new();
    for row in link.rows(D::queues()).await? {
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

/// How many attempts are before this one in its queue.
pub(crate) async fn place<D: ClaimSql>(
    link: &mut D,
    task: TaskId,
    key: ActKey,
) -> Result<Option<u64>, Fault> {
    let (mut keys, mut turn) = (Vec::new(), None);
    for row in link.rows(D::line(task, act_code(key))).await? {
        turn = read_turn(row.optional_bytes(4)?);
        keys.push(KeyInLine {
            key: row.bytes(0)?.to_vec(),
            count: from_integer(row.number(1)?),
            before: from_integer(row.number(2)?),
            is_own: row.flag(3)?,
        });
    }
    Ok(place_among(keys, turn.as_ref().map(|turn| &turn.key)))
}
