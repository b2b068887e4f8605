//! What becomes visible once a change is on disk.

use std::sync::Arc;

use windlass_core::{
    ActKey, Effect, Ready, Task, TaskId, Waiting, Wakeup, is_adhoc,
    planted::{Bug, is_planted},
    waiting,
};

use super::scheduler::{Scheduler, wakeup};
use crate::port::{Change, KeyChange, SubmitKey, TaskChange};

impl Scheduler {
    /// A staged change is on disk: what it made ready, due or sent becomes visible, unless a later change has
    /// replaced it.
    pub(super) fn publish(&mut self, change: &Change) {
        match change {
            Change::Task(change) => self.publish_task(change),
            Change::Alarm(change) => {
                if let Some(alarm) = &change.alarm {
                    self.alarms.settle(alarm.id.clone(), change.before + 1, &self.reads);
                }
            }
            Change::Lock(change) => self.publish_messages(&change.messages),
            Change::Key(KeyChange { key, task, .. }) => self.settle_key(*task, key),
            Change::Consume(_)
            | Change::Flow(_)
            | Change::Queue(_)
            | Change::Limit(_)
            | Change::Record(_)
            | Change::Journal(_)
            | Change::Audit(_)
            | Change::Logs(_)
            | Change::Announced(_)
            | Change::Probe => {}
        }
    }

    fn publish_task(&mut self, change: &TaskChange) {
        let id = change.task.id;
        if let Some(key) = &change.submit_key {
            self.settle_key(id, key);
        }
        if change.before == 0 {
            self.settle_new(change);
        }
        self.catch_up(change);
        self.publish_messages(&change.messages);
        if let Some(entry) = self.active.get_mut(&id) {
            entry.under_way = entry.under_way.saturating_sub(1);
            entry.rests_on_disk = false;
        }
        self.end_grace_of(id);
        let Some(entry) = self.active.get(&id) else { return };
        if entry.task.is_ended() {
            if change.task.is_ended() {
                self.let_go(id, change.task.state.events);
            }
            return;
        }
        let is_latest = Arc::ptr_eq(&entry.task, &change.task);
        if is_latest {
            self.shed(id);
        }
        for (index, effect) in change.waits.iter().enumerate() {
            let Effect::Wait(published) = effect else { continue };
            // Several commands may have made the change: the last one that names the act decides what it waits for.
            let is_last = !change.waits[index + 1..].iter().any(|later| wakeup(later) == Some(published.key));
            let still_waits = is_last
                && (is_latest || self.still_waits(id, published))
                && !self.overtaken.contains_key(&(id, published.key));
            if still_waits && !self.is_recovering(id, published) {
                self.publish_wait(id, published);
            }
        }
    }

    fn settle_key(&mut self, task: TaskId, key: &SubmitKey) {
        self.submit_keys.settle(key.scope, (task, key.fingerprint), &self.reads);
    }

    /// A new task is on disk.
    fn settle_new(&mut self, change: &TaskChange) {
        let Task { id, flow, .. } = &*change.task;
        if let Some(key) = change.unique() {
            self.unique.settle(key, *id, &self.reads);
        }
        if is_adhoc(flow.name.as_str()) {
            self.brought.settle(flow.name.clone(), *id, &self.reads);
        }
    }

    /// A change is on disk: what later changes say of the same wake-ups is published with those.
    fn catch_up(&mut self, change: &TaskChange) {
        if self.overtaken.is_empty() {
            return;
        }
        let (id, version) = (change.task.id, change.task.state.events);
        for key in change.waits.iter().filter_map(wakeup) {
            if self.overtaken.get(&(id, key)) == Some(&version) {
                self.overtaken.remove(&(id, key));
            }
        }
    }

    /// Whether a task that has changed since still waits for this.
    fn still_waits(&self, id: TaskId, published: &Waiting) -> bool {
        let entry = self.active.get(&id);
        entry.is_some_and(|entry| waiting(&entry.task, published.key).as_ref() == Some(published))
    }

    /// Whether workers are given time to name this: whatever is waited for then is published after the grace.
    fn is_recovering(&self, id: TaskId, waiting: &Waiting) -> bool {
        let Wakeup::Act(key) = waiting.key else { return false };
        waiting.ready.is_some() && self.recovered.get(&(id, key)) == Some(&waiting.attempt)
    }

    /// Puts what an act of a task waits for into queues and due times.
    pub(super) fn publish_wait(&mut self, id: TaskId, published: &Waiting) {
        let Some(entry) = self.active.get_mut(&id) else { return };
        if entry.published.iter().any(|waiting| waiting.key == published.key) {
            return;
        }
        // Most tasks wait for one thing, and a vector begins with room for four.
        if entry.published.is_empty() {
            entry.published.reserve_exact(1);
        }
        entry.published.push(published.clone());
        if let Some(due_at) = published.due_at
            && !(is_planted(Bug::RetryTimerLost) && published.attempt > 0)
        {
            self.due.insert((due_at, id, published.key));
        }
        if let (Some(ready), Wakeup::Act(key)) = (&published.ready, published.key)
            && self.claims.get(id, key).is_none()
        {
            self.stand_in_line(id, key, ready);
        }
    }

    /// What is ready of an act, as it stands in its queue or with a worker.
    pub(super) fn published_ready(&self, id: TaskId, key: ActKey) -> Option<&Ready> {
        let entry = self.active.get(&id)?;
        entry.published.iter().find(|waiting| waiting.key == Wakeup::Act(key))?.ready.as_ref()
    }
}
