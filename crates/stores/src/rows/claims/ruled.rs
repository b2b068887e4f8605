//! Claims of a queue that limits or turns rule: one claim after the other.
//!
//! The queue is locked, and what counts under its limits is read. The first attempts of each key are read, and
//! [`choose`] picks those to claim; where limits held some back, the next round looks behind them. The product claims
//! what was chosen, and skips an attempt that a commit has changed meanwhile.

use windlass_core::{Millis, TaskId};
use windlass_store::{ClaimRequest, Claimed, Now, Quarantine, SessionId};

use super::{
    read_limits,
    sessions::grace,
    turns::{Blocked, Candidate, Hands, KeyTurn, KeysInTurn, choose, read_turn},
};
use crate::rows::{Columns as _, Fault, Link, any_name, damaged};

/// Rounds of one claim.
const ROUNDS_MAX: usize = 16;

/// A claim request of a session.
#[derive(Clone, Copy)]
pub(crate) struct Claiming<'w> {
    pub(crate) session: SessionId,
    pub(crate) claim_request: &'w ClaimRequest,
    /// At most this many attempts.
    pub(crate) most: usize,
    pub(crate) now: Now,
    /// Tasks that cannot be read: none of their attempts is claimed.
    pub(crate) damaged: &'w [TaskId],
}

/// Attempts to claim, in the order of their turns.
pub(crate) struct Choice<'c> {
    pub(crate) candidates: &'c [Candidate],
    /// The position of the queue's round afterwards.
    pub(crate) turn: Option<&'c KeyTurn>,
    /// How much longer than their timeout the attempts may run.
    pub(crate) grace: Millis,
    /// The starts that count under limits.
    pub(crate) hands: &'c Hands,
}

/// Claiming of a ruled queue.
pub(crate) trait RuledSql: Link {
    /// Begins a transaction and locks the queue until its end. Answers: the queue: `is_paused, turn`; the session:
    /// `attached`; the limits of the queue, as [`read_limits`] reads them; running attempts: `command, fairness`; starts that
    /// count under its limits: `name, key, at`. Older starts are deleted.
    fn lock_queue(claiming: Claiming<'_>) -> Self::Script<'_>;

    /// The keys behind the cursor that had a ready attempt when the round began, and the first of all keys; and of each of
    /// them the first attempts that are not blocked.
    fn candidates(
        &mut self,
        claiming: Claiming<'_>,
        turn: Option<&KeyTurn>,
        blocked: &[Blocked],
    ) -> impl Future<Output = Result<(Vec<Candidate>, KeysInTurn), Fault>> + Send;

    /// Claims what was chosen, writes the turn, and commits. Returns the claims in the order of their turns.
    fn hand_out(
        &mut self,
        claiming: Claiming<'_>,
        choice: Choice<'_>,
    ) -> impl Future<Output = Result<Vec<Claimed>, Fault>> + Send;
}

/// Claims attempts of a queue that limits or turns rule.
pub(crate) async fn claim_ruled<D: RuledSql>(
    link: &mut D,
    quarantine: &Quarantine,
    claiming: Claiming<'_>,
) -> Result<Vec<Claimed>, Fault> {
    let Some((grace, mut turn, mut hands)) = lock_queue(link, quarantine, claiming).await? else {
        link.roll_back().await?;
        return Ok(Vec::new());
    };
    let mut chosen = Vec::<Candidate>::new();
    for _ in 0..ROUNDS_MAX {
        let missing = claiming.most - chosen.len();
        if missing == 0 {
            break;
        }
        let (mut candidates, in_turn) = link.candidates(claiming, turn.as_ref(), &hands.blocked()).await?;
        candidates.retain(|new| chosen.iter().all(|old| (old.task, old.act) != (new.task, new.act)));
        let round = choose(candidates, in_turn, &mut hands, turn, claiming.now.wall, missing);
        turn = round.turn;
        let is_done = round.attempts.is_empty() || !round.held_back;
        chosen.extend(round.attempts);
        if is_done {
            break;
        }
    }
    if chosen.is_empty() {
        link.roll_back().await?;
        return Ok(Vec::new());
    }
    let choice = Choice { candidates: &chosen, turn: turn.as_ref(), grace, hands: &hands };
    link.hand_out(claiming, choice).await
}

/// Locks the queue, and reads what counts under its limits. `None` where it is paused or the session is unknown.
async fn lock_queue<D: RuledSql>(
    link: &mut D,
    quarantine: &Quarantine,
    claiming: Claiming<'_>,
) -> Result<Option<(Millis, Option<KeyTurn>, Hands)>, Fault> {
    let Claiming { session, now, .. } = claiming;
    let answers = link.send(D::lock_queue(claiming)).await?;
    let [queue, attached, limits, running, begun, ..] = &answers[..] else {
        return Err(damaged("an answer is missing"));
    };
    let (mut is_paused, mut turn) = (false, None);
    for row in queue {
        (is_paused, turn) = (row.flag(0)?, read_turn(row.optional_bytes(1)?));
    }
    // A round that begins later than now is over: the clock was set back.
    let turn = turn.filter(|turn: &KeyTurn| turn.began <= now.wall);
    let Some(grace) = grace(session, attached)?.filter(|_| !is_paused) else { return Ok(None) };
    let mut hands = Hands::new(read_limits(limits, quarantine)?);
    for row in running {
        hands.hold(&any_name(&row.any_text(0)), row.bytes(1)?);
    }
    for row in begun {
        hands.begin(row.name(0)?, row.bytes(1)?.to_vec(), row.millis(2)?, now.mono);
    }
    Ok(Some((grace, turn, hands)))
}

/// A candidate from its columns: `task, act, attempt, rank, command, fairness, timeout`.
pub(crate) fn candidate(row: &impl crate::rows::Columns) -> Result<Candidate, Fault> {
    Ok(Candidate {
        task: row.id(0)?,
        act: row.number(1)?,
        attempt: row.number(2)?,
        rank: row.number(3)?,
        command: any_name(&row.any_text(4)),
        fairness: row.bytes(5)?.to_vec(),
        timeout: row.optional_number(6)?.unwrap_or(0),
    })
}
