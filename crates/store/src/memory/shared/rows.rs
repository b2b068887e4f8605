//! The rows that all handles of a store share, and what a commit and a claim do to them.

use std::sync::Weak;

use windlass_core::{Millis, Name, TaskId};

use super::super::{damage::Damage, servers::Servers, sessions::Sessions, tables::Tables, waits::Waits};
use crate::{
    port::{
        Change, ClaimRequest, Claimed, Limit, Loaded, LostClaim, Now, Outcome, Quarantine, SessionId,
        TaskChange,
    },
    signal::Signal,
};

/// What a handle hears of.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Set when another handle has changed something.
    pub(super) changed: Signal,
    /// Set when a server has ended.
    pub(super) released: Signal,
}

/// The rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) tables: Tables,
    pub(super) waits: Waits,
    pub(super) sessions: Sessions,
    pub(super) servers: Servers,
    pub(super) damage: Damage,
    /// Of each handle.
    pub(super) news: Vec<Weak<News>>,
}

impl Rows {
    pub(super) fn commit(&mut self, change: &Change) -> Outcome {
        let outcome = self.tables.check(change);
        if outcome != Outcome::Committed {
            return outcome;
        }
        if let Change::Task(change) = change {
            if self.waits.overlooked_by(change) {
                return Outcome::Conflict;
            }
            if change.lost.iter().any(|lost| !self.is_lost(change.task.id, lost)) {
                return Outcome::Heard;
            }
            if let Some(task) = self.standing_for(change) {
                return Outcome::Repeats { task };
            }
            self.waits.apply(change);
        }
        self.damage.repair(change);
        self.tables.write(change);
        outcome
    }

    /// A task as it is read; nothing where its rows are damaged.
    pub(super) fn load(&self, id: TaskId, quarantine: &Quarantine) -> Option<Loaded> {
        let task = self.tables.task(id)?;
        self.damage.is_readable(task, quarantine).then(|| self.waits.loaded(task.clone()))
    }

    /// The limits as they are read, by name.
    pub(super) fn limits(&self, quarantine: &Quarantine) -> Vec<Limit> {
        self.tables.limits().map(|limit| self.damage.limit(limit, quarantine)).collect()
    }

    /// The task to which a new one is deduplicated.
    fn standing_for(&self, change: &TaskChange) -> Option<TaskId> {
        let first = self.tables.task(self.tables.unique_task(&change.unique()?)?)?;
        let is_held = !self.waits.loaded(first.clone()).claims.is_empty();
        change.is_stood_for_by(first, is_held).then_some(first.id)
    }

    /// Whether a claim is to be lost still.
    fn is_lost(&self, task: TaskId, lost: &LostClaim) -> bool {
        self.waits.has_claim(task, lost) && self.sessions.is_over(lost.session, lost.at)
    }

    /// Whether limits or turns say what of a queue is handed out.
    pub(super) fn is_ruled(&self, queue: &Name) -> bool {
        self.tables.limits().any(|limit| limit.queue == *queue) || self.waits.takes_turns(queue)
    }

    pub(super) fn claim(
        &mut self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        quarantine: &Quarantine,
        now: Now,
    ) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        if !self.sessions.knows(session) {
            return claimed;
        }
        let grace = self.grace(session);
        let (limits, left_out) = (self.limits(quarantine), quarantine.tasks());
        for claim_request in claim_requests {
            if self.tables.paused().contains_key(&claim_request.module) {
                continue;
            }
            for _ in 0..claim_request.free {
                let next = self.waits.claim(session, claim_request, &limits, &left_out, grace, now);
                let Some(next) = next else { break };
                claimed.push(next);
            }
        }
        claimed
    }

    pub(super) fn grace(&self, session: SessionId) -> Millis {
        session.timeout_grace(self.sessions.is_attached(session))
    }
}
