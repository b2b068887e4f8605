//! What still has to happen before a world is finished.

use super::{Host, World};
use crate::{kinds::Kind, stores::EnqueuedRows};

impl World {
    /// Whether every task has ended and is published, if the world publishes, no client is about to submit another
    /// one, and every server runs.
    pub(crate) fn is_finished(&self) -> bool {
        self.unrest().is_none()
    }

    /// What still has to happen before a world is finished.
    pub(crate) fn unrest(&self) -> Option<&'static str> {
        if self.submitting.get() > 0 {
            return Some("a client still submits tasks");
        }
        // It may still have messages to deliver.
        if (0..self.config.servers).any(|server| self.is_paused(Host::Server(server))) {
            return Some("a server stands still");
        }
        let truth = &self.judge.borrow().truth;
        if !truth.is_all_ended() {
            return Some("a task has not ended");
        }
        if truth.open_rollout().is_some() {
            return Some("a rollout has not ended");
        }
        if self.config.announces && truth.unannounced().is_some() {
            return Some("an event is not published");
        }
        let is_accepted = || self.servers.enqueued().is_none_or(EnqueuedRows::is_empty);
        if !truth.has_damaged_tasks() && !is_accepted() {
            return Some("an enqueued task is not accepted");
        }
        (!self.is_damage_reported()).then_some("damaged rows are not reported")
    }

    /// Whether an alarm reports every task with damaged rows that a server has found.
    pub(crate) fn is_damage_reported(&self) -> bool {
        let reported = || self.judge.borrow().truth.damage_alarms();
        !self.config.is(Kind::DamagedRows) || self.servers.damaged_tasks() <= reported()
    }
}
