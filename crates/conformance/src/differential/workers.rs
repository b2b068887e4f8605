//! Operations of workers: they renew, claim attempts, name their attempts and release some.

use std::sync::Arc;

use windlass_core::{Millis, is_to_stop};
use windlass_store::{
    Adoption, AttemptId, ClaimRequest, Loaded, PollState, SessionId, SessionRenewal, WorkerState,
};

use crate::differential::walk::Walk;
use crate::history::name;

impl Walk {
    pub(super) async fn claim(&mut self) {
        let session = self.any_session();
        let modules = ["work", "other"];
        let claim_requests: Vec<ClaimRequest> = modules
            .iter()
            .filter(|_| !self.random.once_in(3))
            .map(|module| ClaimRequest { module: name(module), commands: None, free: 0 })
            .collect();
        let mut filled = Vec::new();
        for mut claim_request in claim_requests {
            claim_request.free = u32::try_from(self.random.below(4)).unwrap_or(0);
            if self.random.once_in(4) {
                claim_request.commands = Some(vec![name(if self.random.once_in(2) { "do" } else { "undo" })]);
            }
            filled.push(claim_request);
        }
        let claimed = self.pair.claim(session, &filled, self.now).await;
        for claimed in claimed {
            self.count("claim");
            self.handed_out.push(claimed);
        }
    }

    pub(super) async fn adopt(&mut self) {
        let session = self.any_session();
        let mut attempts: Vec<AttemptId> = Vec::new();
        for _ in 0..=self.random.below(3) {
            let Some(claimed) = self.any_attempt() else { return };
            let session_fits = claimed.session == session || self.random.once_in(3);
            // One that there is not. The next one may be there, and tokens are sealed: no worker names it before it was handed
            // out.
            let attempt = if self.random.once_in(8) { claimed.id.attempt + 100 } else { claimed.id.attempt };
            if session_fits
                && attempts.iter().all(|id| (id.task, id.key) != (claimed.id.task, claimed.id.key))
            {
                attempts.push(AttemptId { attempt, ..claimed.id });
            }
        }
        self.renew(session).await;
        let adoptions = self.pair.adopt(session, &attempts, self.now).await;
        for _ in adoptions.iter().filter(|adoption| **adoption == Adoption::Held) {
            self.count("adopt");
        }
    }

    /// A session releases an attempt that it has claimed, or had.
    pub(super) async fn release(&mut self) {
        let Some(claimed) = self.any_attempt() else { return };
        let (mut session, mut id) = (claimed.session, claimed.id);
        if let Some((holder, held)) = self.any_held().await {
            (session, id) = (holder, held);
        }
        if self.random.once_in(6) {
            session = self.any_session();
        }
        let held = |loaded: &Option<Loaded>| {
            loaded.as_ref().is_some_and(|loaded| loaded.claims.iter().any(|claim| claim.number == id.claim))
        };
        let was_held = held(&self.pair.load(&[id.task]).await[0]);
        self.pair.release(session, id, self.now).await;
        if was_held && !held(&self.pair.load(&[id.task]).await[0]) {
            self.count("release");
        }
    }

    /// An attempt that a session has claimed; preferably one that must stop, so that some are given up.
    async fn any_held(&mut self) -> Option<(SessionId, AttemptId)> {
        let (mut held, mut to_stop) = (Vec::new(), Vec::new());
        for loaded in self.pair.load(&self.active).await.into_iter().flatten() {
            for claim in &loaded.claims {
                let list = if is_to_stop(&loaded.task, claim.key) { &mut to_stop } else { &mut held };
                let id = AttemptId {
                    task: loaded.task.id,
                    key: claim.key,
                    attempt: claim.attempt,
                    claim: claim.number,
                };
                list.push((claim.session, id));
            }
        }
        self.random.pick(if to_stop.is_empty() { &held } else { &to_stop }).copied()
    }

    pub(super) async fn hear_of(&mut self) {
        if self.random.once_in(12) {
            self.pair.forgive(self.now).await;
            self.count("forgive");
        } else {
            let session = self.any_session();
            self.renew(session).await;
        }
    }

    pub(super) async fn renew(&mut self, session: SessionId) {
        let said = self.random.once_in(3).then(|| WorkerState {
            name: format!("worker {session}").into(),
            attached: self.random.once_in(2),
            modules: vec![name("work")],
            ..WorkerState::default()
        });
        let lease = Millis(1_000 + self.random.below(20_000));
        let worker = said.map(Arc::new);
        let poll = self.random.below(4);
        let poll = match self.random.below(3) {
            0 => PollState::Unknown,
            1 => PollState::Open(poll),
            _ => PollState::Closed(poll),
        };
        let renewal = SessionRenewal { session, poll, lease: Millis(20_000), lease_unpolled: lease, worker };
        self.pair.renew(renewal, self.now).await;
        self.count("renew");
    }
}
