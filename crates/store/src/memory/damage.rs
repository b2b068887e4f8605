//! Rows in memory that cannot be read, as rows of a database that were damaged. A row that is written again is sound.

use std::collections::BTreeSet;

use windlass_core::{Lock, LockName, Name, Task, TaskId};

use crate::port::{Announced, Change, DamagedTask, Limit, Quarantine, Unannounced};

/// What is wrong with each of them.
const FAULT: &str = "it is not as it was written";

/// A row that can be damaged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// A task: its parameters, which are written once.
    Task(TaskId),
    /// A lock: its holder.
    Lock(LockName),
    /// A limit: what it allows. Its name and its queue can be read.
    Limit(Name),
    /// Events of a task that are to be announced.
    Announcement(Announced),
}

/// The damaged rows.
#[derive(Debug, Default)]
pub(super) struct Damage(BTreeSet<Row>);

impl Damage {
    pub(super) fn add(&mut self, row: Row) {
        self.0.insert(row);
    }

    /// Rows that `change` writes again.
    pub(super) fn repair(&mut self, change: &Change) {
        if self.0.is_empty() {
            return;
        }
        match change {
            Change::Lock(change) => drop(self.0.remove(&Row::Lock(change.lock.name.clone()))),
            Change::Limit(change) => drop(self.0.remove(&Row::Limit(change.name.clone()))),
            _ => {}
        }
    }

    fn has(&self, row: impl FnOnce() -> Row) -> bool {
        !self.0.is_empty() && self.0.contains(&row())
    }

    /// Whether a task can be read; the quarantine remembers one that cannot.
    pub(super) fn is_readable(&self, task: &Task, quarantine: &Quarantine) -> bool {
        let is_damaged = self.has(|| Row::Task(task.id));
        if is_damaged {
            let reason = format!("task {}: {FAULT}", task.id).into();
            quarantine.add(DamagedTask { id: task.id, row: Box::default(), reason });
        }
        !is_damaged
    }

    /// A lock as it is read: closed where its holder is damaged.
    pub(super) fn lock(&self, lock: &Lock, quarantine: &Quarantine) -> Lock {
        let mut lock = lock.clone();
        if self.has(|| Row::Lock(lock.name.clone())) {
            quarantine.add(DamagedTask::closed_lock(&lock.name, Some(FAULT)));
            lock.close(lock.version);
        } else if lock.is_closed() {
            quarantine.add(DamagedTask::closed_lock(&lock.name, None));
        }
        lock
    }

    /// A limit as it is read: its queue is closed where it is damaged.
    pub(super) fn limit(&self, limit: &Limit, quarantine: &Quarantine) -> Limit {
        if self.has(|| Row::Limit(limit.name.clone())) {
            quarantine.add(DamagedTask::limit(&limit.name, &limit.queue, FAULT));
            return Limit::closed(limit.name.clone(), limit.queue.clone());
        }
        limit.clone()
    }

    /// What is to be announced, without damaged rows and those behind them of the same tasks.
    pub(super) fn announcements(&self, rows: Vec<Unannounced>, quarantine: &Quarantine) -> Vec<Unannounced> {
        let mut skipped = BTreeSet::new();
        let is_sound = |row: &Unannounced| {
            if self.has(|| Row::Announcement(Announced { task: row.task, after: row.after })) {
                quarantine.add(DamagedTask::announcement(&row.task.to_string(), FAULT));
                skipped.insert(row.task);
            }
            !skipped.contains(&row.task)
        };
        rows.into_iter().filter(is_sound).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
