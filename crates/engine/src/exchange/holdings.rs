//! What a worker says it holds, against what it was given: after a restart of the server, and after an answer
//! that did not arrive.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use windlass_core::{ActState, Free, Millis, Task, is_to_stop, when_free};

use super::{ATTEMPTS_MAX, HandedOut, answer_size::AnswerSize};
use crate::{
    Engine, EngineError,
    ports::{Adoption, AttemptId, Claimed, Now, SessionId},
    sessions::{Given, LocalSession},
};

impl Engine {
    /// A session holds attempts that this server did not give it: after a restart, by another server, or from the
    /// message of a courier. With `names` it says that it has them, else that it is about to begin them.
    pub(super) async fn adopt(
        &self,
        session: SessionId,
        tokens: Vec<String>,
        names: bool,
        now: Now,
    ) -> Result<(), EngineError> {
        let read = |token: String| self.tokens.read(&token).map(|id| (token, id));
        let named: Vec<(String, AttemptId)> = tokens.into_iter().filter_map(read).collect();
        if named.is_empty() {
            return Ok(());
        }
        let ids: Vec<AttemptId> = named.iter().map(|(_, id)| *id).collect();
        let adoptions = self.store.adopt(session, &ids, now).await?;
        let tasks = self.heads_of(&ids).await?;
        let mut sessions = self.sessions.lock();
        let session = sessions.get(session);
        for ((token, id), adoption) in named.into_iter().zip(adoptions) {
            let task = tasks.get(&id.task).map(|loaded| &loaded.task);
            match (adoption, task) {
                (Adoption::Held, Some(task)) => {
                    if is_to_stop(task, id.key) {
                        session.cancels.entry(token.clone()).or_default();
                    }
                    session.give(token, id);
                }
                (Adoption::Gone, Some(task)) if is_parked(task, &id) => {
                    if names {
                        session.parked.insert(token);
                    }
                }
                _ => drop(session.cancels.entry(token).or_default()),
            }
        }
        Ok(())
    }

    /// Compares what a session holds with what the store says it has, now and then.
    ///
    /// Puts back what nobody told it of: the answer of the store to a claim was lost, or another server claimed it and
    /// could not give it to the session any more. It is put back when two polls did not name it: one alone may have been
    /// sent before another server gave it. Gives what it holds and has no more, as far as the store says: another server
    /// may have given that up.
    pub(super) async fn compare_with_store(
        &self,
        session: SessionId,
        holding: &[String],
        now: Now,
    ) -> Result<Vec<String>, EngineError> {
        if !self.sessions.lock().get(session).is_to_check(now) {
            return Ok(Vec::new());
        }
        let claimed = self.store.held(session).await?;
        let unheard: Vec<AttemptId> = {
            let mut sessions = self.sessions.lock();
            let local = sessions.get(session);
            let is_unheard = |claimed: &&Claimed| {
                let token = self.tokens.seal(&claimed.id);
                local.hands == 0 && !local.given.contains_key(&token) && !holding.contains(&token)
            };
            let unheard: BTreeSet<AttemptId> =
                claimed.iter().filter(is_unheard).map(|claimed| claimed.id).collect();
            let before = std::mem::replace(&mut local.unheard, unheard.clone());
            unheard.intersection(&before).copied().collect()
        };
        for id in unheard {
            self.store.release(session, id, now).await?;
        }
        let has = |id: &AttemptId| claimed.iter().any(|claimed| claimed.id == *id);
        let is_gone = |token: &&String| self.tokens.read(token).is_some_and(|id| !has(&id));
        Ok(holding.iter().filter(is_gone).cloned().collect())
    }

    /// Attempts that were given to a session and did not reach it are given again, under the same token; as many
    /// as fit in an answer, the others at the next poll. What is not to begin any more is taken back.
    pub(super) async fn hand_again(
        &self,
        session: SessionId,
        mut missing: Vec<(String, AttemptId)>,
        now: Now,
    ) -> Result<Vec<HandedOut>, EngineError> {
        missing.truncate(ATTEMPTS_MAX.min(self.store.loads_at_once()));
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let tasks = self.tasks_of(&missing.iter().map(|(_, id)| *id).collect::<Vec<_>>()).await?;
        let (mut again, mut size) = (Vec::new(), AnswerSize::default());
        for (token, id) in missing {
            let theirs = tasks.get(&id.task).filter(|loaded| {
                loaded.claims.iter().any(|claim| {
                    claim.key == id.key
                        && claim.attempt == id.attempt
                        && claim.number == id.claim
                        && claim.session == session
                })
            });
            let Some(loaded) = theirs else {
                self.sessions.lock().get(session).given.remove(&token);
                continue;
            };
            if when_free(&loaded.task, id.key) != Free::HandOut {
                self.sessions.lock().get(session).given.remove(&token);
                self.store.release(session, id, now).await?;
                continue;
            }
            let attempt = self.handed_out(id, loaded);
            if attempt.is_too_large() {
                self.refuse_too_large(id);
            } else if size.add(&attempt) {
                again.push(attempt);
            }
        }
        Ok(again)
    }
}

/// Whether a pause keeps this attempt for the resume, since nobody seemed to have it. A worker that names it later
/// may end it: to stop it would make a failure of a pause. It is adopted on resume, or its report is accepted.
fn is_parked(task: &Task, id: &AttemptId) -> bool {
    task.act(id.key).is_some_and(|act| act.state == ActState::Parked && act.attempt == id.attempt)
}

/// What a session says it holds, against what it was given.
pub(super) struct Compared {
    /// Not given by this server.
    pub(super) unknown: Vec<String>,
    /// Given in an earlier poll and not held.
    pub(super) missing: Vec<(String, AttemptId)>,
}

/// How often what the store says a session has is looked at.
const CHECK_EVERY: Millis = Millis::from_secs(5);

impl LocalSession {
    /// Whether it is time to look at what the store says the session has.
    fn is_to_check(&mut self, now: Now) -> bool {
        let is_due = self.checked_at.is_none_or(|at| now.mono.0 >= at.0 + CHECK_EVERY.0);
        if is_due {
            self.checked_at = Some(now.mono);
        }
        is_due
    }

    /// The session has this attempt, as far as this server knows.
    pub(super) fn give(&mut self, token: String, id: AttemptId) {
        self.given.entry(token).or_insert_with(|| Given::new(id));
    }

    /// Compares what the session holds with what it was given here. Cancels of what it holds no more are done.
    pub(super) fn compare(&mut self, holding: &[String], now: Now) -> Compared {
        let held: HashSet<&str> = holding.iter().map(String::as_str).collect();
        let unknown = holding.iter().filter(|token| !self.given.contains_key(*token)).cloned().collect();
        let absent = self
            .given
            .iter()
            .filter(|(token, given)| !held.contains(token.as_str()) && given.again_at <= now.mono);
        let missing: BTreeMap<String, AttemptId> =
            absent.map(|(token, given)| (token.clone(), given.id)).collect();
        self.cancels.retain(|token, _| held.contains(token.as_str()));
        self.declined.retain(|token| held.contains(token.as_str()));
        self.parked.retain(|token| held.contains(token.as_str()));
        Compared { unknown, missing: missing.into_iter().collect() }
    }
}
