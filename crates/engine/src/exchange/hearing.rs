//! Processes a call: updates its session, and computes how long the session stays alive without another call.

use std::sync::Arc;

use windlass_core::{
    Millis,
    planted::{Bug, is_planted},
};
use windlass_store::{Now, SessionId, SessionRenewal, StoreError, WorkerState};

use super::{
    Exchange, LEASE_ATTACHED, LEASE_DETACHED, LEASE_RANGE, SEQ_PER_SECOND_MAX, WAIT_MAX, polls::OpenPoll,
};
use crate::{
    Engine, EngineError,
    exchange::sessions::{LocalSession, Offers, SERVED_BEFORE_MAX},
};

/// The result of processing a call.
pub(super) struct Heard<'a> {
    pub(super) lease: Millis,
    pub(super) renewal: Option<SessionRenewal>,
    /// The poll that the call opened.
    pub(super) poll: Option<OpenPoll<'a>>,
}

impl Engine {
    /// Records a session and its offers. A poll is open from here on, so that the worker is not considered gone while
    /// the server determines the answer.
    ///
    /// # Errors
    /// When the number of the call leaps; then nothing is recorded.
    pub(super) fn hear(&self, call: &Exchange, now: Now) -> Result<Heard<'_>, EngineError> {
        let mut sessions = self.sessions.lock();
        if let Some(last) = sessions.find(call.session).and_then(|local| local.seq_left_by(call.seq, now)) {
            return Err(EngineError::SeqLeap { last, seq: call.seq });
        }
        let local = sessions.get(call.session);
        let lease = local.hear(call, now);
        // Where each renewal is a round trip to a database, most renewals are sent together with those of other
        // sessions.
        let was_told_lately = self.store.cluster().is_some() && local.was_told_lately(now);
        local.is_unsaid = true;
        let is_poll = call.reports.is_empty();
        let answer = is_poll.then(|| {
            // Well within the lease: the session must not be over when its poll is answered at the end of the wait.
            let wait = call.wait.min(WAIT_MAX).min(Millis(lease.0 / 2));
            sessions.open_poll(call.session, call.seq, Millis(now.mono.0 + wait.0))
        });
        let poll = answer.flatten().map(|answer| OpenPoll::new(self, call.session, call.seq, answer));
        let renewal = if was_told_lately { None } else { sessions.take_renewal(call.session, now) };
        Ok(Heard { lease, renewal, poll })
    }

    /// Renews sessions in the store. After a failure the next renewals repeat it.
    pub(crate) async fn renew(&self, renewals: Vec<SessionRenewal>, now: Now) -> Result<(), StoreError> {
        if renewals.is_empty() {
            return Ok(());
        }
        let sessions = renewals.iter().map(|renewal| renewal.session).collect();
        let told = Told { engine: self, sessions, number: self.stored_leases.begin(now) };
        self.store.renew(renewals, now).await?;
        told.succeed();
        Ok(())
    }
}

/// Sessions whose renewal is in progress. If it fails, the next renewals repeat it.
struct Told<'a> {
    engine: &'a Engine,
    sessions: Vec<SessionId>,
    /// The number of the renewal.
    number: u64,
}

impl Told<'_> {
    fn succeed(mut self) {
        self.sessions.clear();
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        let has_failed = !self.sessions.is_empty();
        self.engine.stored_leases.end(self.number, has_failed);
        if has_failed {
            let mut sessions = self.engine.sessions.lock();
            self.sessions.iter().for_each(|session| sessions.untell(*session));
        }
    }
}

/// A session that was renewed within this time, or within a tenth of its lease, need not be renewed at once.
const TOLD_LATELY: Millis = Millis(200);

impl LocalSession {
    fn was_told_lately(&self, now: Now) -> bool {
        let lately = TOLD_LATELY.min(Millis(self.lease.0 / 10));
        self.renewed_at.is_some_and(|at| now.mono.0 < at.0.saturating_add(lately.0))
    }

    /// The highest call number of the session, if the number of this call leaps.
    fn seq_left_by(&self, seq: u64, now: Now) -> Option<u64> {
        let silent_s = now.mono.0.saturating_sub(self.seen_at.0) / 1000;
        let most = self.last_seq.saturating_add(SEQ_PER_SECOND_MAX.saturating_mul(1 + silent_s));
        (self.last_seq > 0 && seq > most).then_some(self.last_seq)
    }

    /// Updates the session from a call. Returns its lease.
    fn hear(&mut self, call: &Exchange, now: Now) -> Millis {
        let default = if call.attached { LEASE_ATTACHED } else { LEASE_DETACHED };
        self.lease = match call.lease {
            Some(lease) => lease.clamp(*LEASE_RANGE.start(), *LEASE_RANGE.end()),
            None if self.lease == Millis(0) => default,
            None => self.lease,
        };
        self.attached = call.attached;
        self.is_draining = call.draining.unwrap_or(self.is_draining);
        self.seen_at = now.mono;
        (self.extensions, self.last_seq) = (0, self.last_seq.max(call.seq));
        self.hear_worker(call);
        self.lease
    }

    /// Updates the worker's data and offers from a call, where they changed.
    fn hear_worker(&mut self, call: &Exchange) {
        if self.worker.attached != call.attached {
            Arc::make_mut(&mut self.worker).attached = call.attached;
        }
        if let Some(claim_requests) = &call.claim_requests
            && call.seq > self.offers.seq
            && (call.reports.is_empty() || !is_planted(Bug::FreeSlotsUnheard))
        {
            let modules = || claim_requests.iter().map(|claim_request| &claim_request.module);
            if !modules().eq(self.worker.modules.iter()) {
                let before = self.worker.modules.iter().filter(|module| !modules().any(|now| now == *module));
                let before: Vec<_> = before.map(|module| (module.clone(), self.seen_at)).collect();
                self.served_before.retain(|(module, _)| !before.iter().any(|(again, _)| again == module));
                self.served_before.extend(before);
                let excess = self.served_before.len().saturating_sub(SERVED_BEFORE_MAX);
                self.served_before.drain(..excess);
                Arc::make_mut(&mut self.worker).modules = modules().cloned().collect();
            }
            self.offers = Offers { seq: call.seq, claim_requests: claim_requests.clone(), free: call.free };
        }
        if let Some(said) = &call.worker {
            let known = &self.worker;
            if said.name != known.name || said.host != known.host || said.version != known.version {
                let WorkerState { attached, modules, .. } = known.as_ref().clone();
                self.worker = Arc::new(WorkerState { attached, modules, ..said.clone() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::Name;

    use super::*;
    use windlass_store::ClaimRequest;

    #[test]
    fn a_worker_that_names_other_modules_in_each_call_fills_no_memory() {
        let mut session = LocalSession::default();
        let module = |n: usize| Name::new(&format!("m{n}")).unwrap();
        let calls = 3 * SERVED_BEFORE_MAX;
        for seq in 1..=calls {
            session.hear_worker(&Exchange {
                session: SessionId(1),
                seq: seq as u64,
                attached: false,
                lease: None,
                worker: None,
                holding: None,
                declining: Vec::new(),
                claim_requests: Some(vec![ClaimRequest { module: module(seq), commands: None, free: 1 }]),
                free: None,
                draining: None,
                wait: Millis(0),
                reports: Vec::new(),
            });
        }
        assert_eq!(session.served_before.len(), SERVED_BEFORE_MAX);
        assert!(
            session.served_before.iter().any(|(served, _)| *served == module(calls - 1)),
            "the last ones stay"
        );
    }
}
