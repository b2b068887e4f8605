//! What this server knows of the workers that talk to it: their offers, their open poll, what was given them.
//!
//! It is only about talking. Who holds what is in the store, and a worker may go on with another server.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_channel::oneshot;
use windlass_core::Millis;

use crate::{
    exchange::{ExchangeAnswer, Seq},
    ports::{AttemptId, Now, SessionId, Wish},
};

/// The sessions that talk to this server.
#[derive(Debug, Default)]
pub(crate) struct LocalSessions {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    sessions: BTreeMap<SessionId, LocalSession>,
    /// Sessions with an open poll, the one that waits longest first. May name some that wait no more.
    waiting: VecDeque<(SessionId, Seq)>,
    /// Attached sessions whose poll ended without another one being open.
    closed: BTreeSet<SessionId>,
}

/// One session.
#[derive(Debug, Default)]
pub(crate) struct LocalSession {
    pub(crate) attached: bool,
    pub(crate) lease: Millis,
    pub(crate) worker: crate::ports::WorkerState,
    /// What it can take, as it said in the call with the highest number.
    pub(crate) offers: Offers,
    pub(crate) poll: Option<Poll>,
    pub(crate) last_poll: Seq,
    /// Attempts given to it, by token.
    pub(crate) given: HashMap<String, Given>,
    /// Attempts it is to stop, by token, and when it was last told.
    pub(crate) cancels: BTreeMap<String, Option<Millis>>,
    pub(crate) seen_at: Millis,
}

/// What a session can take.
#[derive(Debug, Clone, Default)]
pub(crate) struct Offers {
    pub(crate) seq: Seq,
    pub(crate) wishes: Vec<Wish>,
    /// Over all modules together.
    pub(crate) free: Option<u32>,
}

/// A poll that waits.
#[derive(Debug)]
pub(crate) struct Poll {
    pub(crate) seq: Seq,
    pub(crate) until: Millis,
    pub(crate) answer: oneshot::Sender<ExchangeAnswer>,
}

/// An attempt given to a session.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) id: AttemptId,
    /// Number of the poll that was answered with it.
    pub(crate) seq: Seq,
    /// Bytes of log lines kept of it.
    pub(crate) log_bytes: usize,
}

/// A session is forgotten here when it was silent for this long; the store's lease is what counts.
const FORGET_AFTER: Millis = Millis::from_secs(2 * 3600);

impl LocalSessions {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the first poll has waited long enough.
    pub(crate) fn next_expiry(&self) -> Option<Millis> {
        self.lock().sessions.values().filter_map(|session| session.poll.as_ref()).map(|poll| poll.until).min()
    }
}

impl Inner {
    pub(crate) fn get(&mut self, id: SessionId) -> &mut LocalSession {
        self.sessions.entry(id).or_default()
    }

    pub(crate) fn find(&mut self, id: SessionId) -> Option<&mut LocalSession> {
        self.sessions.get_mut(&id)
    }

    /// Whether a session is known to serve a module without this command.
    pub(crate) fn lacks(&self, id: SessionId, module: &str, command: &str) -> bool {
        let offers = self.sessions.get(&id).map(|session| &session.offers);
        let wish = offers.and_then(|offers| offers.wishes.iter().find(|wish| &*wish.module == module));
        let commands = wish.and_then(|wish| wish.commands.as_ref());
        commands.is_some_and(|commands| !commands.iter().any(|name| &**name == command))
    }

    /// Lets a poll wait.
    pub(crate) fn wait(&mut self, id: SessionId, poll: Poll) {
        self.waiting.push_back((id, poll.seq));
        self.get(id).poll = Some(poll);
    }

    /// A poll ended; an attached session should open another one soon.
    pub(crate) fn close(&mut self, id: SessionId) {
        self.closed.insert(id);
    }

    /// A poll's future is dropped. Tells whether it was still open, so that its connection went away.
    pub(crate) fn drop_poll(&mut self, id: SessionId, seq: Seq) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        if session.poll.as_ref().is_none_or(|poll| poll.seq != seq) {
            return false;
        }
        session.poll = None;
        if session.attached {
            self.closed.insert(id);
        }
        true
    }

    /// Attached sessions whose poll ended since the last call and that have none open now, with their lease.
    pub(crate) fn take_closed(&mut self) -> Vec<(SessionId, Millis)> {
        let closed = std::mem::take(&mut self.closed);
        let without_poll = |id| self.sessions.get(&id).filter(|session| session.poll.is_none());
        closed.into_iter().filter_map(|id| without_poll(id).map(|session| (id, session.lease))).collect()
    }

    /// Sessions with an open poll, the one that waits longest first.
    pub(crate) fn waiting(&mut self) -> Vec<SessionId> {
        let sessions = &self.sessions;
        self.waiting.retain(|(id, seq)| {
            let poll = sessions.get(id).and_then(|session| session.poll.as_ref());
            poll.is_some_and(|poll| poll.seq == *seq)
        });
        self.waiting.iter().map(|(id, _)| *id).collect()
    }

    /// Polls that have waited long enough, and sessions that were silent for long.
    pub(crate) fn expire(&mut self, now: Now) -> Vec<SessionId> {
        self.sessions.retain(|_, session| {
            session.poll.is_some() || now.mono.0 < session.seen_at.0.saturating_add(FORGET_AFTER.0)
        });
        let over = |session: &LocalSession| session.poll.as_ref().is_some_and(|poll| poll.until <= now.mono);
        self.sessions.iter().filter(|(_, session)| over(session)).map(|(id, _)| *id).collect()
    }
}

impl LocalSession {
    /// What may be handed to it now, and how much over all modules. Attempts are only ever handed to an open
    /// poll, and a worker opens one when it has the answer of the one before: so its offers know of everything
    /// it was given.
    pub(crate) fn room(&self) -> (&[Wish], u32) {
        let sum = self.offers.wishes.iter().map(|wish| wish.free).fold(0, u32::saturating_add);
        (&self.offers.wishes, self.offers.free.unwrap_or(sum))
    }

    /// Cancels that the session was not told of in the last second.
    pub(crate) fn due_cancels(&mut self, now: Now) -> Vec<String> {
        const AGAIN_AFTER_MS: u64 = 1000;
        let mut due = Vec::new();
        for (token, told) in &mut self.cancels {
            if told.is_none_or(|told| now.mono.0 >= told.0 + AGAIN_AFTER_MS) {
                *told = Some(now.mono);
                due.push(token.clone());
            }
        }
        due
    }
}
