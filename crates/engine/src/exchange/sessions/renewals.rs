//! What the store is told of sessions, and how long they may be silent after that.

use windlass_core::{
    Millis,
    planted::{Bug, is_planted},
};
use windlass_store::{EXTENSIONS_MAX, Now, PollState, SessionId, SessionRenewal};

use crate::exchange::{
    SILENCE_ATTACHED,
    sessions::{Inner, LocalSession},
};

impl Inner {
    /// What the store is to be told of sessions: those that were heard of and it was not told of, and attached ones
    /// whose poll has ended without another one being open.
    pub(crate) fn take_renewals(&mut self, now: Now) -> Vec<SessionRenewal> {
        let mut closed = std::mem::take(&mut self.closed);
        closed.retain(|id| self.sessions.get(id).is_some_and(|session| session.poll.is_none()));
        let unsaid = self.sessions.iter().filter(|(_, session)| session.is_unsaid).map(|(id, _)| *id);
        closed.extend(unsaid);
        closed.into_iter().filter_map(|id| self.take_renewal(id, now)).collect()
    }

    /// What the store is to be told of a session now.
    pub(crate) fn take_renewal(&mut self, id: SessionId, now: Now) -> Option<SessionRenewal> {
        let renewal = self.renewal(id)?;
        let session = self.sessions.get_mut(&id)?;
        (session.renewed_at, session.is_unsaid) = (Some(now.mono), false);
        Some(renewal)
    }

    /// The store could not be told of a session: the next call of it is not heard until it is.
    pub(crate) fn untell(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            (session.renewed_at, session.is_unsaid) = (None, true);
        }
    }

    /// Extends leases of sessions that were not over before a time in which this server heard nobody, which began at `at`.
    /// The next renewals tell the store.
    pub(crate) fn note_unheard_since(&mut self, at: Millis) {
        for session in self.sessions.values_mut() {
            let may_have_called = at.0 < session.lease_begins_at().0.saturating_add(session.lease.0);
            if may_have_called && session.extensions < EXTENSIONS_MAX {
                session.extensions += 1;
                session.is_unsaid = true;
            }
        }
    }

    /// How the store is to renew a session now.
    fn renewal(&self, id: SessionId) -> Option<SessionRenewal> {
        let session = self.sessions.get(&id)?;
        let must_poll = session.attached || is_planted(Bug::LeaseCutShort);
        let lease_unpolled = if must_poll { SILENCE_ATTACHED.min(session.lease) } else { session.lease };
        Some(SessionRenewal {
            session: id,
            poll: match &session.poll {
                _ if session.last_poll == 0 => PollState::Unknown,
                Some(poll) => PollState::Open(poll.seq),
                None if session.is_cut_off => PollState::Closed(session.last_poll),
                None => PollState::Open(session.last_poll),
            },
            lease: if is_planted(Bug::LeaseCutShort) { lease_unpolled } else { session.lease },
            lease_unpolled,
            // The store may have forgotten the session since it was last heard of, so it is told each time. A
            // server that was never polled knows less of the worker than others may have told the store.
            worker: (session.last_poll > 0).then(|| session.worker.clone()),
        })
    }
}

impl LocalSession {
    /// When it was last heard of, or its lease was last extended.
    fn lease_begins_at(&self) -> Millis {
        self.renewed_at.map_or(self.seen_at, |renewed| renewed.max(self.seen_at))
    }
}
