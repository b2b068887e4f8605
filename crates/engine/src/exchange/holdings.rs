//! Compares the attempts that a worker names in `holding` with those it was given: after a restart of the server, and
//! after an answer that did not arrive.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{
    ActState, Free, Millis, Task, TaskId, is_to_stop,
    planted::{Bug, is_planted},
    when_free,
};
use windlass_store::{Adoption, AttemptId, Claimed, Loaded, Now, SessionId};

use super::{ATTEMPTS_MAX, Exchange, HandedOut, Tokens, answer_size::AnswerSize};
use crate::{
    Engine, EngineError,
    exchange::sessions::{Given, LocalSession},
};

impl Engine {
    /// Adopts attempts that this server did not give to the session: they come from before a restart, from another
    /// server, or from the message of a queue publisher. With `names` the worker holds them; without it, it is about to
    /// start them.
    pub(super) async fn adopt(
        &self,
        session: SessionId,
        ids: Vec<AttemptId>,
        names: bool,
        now: Now,
    ) -> Result<(), EngineError> {
        if ids.is_empty() {
            return Ok(());
        }
        let adoptions = self.store.adopt(session, &ids, now).await?;
        let tasks = self.heads_of(&ids).await?;
        let mut sessions = self.sessions.lock();
        let session = sessions.get(session);
        for (id, adoption) in ids.into_iter().zip(adoptions) {
            let task = tasks.get(&id.task).map(|loaded| &loaded.task);
            match (adoption, task) {
                (Adoption::Held, Some(task)) => {
                    if is_to_stop(task, id.key) {
                        session.cancels.entry(id).or_default();
                    }
                    session.give(id);
                }
                (Adoption::Gone, Some(task)) if is_parked(task, &id) => {
                    if names {
                        session.parked.insert(id);
                    }
                }
                _ => drop(session.cancels.entry(id).or_default()),
            }
        }
        Ok(())
    }

    /// Compares the attempts that a poll names with those that this server gave to the session, and from time to time with
    /// its claims in the store. Returns those that it was given and does not name.
    ///
    /// Where servers share a store, other servers give attempts to the session and get its reports. Its claims show which
    /// attempts these are, so they are read if there is any difference: that is less work than to read the tasks.
    pub(super) async fn compare(
        &self,
        call: &Exchange,
        holding: &[String],
        now: Now,
    ) -> Result<Vec<AttemptId>, EngineError> {
        let session = call.session;
        let tokens = holding.iter().chain(&call.declining);
        let named: BTreeMap<AttemptId, &str> =
            tokens.filter_map(|token| Some((Tokens::name(token)?, token.as_str()))).collect();
        let (missing_before, differs, is_due) = {
            let mut sessions = self.sessions.lock();
            let local = sessions.get(session);
            let missing = local.missing(&named, now);
            let differs = !missing.is_empty() || named.keys().any(|id| !local.given.contains_key(id));
            (missing, differs, local.is_to_check(now))
        };
        let mut claimed = None;
        if is_due || (differs && self.store.cluster().is_some()) {
            let claims = self.store.held(session).await?;
            if !is_due || self.release_unheard((session, call.seq), &claims, &named, now).await? {
                claimed = Some(claims.iter().map(|claimed| claimed.id).collect::<BTreeSet<AttemptId>>());
            }
        }
        let (missing, unknown) = {
            let mut sessions = self.sessions.lock();
            let local = sessions.get(session);
            // Not before the claims are read: another poll of the session may omit what it no longer declines.
            if !is_planted(Bug::DeclinedAdopted) {
                local.declined.extend(call.declining.iter().filter_map(|token| Tokens::name(token)));
            }
            local.forget_unnamed(&named);
            if let Some(claimed) = &claimed {
                // They have ended at other servers. What was given after the claims were read is not among them.
                for id in missing_before.iter().filter(|id| !claimed.contains(id)) {
                    local.given.remove(id);
                }
            }
            // A declined attempt no longer belongs to the session, though the worker may still name it.
            let is_unknown = |id: &AttemptId| {
                let is_gone = claimed.as_ref().is_some_and(|claimed| !claimed.contains(id));
                (is_gone || !local.given.contains_key(id)) && !local.declined.contains(id)
            };
            let missing = local.missing(&named, now);
            (missing, named.into_iter().filter(|(id, _)| is_unknown(id)).collect::<Vec<_>>())
        };
        let is_claimed = |id: &AttemptId| claimed.as_ref().is_some_and(|claimed| claimed.contains(id));
        let (elsewhere, unknown): (Vec<_>, Vec<_>) = unknown.into_iter().partition(|(id, _)| is_claimed(id));
        self.learn_of(session, elsewhere.into_iter().map(|(id, _)| id).collect()).await?;
        // Anybody can construct a name; only the seal proves that the attempt was given to the session.
        let unknown = unknown.into_iter().filter_map(|(_, token)| self.tokens.read(token)).collect();
        self.adopt(session, unknown, true, now).await?;
        Ok(missing)
    }

    /// Records attempts of a session that another server gave to it, and which of them it must stop.
    async fn learn_of(&self, session: SessionId, ids: Vec<AttemptId>) -> Result<(), EngineError> {
        if ids.is_empty() {
            return Ok(());
        }
        let stops = self.store.to_stop(&[session]).await?;
        let mut sessions = self.sessions.lock();
        let local = sessions.get(session);
        for id in ids {
            if stops.iter().any(|stop| stop.id == id) {
                local.cancels.entry(id).or_default();
            }
            local.give(id);
        }
        Ok(())
    }

    /// Releases claims that did not reach the session: the store's answer to a claim was lost, or another server
    /// claimed the attempt and could no longer hand it to the session. A claim is released after two polls that did not
    /// name it, since one poll may have been sent before another server handed the attempt out. A server that stood still
    /// may receive several such polls at once: so nothing is released because of a poll after which another server
    /// received a newer one. Returns whether the poll is current as far as is known.
    async fn release_unheard(
        &self,
        (session, seq): (SessionId, u64),
        claimed: &[Claimed],
        named: &BTreeMap<AttemptId, &str>,
        now: Now,
    ) -> Result<bool, EngineError> {
        let unheard: Vec<AttemptId> = {
            let mut sessions = self.sessions.lock();
            let local = sessions.get(session);
            let is_unheard = |claimed: &&Claimed| {
                local.hands == 0 && !local.given.contains_key(&claimed.id) && !named.contains_key(&claimed.id)
            };
            let unheard: BTreeSet<AttemptId> =
                claimed.iter().filter(is_unheard).map(|claimed| claimed.id).collect();
            let before = std::mem::replace(&mut local.unheard, unheard.clone());
            unheard.intersection(&before).copied().collect()
        };
        if !unheard.is_empty() && self.is_late(session, seq, now).await? {
            return Ok(false);
        }
        for id in unheard {
            self.store.release(session, id, None, now).await?;
        }
        Ok(true)
    }

    /// Whether another server has received a newer poll of the session, or its lease has ended.
    async fn is_late(&self, session: SessionId, seq: u64, now: Now) -> Result<bool, EngineError> {
        if self.store.cluster().is_none() {
            return Ok(false);
        }
        let states = self.store.sessions(now).await?;
        let state = states.iter().find(|state| state.session == session);
        Ok(state.is_none_or(|state| state.poll > seq))
    }

    /// Hands out attempts again that were given to a session and did not reach it, under the same token. As many as fit
    /// in an answer; the others follow with the next poll. Attempts that must not start any more are released with the
    /// second poll that does not name them: the first one may have crossed the answer that gave them. Returns also whether
    /// there are some for which the next poll decides.
    pub(super) async fn hand_again(
        &self,
        session: SessionId,
        seq: u64,
        mut missing: Vec<AttemptId>,
        now: Now,
    ) -> Result<(Vec<HandedOut>, bool), EngineError> {
        let mut is_in_doubt = false;
        let at_once = ATTEMPTS_MAX.min(self.store.loads_at_once());
        if missing.len() > at_once {
            // Otherwise stale ones would take the places of those that can be handed out.
            let heads = self.heads_of(&missing).await?;
            (missing, is_in_doubt) = self.without_stale(session, seq, missing, &heads, now).await?;
            missing.truncate(at_once);
        }
        if missing.is_empty() {
            return Ok((Vec::new(), is_in_doubt));
        }
        let tasks = self.tasks_of(&missing).await?;
        let (mut again, mut size) = (Vec::new(), AnswerSize::default());
        let (current, doubtful) = self.without_stale(session, seq, missing, &tasks, now).await?;
        for id in current {
            let Some(loaded) = tasks.get(&id.task) else { continue };
            let attempt = self.handed_out(id, loaded);
            if attempt.is_too_large() {
                self.refuse_too_large(id);
            } else if size.add(&attempt) {
                again.push(attempt);
            }
        }
        Ok((again, is_in_doubt || doubtful))
    }

    /// Those of the attempts that the session has claimed and may start, and whether others are in doubt until the next poll.
    /// It no longer has the rest.
    async fn without_stale(
        &self,
        session: SessionId,
        seq: u64,
        attempts: Vec<AttemptId>,
        tasks: &BTreeMap<TaskId, Loaded>,
        now: Now,
    ) -> Result<(Vec<AttemptId>, bool), EngineError> {
        let (mut current, mut is_in_doubt) = (Vec::new(), false);
        for id in attempts {
            let claimed = tasks.get(&id.task).filter(|loaded| has_claim(loaded, session, &id));
            if claimed.is_some_and(|loaded| may_start(&loaded.task, &id)) {
                current.push(id);
                continue;
            }
            if claimed.is_some() && self.sessions.lock().get(session).is_first_without(id, seq) {
                is_in_doubt = true;
                continue;
            }
            self.sessions.lock().get(session).given.remove(&id);
            if claimed.is_some() {
                self.store.release(session, id, None, now).await?;
            }
        }
        Ok((current, is_in_doubt))
    }
}

/// Whether a worker may start this attempt now: it has not ended, also not by a report that is on its way to the disk, and
/// nothing stops it.
pub(super) fn may_start(task: &Task, id: &AttemptId) -> bool {
    task.has_ready(id.key, id.attempt) && when_free(task, id.key) == Free::HandOut
}

/// Whether the session has claimed this attempt.
pub(super) fn has_claim(loaded: &Loaded, session: SessionId, id: &AttemptId) -> bool {
    loaded.claims.iter().any(|claim| {
        claim.key == id.key
            && claim.attempt == id.attempt
            && claim.number == id.claim
            && claim.session == session
    })
}

/// Whether a pause keeps this attempt for the resume because no worker seemed to run it. A worker that names it later
/// may finish it: stopping it would turn a pause into a failure. It is adopted on resume, or its report is accepted. But
/// it must stop if an operator moved the exclusive queue past the task: another task of the queue may run.
fn is_parked(task: &Task, id: &AttemptId) -> bool {
    !task.lacks_queue()
        && task.act(id.key).is_some_and(|act| act.state == ActState::Parked && act.attempt == id.attempt)
}

/// How often a session's claims are read from the store.
const CHECK_EVERY: Millis = Millis::from_secs(5);

impl LocalSession {
    /// Whether it is time to read the session's claims from the store.
    fn is_to_check(&mut self, now: Now) -> bool {
        let is_due = self.checked_at.is_none_or(|at| now.mono.0 >= at.0 + CHECK_EVERY.0);
        if is_due {
            self.checked_at = Some(now.mono);
        }
        is_due
    }

    /// Whether this poll is the first one that does not name the attempt.
    fn is_first_without(&mut self, id: AttemptId, seq: u64) -> bool {
        *self.doubted.entry(id).or_insert(seq) == seq
    }

    /// Records that the session has this attempt.
    pub(super) fn give(&mut self, id: AttemptId) {
        self.given.entry(id).or_default();
    }

    /// Attempts that it was given here in an earlier poll and does not name.
    fn missing(&self, named: &BTreeMap<AttemptId, &str>, now: Now) -> Vec<AttemptId> {
        let is_missing =
            |(id, given): &(&AttemptId, &Given)| !named.contains_key(id) && given.again_at <= now.mono;
        let mut missing: Vec<AttemptId> = self.given.iter().filter(is_missing).map(|(id, _)| *id).collect();
        missing.sort_unstable();
        missing
    }

    /// Forgets what is known of attempts that it no longer names. Cancels of attempts that it neither names nor was given
    /// are complete.
    fn forget_unnamed(&mut self, named: &BTreeMap<AttemptId, &str>) {
        self.doubted.retain(|id, _| self.given.contains_key(id) && !named.contains_key(id));
        let given = &self.given;
        self.cancels.retain(|id, _| named.contains_key(id) || given.contains_key(id));
        self.declined.retain(|id| named.contains_key(id));
        self.parked.retain(|id| named.contains_key(id));
    }
}
