//! Polls: calls that wait until there is something for the worker.

use futures_channel::oneshot;
use windlass_core::Millis;

use super::{Exchange, ExchangeAnswer, Seq, WAIT_MAX};
use crate::{
    Engine, EngineError,
    ports::{AttemptId, Now, SessionId},
    sessions::Poll,
};

impl Engine {
    /// Answers a poll once there is something for it, or its time is over.
    pub(super) async fn poll(
        &self,
        call: Exchange,
        lease: Millis,
        now: Now,
    ) -> Result<ExchangeAnswer, EngineError> {
        let empty = ExchangeAnswer { lease, ..ExchangeAnswer::default() };
        let again = {
            let mut sessions = self.sessions.lock();
            let session = sessions.get(call.session);
            if call.seq <= session.last_poll {
                // A late copy of a poll that was answered or replaced.
                return Ok(empty);
            }
            session.last_poll = call.seq;
            if let Some(poll) = session.poll.take() {
                // Nobody reads it any more when its connection is gone.
                let _ = poll.answer.send(empty.clone());
            }
            call.holding.as_ref().map(|holding| session.compare(holding))
        };
        let mut answer = empty;
        if let Some(compared) = again {
            self.adopt(call.session, call.seq, compared.unknown, now).await?;
            answer.attempts = self.hand_again(call.session, call.seq, compared.missing).await?;
        }
        let (sender, receiver) = oneshot::channel();
        {
            let mut sessions = self.sessions.lock();
            answer.cancels = sessions.get(call.session).due_cancels(now);
            // Well within the lease: a poll that is answered at its end must not find its session over.
            let wait = call.wait.min(WAIT_MAX).min(Millis(lease.0 / 2));
            let until = Millis(now.mono.0 + wait.0);
            sessions.wait(call.session, Poll { seq: call.seq, until, answer: sender });
        }
        let guard = PollGuard { engine: self, session: call.session, seq: call.seq };
        if answer.attempts.is_empty() && answer.cancels.is_empty() {
            self.dispatch(now).await?;
            if call.wait == Millis(0) {
                self.answer(call.session, ExchangeAnswer { lease, ..ExchangeAnswer::default() });
            }
        } else {
            self.answer(call.session, answer);
        }
        let answer = receiver.await.unwrap_or(ExchangeAnswer { lease, ..ExchangeAnswer::default() });
        drop(guard);
        if call.attached {
            self.sessions.lock().close(call.session);
        }
        Ok(answer)
    }

    /// Answers the open poll of a session. Tells whether there was one.
    pub(crate) fn answer(&self, session: SessionId, answer: ExchangeAnswer) -> bool {
        let poll = self.sessions.lock().find(session).and_then(|session| session.poll.take());
        poll.is_some_and(|poll| poll.answer.send(answer).is_ok())
    }

    /// Tells the session that has this attempt to stop it.
    pub(crate) fn cancel(&self, session: SessionId, id: &AttemptId, now: Now) {
        let token = self.tokens.seal(id);
        let cancels = {
            let mut sessions = self.sessions.lock();
            let Some(local) = sessions.find(session) else { return };
            local.cancels.entry(token).or_default();
            if local.poll.is_none() {
                return;
            }
            (local.due_cancels(now), local.lease)
        };
        let (cancels, lease) = cancels;
        self.answer(session, ExchangeAnswer { cancels, lease, ..ExchangeAnswer::default() });
    }
}

/// Closes a poll when its connection goes away.
struct PollGuard<'a> {
    engine: &'a Engine,
    session: SessionId,
    seq: Seq,
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        if self.engine.sessions.lock().drop_poll(self.session, self.seq) {
            self.engine.timers.set();
        }
    }
}
