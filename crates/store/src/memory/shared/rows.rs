//! The rows that all handles of a store share, and what a commit and a claim do to them.

use std::sync::Weak;

use windlass_core::{ActKey, Millis, Name, Task, TaskId};

use super::super::{damage::Damage, servers::Servers, sessions::Sessions, tables::Tables, waits::Waits};
use crate::{
    port::{
        Change, ClaimRequest, Claimed, Limit, Loaded, Now, Outcome, Quarantine, SessionId, TaskChange,
        UniqueKey,
    },
    rules::{BuiltOn, ClaimView, Holder},
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
    pub(super) fn commit(&mut self, changes: &[Change]) -> Vec<Outcome> {
        let mut built_on = BuiltOn::default();
        let commit = |change: &Change| {
            let outcome = built_on.decide(change, &self.tables, &*self);
            if outcome == Outcome::Committed {
                if let Change::Task(change) = change {
                    self.waits.apply(change);
                }
                self.damage.repair(change);
                self.tables.write(change);
            }
            outcome
        };
        changes.iter().map(commit).collect()
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
        let holder = (session, self.grace(session));
        let (limits, left_out) = (self.limits(quarantine), quarantine.tasks());
        for claim_request in claim_requests {
            if self.tables.paused().contains_key(&claim_request.module) {
                continue;
            }
            let is_ruled = self.is_ruled(&claim_request.module);
            for _ in 0..claim_request.free {
                let next = self.waits.claim(holder, claim_request, &limits, &left_out, is_ruled, now);
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

impl ClaimView for Rows {
    fn holder(&self, task: TaskId, key: ActKey) -> Option<Holder> {
        self.waits.holder(task, key)
    }

    fn handed_out(&self, change: &TaskChange) -> impl Iterator<Item = (ActKey, u32)> {
        change.acts().filter_map(|key| Some((key, self.waits.handed_out(change.task.id, key)?)))
    }

    fn is_over(&self, session: SessionId, at: Millis) -> bool {
        self.sessions.is_over(session, at)
    }

    fn first(&self, key: &UniqueKey) -> Option<(&Task, bool)> {
        let first = self.tables.task(self.tables.unique_task(key)?)?;
        Some((first, self.waits.is_held(first.id)))
    }
}
