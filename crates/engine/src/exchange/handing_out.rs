//! Handing out: ready attempts go to polls that wait.

use windlass_core::{Attempt, Command, Failure, Outcome, Report};

use super::{ANSWER_BYTES_MAX, ExchangeAnswer, HandedOut, PARAMS_BYTES_MAX, Seq};
use crate::{
    Engine, EngineError, Notice,
    inbox::Item,
    ports::{AttemptId, Now, SessionId, Wish},
    sessions::Given,
};

impl Engine {
    /// Hands ready attempts to polls that wait, the one that waits longest first.
    pub(crate) async fn dispatch(&self, now: Now) -> Result<(), EngineError> {
        let waiting = self.sessions.lock().waiting();
        for session in waiting {
            let wishes = self.sessions.lock().find(session).map(|local| {
                let (wishes, free) = local.room();
                (wishes.to_vec(), free, local.lease, local.last_poll)
            });
            let Some((wishes, free, lease, seq)) = wishes else { continue };
            let attempts = self.take(session, seq, &wishes, free, now).await?;
            if !attempts.is_empty() {
                let tokens: Vec<AttemptId> = attempts.iter().map(|attempt| attempt.id).collect();
                let answer = ExchangeAnswer { attempts, lease, ..ExchangeAnswer::default() };
                if !self.answer(session, answer) {
                    // The connection went away meanwhile: what nobody has seen goes back to its queue.
                    for id in tokens {
                        self.sessions.lock().get(session).given.remove(&self.tokens.seal(&id));
                        self.store.release(session, id, now).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Claims for a session what it can take.
    async fn take(
        &self,
        session: SessionId,
        seq: Seq,
        wishes: &[Wish],
        mut free: u32,
        now: Now,
    ) -> Result<Vec<HandedOut>, EngineError> {
        let mut claimed = Vec::new();
        // Begin with another module each time, so that none of a worker's modules starves.
        let first = usize::try_from(seq).unwrap_or(0) % wishes.len().max(1);
        for wish in wishes[first..].iter().chain(&wishes[..first]) {
            let wish = Wish { free: wish.free.min(free), ..wish.clone() };
            if wish.free > 0 {
                let got = self.store.claim(session, std::slice::from_ref(&wish), now).await?;
                free = free.saturating_sub(u32::try_from(got.len()).unwrap_or(u32::MAX));
                claimed.extend(got);
            }
        }
        if claimed.is_empty() {
            return Ok(Vec::new());
        }
        let tasks =
            self.store.load(&claimed.iter().map(|claimed| claimed.id.task).collect::<Vec<_>>()).await?;
        let (mut attempts, mut bytes) = (Vec::with_capacity(claimed.len()), 0);
        let (mut back, mut too_large) = (Vec::new(), Vec::new());
        {
            let mut sessions = self.sessions.lock();
            let local = sessions.get(session);
            for (claimed, loaded) in claimed.into_iter().zip(tasks) {
                let id = claimed.id;
                let Some(loaded) = loaded else { continue };
                let params = loaded.task.params_for(id.key);
                if params.as_str().len() > PARAMS_BYTES_MAX {
                    too_large.push(id);
                    continue;
                }
                bytes += params.as_str().len();
                if bytes > ANSWER_BYTES_MAX && !attempts.is_empty() {
                    back.push(id);
                    continue;
                }
                let token = self.tokens.seal(&id);
                local.given.insert(token.clone(), Given { id, seq, log_bytes: 0 });
                if !self.feed.is_idle() {
                    let worker = local.worker.name.clone();
                    let notice = Notice::Started { key: id.key, attempt: id.attempt, at: now.wall, worker };
                    self.feed.tell(id.task, &notice);
                }
                attempts.push(HandedOut { token, id, task: loaded.task, params });
            }
        }
        for id in back {
            self.store.release(session, id, now).await?;
        }
        self.refuse_too_large(too_large).await?;
        Ok(attempts)
    }

    /// Attempts whose parameters have grown beyond what may be handed out fail for good.
    async fn refuse_too_large(&self, ids: Vec<AttemptId>) -> Result<(), EngineError> {
        for id in ids {
            let failure = Failure::new(
                "its parameters have grown beyond 4 MiB: return less from the steps before",
                1,
                false,
            );
            let attempt = Attempt { key: id.key, number: id.attempt, started_at: None };
            let command = Command::Report(Report { attempt, outcome: Outcome::Failed(failure) });
            let item = Item::Task { id: id.task, command, claim: Some(id.claim), logs: Vec::new() };
            self.inbox.post(vec![item]);
        }
        Ok(())
    }
}
