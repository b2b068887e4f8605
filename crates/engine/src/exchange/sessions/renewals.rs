//! Renewals of sessions in the store, and how long sessions may be silent after them.

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
    /// The renewals to send: of sessions that called since their last renewal, and of attached ones whose poll ended
    /// and that have no other open poll.
    pub(crate) fn take_renewals(&mut self, now: Now) -> Vec<SessionRenewal> {
        let mut closed = std::mem::take(&mut self.closed);
        closed.retain(|id| self.sessions.get(id).is_some_and(|session| session.poll.is_none()));
        let unsaid = self.sessions.iter().filter(|(_, session)| session.is_unsaid).map(|(id, _)| *id);
        closed.extend(unsaid);
        closed.into_iter().filter_map(|id| self.take_renewal(id, now)).collect()
    }

    /// The renewal of one session, to send now.
    pub(crate) fn take_renewal(&mut self, id: SessionId, now: Now) -> Option<SessionRenewal> {
        let renewal = self.renewal(id)?;
        let session = self.sessions.get_mut(&id)?;
        (session.renewed_at, session.is_unsaid) = (Some(now.mono), false);
        Some(renewal)
    }

    /// A renewal failed: the next call of the session waits until it is renewed.
    pub(crate) fn untell(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            (session.renewed_at, session.is_unsaid) = (None, true);
        }
    }

    /// Extends the leases of sessions that were still alive at `at`, when this server stopped receiving calls for a
    /// while. The next renewals write that to the store.
    pub(crate) fn note_unheard_since(&mut self, at: Millis) {
        for session in self.sessions.values_mut() {
            let may_have_called = at.0 < session.lease_begins_at().0.saturating_add(session.lease.0);
            if may_have_called && session.extensions < EXTENSIONS_MAX {
                session.extensions += 1;
                session.is_unsaid = true;
            }
        }
    }

    /// The current renewal of a session.
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
            // The store may have forgotten the session since its last call, so each renewal includes the worker. A
            // server that was never polled knows less about the worker than other servers may have stored.
            worker: (session.last_poll > 0).then(|| session.worker.clone()),
        })
    }
}

impl LocalSession {
    /// The time of its last call, or of the last extension of its lease.
    fn lease_begins_at(&self) -> Millis {
        self.renewed_at.map_or(self.seen_at, |renewed| renewed.max(self.seen_at))
    }
}
