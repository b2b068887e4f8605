//! An active task in memory.

use std::{collections::BTreeSet, sync::Arc};

use windlass_core::{ActKey, Direction, Task, Waiting};

use super::bodies::Body;
use crate::port::TaskChange;

/// An active task.
#[derive(Debug)]
pub(super) struct Entry {
    /// The task; where its body is on disk only, without parameters and results.
    pub(super) task: Arc<Task>,
    pub(super) body: Body,
    /// What of it stands in queues and among due times.
    pub(super) published: Vec<Waiting>,
    /// Changes of it that are on their way to the disk.
    pub(super) under_way: u32,
    /// Acts whose current attempt a worker may have had, now or before.
    pub(super) handed_out: BTreeSet<ActKey>,
    /// On disk it rests: by the last change that is there. A later one may be on its way.
    pub(super) rests_on_disk: bool,
}

impl Entry {
    pub(super) fn new(task: Arc<Task>, handed_out: BTreeSet<ActKey>) -> Self {
        let body = Body::here(task.payload_bytes());
        Self { task, body, published: Vec::new(), under_way: 0, handed_out, rests_on_disk: false }
    }

    /// As [`Self::new`], of a task that was read with or without its body.
    pub(super) fn read(task: Task, is_body_away: bool, handed_out: BTreeSet<ActKey>) -> Self {
        let entry = Self::new(Arc::new(task), handed_out);
        if is_body_away { Self { body: Body::Away, ..entry } } else { entry }
    }

    /// What of it stands in queues and among due times.
    pub(super) fn published(&self) -> &[Waiting] {
        &self.published
    }

    /// The task goes on. That an attempt was handed out is forgotten with the attempt.
    pub(super) fn become_task(&mut self, change: &TaskChange) {
        self.under_way += 1;
        let next = &change.task;
        let before = std::mem::replace(&mut self.task, next.clone());
        self.body = self.body_after(change);
        for key in change.acts() {
            if !before.act(key).is_some_and(|before| next.has_current(key, before.attempt)) {
                self.handed_out.remove(&key);
            }
        }
    }
}

/// Acts whose current attempt may have been with a worker before this server was started.
pub(super) fn may_have_been_handed_out(task: &Task) -> BTreeSet<ActKey> {
    task.open_acts()
        .filter(|(key, act)| {
            let is_for_workers = || task.action(*key).is_some_and(|action| action.worker().is_some());
            act.is_current()
                && (key.direction == Direction::Rollback || task.state.steps[key.step].touched)
                && is_for_workers()
        })
        .map(|(key, _)| key)
        .collect()
}
