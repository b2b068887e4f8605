//! Polls: calls that wait until there is something for the worker.

use futures_channel::oneshot;
use windlass_core::{Action, Millis};
use windlass_store::{AttemptId, Now, SessionId};

use super::{Exchange, ExchangeAnswer, HandedOut, Seq, sessions::LocalSession};
use crate::{Engine, EngineError};

impl LocalSession {
    /// Whether this poll has been answered, and is the last one.
    fn is_over(&self, seq: Seq) -> bool {
        self.poll.is_none() && self.last_poll == seq
    }

    /// Whether the session asks for this number of attempts of these modules and commands.
    pub(super) fn has_room_for(&self, attempts: &[HandedOut]) -> bool {
        let (claim_requests, free) = self.room();
        let mut left: Vec<u32> = claim_requests.iter().map(|claim_request| claim_request.free).collect();
        let fits = |attempt: &HandedOut| {
            let action = attempt.task.action(attempt.id.key).and_then(Action::worker);
            let Some((module, command)) = action else { return false };
            let mut places = claim_requests.iter().zip(&mut left);
            let place = places.find(|(claim_request, left)| {
                let commands = claim_request.commands.as_ref();
                **left > 0
                    && claim_request.module == *module
                    && commands.is_none_or(|commands| commands.contains(command))
            });
            place.map(|(_, left)| *left -= 1).is_some()
        };
        attempts.len() <= usize::try_from(free).unwrap_or(usize::MAX) && attempts.iter().all(fits)
    }
}

/// A poll from its arrival to its answer. It is closed when this is dropped: after the answer, or when its connection
/// goes away.
pub(super) struct OpenPoll<'a> {
    engine: &'a Engine,
    session: SessionId,
    seq: Seq,
    answer: oneshot::Receiver<ExchangeAnswer>,
}

impl<'a> OpenPoll<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        session: SessionId,
        seq: Seq,
        answer: oneshot::Receiver<ExchangeAnswer>,
    ) -> Self {
        Self { engine, session, seq, answer }
    }
}

impl Drop for OpenPoll<'_> {
    fn drop(&mut self) {
        let alone = self.engine.store.cluster().is_none();
        if self.engine.sessions.lock().end_poll(self.session, self.seq, alone) {
            self.engine.polls_closed.set();
        }
    }
}

impl Engine {
    /// Answers a poll once there is something for it, or its wait is over.
    pub(super) async fn answer_poll(
        &self,
        call: Exchange,
        mut poll: OpenPoll<'_>,
        lease: Millis,
        now: Now,
    ) -> Result<ExchangeAnswer, EngineError> {
        let (session, seq) = (call.session, call.seq);
        let mut answer = ExchangeAnswer { lease, ..ExchangeAnswer::default() };
        let mut is_in_doubt = false;
        if let Some(holding) = &call.holding {
            let missing = self.compare(&call, holding, now).await?;
            (answer.attempts, is_in_doubt) = self.hand_again(session, seq, missing, now).await?;
        } else {
            // A worker that omits `holding` does not name declined attempts either.
            self.sessions.lock().get(session).declined.clear();
        }
        let cancels = self.sessions.lock().get(session).due_cancels(now);
        answer.cancels = self.sealed(&cancels);
        let is_empty = answer.attempts.is_empty() && answer.cancels.is_empty();
        if is_empty && !is_in_doubt {
            self.sessions.lock().line_up(session, seq);
            self.dispatch(now).await?;
        }
        // What is in doubt is decided by the next poll, so it should come soon.
        let mut late = None;
        if !is_empty || is_in_doubt || call.wait == Millis(0) {
            let mut sessions = self.sessions.lock();
            match sessions.find(session).filter(|local| local.is_over(seq)) {
                Some(local) => {
                    answer.attempts.retain(|attempt| !local.cancels.contains_key(&attempt.id));
                    late = Some(answer);
                }
                // If the poll was replaced meanwhile, that answer is final.
                None => drop(sessions.answer(session, seq, answer)),
            }
        }
        let mut answer =
            (&mut poll.answer).await.unwrap_or(ExchangeAnswer { lease, ..ExchangeAnswer::default() });
        // With a slow store, reading may always take longer than a poll. The worker still waits for the answer.
        if let Some(late) = late.filter(|_| answer.attempts.is_empty()) {
            answer.attempts = late.attempts;
            answer.cancels.extend(late.cancels);
        }
        Ok(answer)
    }

    /// Answers the open poll of a session.
    pub(crate) fn answer(&self, session: SessionId, answer: ExchangeAnswer) {
        let mut sessions = self.sessions.lock();
        if let Some(seq) =
            sessions.find(session).and_then(|session| session.poll.as_ref()).map(|poll| poll.seq)
        {
            sessions.answer(session, seq, answer);
        }
    }

    /// Whether the session already has a cancel of this attempt.
    pub(crate) fn is_cancelled(&self, session: SessionId, id: &AttemptId) -> bool {
        self.sessions.lock().find(session).is_some_and(|local| local.cancels.contains_key(id))
    }

    fn sealed(&self, ids: &[AttemptId]) -> Vec<String> {
        ids.iter().map(|id| self.tokens.seal(id)).collect()
    }

    /// Asks the session that has this attempt to stop it.
    pub(crate) fn cancel(&self, session: SessionId, id: &AttemptId, now: Now) {
        if session.is_own() {
            // A queue publisher detects this itself, and a module that reports over a broker cannot receive cancels.
            return;
        }
        let mut sessions = self.sessions.lock();
        let Some(local) = sessions.find(session) else { return };
        local.cancels.entry(*id).or_default();
        let Some(seq) = local.poll.as_ref().map(|poll| poll.seq) else { return };
        let answer = ExchangeAnswer {
            cancels: self.sealed(&local.due_cancels(now)),
            lease: local.lease,
            ..ExchangeAnswer::default()
        };
        sessions.answer(session, seq, answer);
    }
}
