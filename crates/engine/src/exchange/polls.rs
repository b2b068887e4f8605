//! Polls: calls that wait until there is something for the worker.

use futures_channel::oneshot;
use windlass_core::Millis;
use windlass_store::{AttemptId, Now, SessionId};

use super::{Exchange, ExchangeAnswer, Seq};
use crate::{Engine, EngineError};

/// A poll from when it is heard until it is answered. It is closed when this is dropped: with the answer, or when
/// its connection goes away.
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
        let alone = !self.engine.store.is_shared();
        if self.engine.sessions.lock().end_poll(self.session, self.seq, alone) {
            self.engine.polls_closed.set();
        }
    }
}

impl Engine {
    /// Answers a poll once there is something for it, or its time is over.
    pub(super) async fn answer_poll(
        &self,
        call: Exchange,
        mut poll: OpenPoll<'_>,
        lease: Millis,
        now: Now,
    ) -> Result<ExchangeAnswer, EngineError> {
        let (session, seq) = (call.session, call.seq);
        let mut answer = ExchangeAnswer { lease, ..ExchangeAnswer::default() };
        if let Some(holding) = &call.holding {
            let gone = self.compare_with_store(session, holding, now).await?;
            let mut compared = {
                let mut sessions = self.sessions.lock();
                let local = sessions.get(session);
                let mut compared = local.compare(holding, now);
                compared.unknown.extend(gone);
                // What was given back is not the session's any more, though it is named still.
                compared.unknown.retain(|token| !local.declined.contains(token));
                compared
            };
            compared.unknown.sort_unstable();
            compared.unknown.dedup();
            self.adopt(session, compared.unknown, true, now).await?;
            answer.attempts = self.hand_again(session, compared.missing, now).await?;
        } else {
            // Whoever never tells what it holds names nothing that it gave back either.
            self.sessions.lock().get(session).declined.clear();
        }
        answer.cancels = self.sessions.lock().get(session).due_cancels(now);
        let is_empty = answer.attempts.is_empty() && answer.cancels.is_empty();
        if is_empty {
            self.sessions.lock().line_up(session, seq);
            self.dispatch(now).await?;
        }
        if !is_empty || call.wait == Millis(0) {
            // When the poll was answered or replaced meanwhile, that stands.
            self.sessions.lock().answer(session, seq, answer);
        }
        Ok((&mut poll.answer).await.unwrap_or(ExchangeAnswer { lease, ..ExchangeAnswer::default() }))
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

    /// Whether the session is to be told already that it is to stop this attempt.
    pub(crate) fn is_cancelled(&self, session: SessionId, id: &AttemptId) -> bool {
        let token = self.tokens.seal(id);
        self.sessions.lock().find(session).is_some_and(|local| local.cancels.contains_key(&token))
    }

    /// Tells the session that has this attempt to stop it.
    pub(crate) fn cancel(&self, session: SessionId, id: &AttemptId, now: Now) {
        if session.is_own() {
            // A queue publisher sees it by itself, and whoever answers over a broker cannot be told.
            return;
        }
        let token = self.tokens.seal(id);
        let mut sessions = self.sessions.lock();
        let Some(local) = sessions.find(session) else { return };
        local.cancels.entry(token).or_default();
        let Some(seq) = local.poll.as_ref().map(|poll| poll.seq) else { return };
        let answer = ExchangeAnswer {
            cancels: local.due_cancels(now),
            lease: local.lease,
            ..ExchangeAnswer::default()
        };
        sessions.answer(session, seq, answer);
    }
}
