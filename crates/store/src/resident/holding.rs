//! Giving attempts to sessions and taking them away, and what of that outlives a start.

use windlass_core::{ActKey, Millis, TaskId};

use super::{Batch, Line, LinePlace, Resident, claims::Held, limits::Key, state::Inner};
use crate::port::{AttemptId, Claim, ClaimRequest, Claimed, Now, SessionId, StoreError, TAKEN_KEPT_AFTER};

/// How long after a start attempts stay with modules that answer over a broker alone, until somebody reads their answers.
const RESTORED_LEASE: Millis = Millis::from_secs(60);

impl Resident {
    /// Hands out what is ready, as far as these claim requests go.
    pub(super) fn claim_in_memory(
        &self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        now: Now,
    ) -> Vec<Claimed> {
        let mut inner = self.inner();
        let now = inner.by_now(now);
        inner.end_grace(now);
        let mut claimed = Vec::new();
        if inner.void || !inner.scheduler.sessions.knows(session) {
            return claimed;
        }
        for claim_request in claim_requests {
            let is_ruled = inner.scheduler.queues.is_ruled(&claim_request.module);
            for _ in 0..claim_request.free {
                let Some(place) = inner.scheduler.queues.pop(claim_request, is_ruled, now) else { break };
                let attempt =
                    inner.scheduler.active.get(&place.task).and_then(|entry| entry.task.act(place.key));
                let Some(attempt) = attempt.map(|act| act.attempt) else { continue };
                let claim = inner.next_claim;
                inner.next_claim += 1;
                let id = AttemptId { task: place.task, key: place.key, attempt, claim };
                claimed.extend(inner.hold(session, id, now));
            }
        }
        claimed
    }

    /// Writes what is to be written of claims and waits until it is on disk.
    pub(super) async fn keep_claims(&self) -> Result<(), StoreError> {
        let ticket = {
            let mut inner = self.inner();
            if inner.void {
                // What is in memory is written once the rows are read again.
                return Ok(());
            }
            self.give(&mut inner, Batch::default())
        };
        ticket.written().await
    }
}

impl Inner {
    /// Sessions of the engine's own have again what they had before a start, under the claims that are known outside. A
    /// queue publisher does not come back: its lease is over, and another one at its place goes on with what it offered.
    pub(super) fn restore(&mut self, claims: Vec<(TaskId, Claim)>, now: Now) {
        for (task, claim) in claims {
            let Claim { key, attempt, number, session, at } = claim;
            let entry = self.scheduler.active.get(&task);
            if !entry.is_some_and(|entry| entry.task.has_ready(key, attempt)) {
                self.scheduler.claims.forget_row(task, key);
                continue;
            }
            let lease = if session.is_publisher() { Millis(0) } else { RESTORED_LEASE };
            self.scheduler.sessions.hold_again(session, task, key, at, Millis(now.mono.0 + lease.0));
            self.give_to(session, AttemptId { task, key, attempt, claim: number }, now);
        }
    }

    /// Gives an attempt to a session that says it has it, also if another session had it before.
    pub(super) fn give_to(&mut self, session: SessionId, id: AttemptId, now: Now) -> Option<Claimed> {
        self.take_from_holder(id.task, id.key);
        self.scheduler.recovered.remove(&(id.task, id.key));
        self.scheduler.publish_ready(id.task, id.key);
        if let Some(ready) = self.scheduler.published_ready(id.task, id.key).cloned() {
            self.scheduler.leave_line(id.task, id.key, &ready);
        }
        self.hold(session, id, now)
    }

    /// Takes an attempt from the session that has it, and that did not begin it.
    pub(super) fn take_from_holder(&mut self, task: TaskId, key: ActKey) {
        if let Some(held) = self.end_hold(task, key) {
            self.scheduler.queues.take_back_start(&held);
        }
    }

    /// Takes an attempt from the session that has it. If it began, that counts under limits by starts.
    pub(super) fn end_hold(&mut self, task: TaskId, key: ActKey) -> Option<Held> {
        let held = self.scheduler.claims.remove(task, key)?;
        self.scheduler.sessions.drop_hold(held.session, task, key);
        self.scheduler.queues.let_go(&held);
        Some(held)
    }

    /// Gives an attempt to a session.
    pub(super) fn hold(&mut self, session: SessionId, attempt: AttemptId, now: Now) -> Option<Claimed> {
        let AttemptId { task, key, attempt: number, claim } = attempt;
        let ready = self.scheduler.published_ready(task, key)?;
        let grace = session.timeout_grace(self.scheduler.sessions.is_attached(session));
        let timeout_at = now.timeout_at(ready.ready_at, Millis(ready.timeout.0.saturating_add(grace.0)));
        let place = LinePlace { rank: ready.rank, task };
        let begins_deadline = !session.is_publisher() && self.scheduler.begins_deadline(task, key);
        let held = Held {
            key,
            attempt: number,
            number: claim,
            session,
            at: now.wall,
            timeout_at,
            keep_at: begins_deadline.then_some(Millis(now.mono.0 + TAKEN_KEPT_AFTER.0)),
            line: Line::of(ready),
            fairness: ready.fairness.as_deref().map(Key::from),
            started: now.mono,
        };
        self.scheduler.sessions.hold(session, task, key);
        self.scheduler.queues.start(&held);
        if let Some(entry) = self.scheduler.active.get_mut(&task) {
            entry.handed_out.insert(key);
            if entry.rests_on_disk {
                self.scheduler.queues.keep_limit_behind(&held.line, place);
            }
        }
        self.scheduler.claims.insert(task, held);
        self.scheduler.claims.claimed(task, key)
    }
}
