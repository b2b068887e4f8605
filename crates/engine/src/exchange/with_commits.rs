//! Claims together with commits, where servers share a store. Attempts that a commit makes ready are claimed for
//! waiting polls in the same transaction. That saves a separate transaction and round trip, and no other server claims
//! them first, which would have to read the tasks.
//!
//! Polls that arrive during a commit wait for its end, and then for the next commit if there are items to commit: under
//! load their claims go together with it.

use windlass_store::{Ask, Change, ClaimRequest, Claimed, Leadership, Now, Outcome, StoreError};

use super::{
    dispatching::Turn,
    handing_out::{CLAIMS_MAX, Hand},
};
use crate::{Engine, EngineError};

/// The maximum number of polls claimed for with one commit.
const ASKS_MAX: usize = 16;

/// The additions to a commit: the turn to hand out, and the waiting polls.
pub(crate) struct TakenAlong<'e> {
    engine: &'e Engine,
    turn: Turn<'e>,
    hands: Vec<Hand<'e>>,
    asks: Vec<Ask>,
    /// Other polls wait besides these.
    is_part: bool,
    /// The attempts claimed for each poll; `None` = they must be claimed separately.
    claimed: Vec<Option<Vec<Claimed>>>,
}

impl Engine {
    /// The additions to the next commit; `None` if another caller is handing out.
    pub(crate) fn take_along(&self) -> Option<TakenAlong<'_>> {
        // Only servers that share a store gain a round trip.
        self.store.cluster()?;
        let turn = self.dispatching.try_take(&self.timers)?;
        let (mut hands, mut asks) = (Vec::new(), Vec::new());
        let (waiting, is_part) = self.simple_polls();
        for (ask, seq) in waiting {
            hands.push(Hand::new(self, ask.session, seq));
            asks.push(ask);
        }
        Some(TakenAlong { engine: self, turn, hands, asks, is_part, claimed: Vec::new() })
    }

    /// Waiting polls with one claim request each, within the limits of one commit, and whether other polls wait as
    /// well.
    fn simple_polls(&self) -> (Vec<(Ask, super::Seq)>, bool) {
        let mut sessions = self.sessions.lock();
        let (mut polls, mut wanted, mut is_part) = (Vec::new(), 0, false);
        for (session, seq) in sessions.waiting() {
            let Some((claim_requests, free)) = sessions.find(session).map(|local| local.room()) else {
                continue;
            };
            match claim_requests {
                [claim_request] if polls.len() < ASKS_MAX && wanted < CLAIMS_MAX => {
                    let free = claim_request.free.min(free).min(CLAIMS_MAX);
                    if free > 0 {
                        wanted += free;
                        polls.push((
                            Ask { session, claim_request: ClaimRequest { free, ..claim_request.clone() } },
                            seq,
                        ));
                    }
                }
                claim_requests => {
                    is_part |= free > 0 && claim_requests.iter().any(|claim_request| claim_request.free > 0)
                }
            }
        }
        (polls, is_part)
    }
}

impl TakenAlong<'_> {
    /// Commits, and claims for the polls in the same call.
    pub(crate) async fn commit(
        &mut self,
        changes: Vec<Change>,
        led: Option<Leadership>,
        now: Now,
    ) -> Result<Vec<Outcome>, StoreError> {
        if self.asks.is_empty() {
            return self.engine.commit_as(led, changes, now).await;
        }
        let mut leave = self.engine.task_cache.leave(now);
        // Attempts that these changes make ready belong to this server.
        if leave.since.is_some() {
            leave.but.extend(changes.iter().filter_map(|change| match change {
                Change::Task(change) => Some(change.task.id),
                _ => None,
            }));
        }
        let connected = self.engine.task_cache.connected();
        let committed = self.engine.store.commit_and_claim(changes, &self.asks, &leave, led, now).await;
        let claimed = committed.as_ref().map_or(&[][..], |(_, claimed)| claimed);
        // After an error or a reconnection the claims may or may not have happened.
        let is_unknown = committed.as_ref().is_err_and(|error| *error != StoreError::LeaseLost);
        if self.engine.task_cache.connected() != connected || is_unknown {
            for (place, hand) in self.hands.iter().enumerate() {
                if claimed.get(place).is_none_or(Option::is_none) {
                    hand.note_unanswered(now);
                }
            }
        }
        let (outcomes, claimed) = committed?;
        self.claimed = claimed;
        Ok(outcomes)
    }

    /// Gives the claimed attempts to the polls, and hands out to the polls without a claim; to all polls if `more` was
    /// committed after the claims.
    pub(crate) async fn give(mut self, more: bool, now: Now) -> Result<(), EngineError> {
        let engine = self.engine;
        engine.offering.stir();
        let mut is_done = !more && !self.is_part && self.claimed.len() == self.asks.len();
        self.claimed.resize(self.asks.len(), None);
        let mut given = Ok(());
        for (mut hand, claimed) in self.hands.drain(..).zip(self.claimed) {
            match claimed {
                Some(claimed) if claimed.is_empty() => {}
                Some(claimed) => {
                    let taken_in = hand.take_in(&claimed, now).await.map(drop);
                    given = given.and(hand.end(taken_in, now).await);
                }
                None => is_done = false,
            }
        }
        given?;
        let mut next = if is_done { self.turn.next() } else { Some(now) };
        while let Some(now) = next {
            // Polls that wait by then go with the next commit.
            if !is_done || engine.inbox.is_empty() || engine.simple_polls().1 {
                engine.hand_out(engine.latest.not_before(now)).await?;
            }
            is_done = true;
            next = self.turn.next();
        }
        Ok(())
    }
}
