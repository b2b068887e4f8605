//! Bodies of tasks: their parameters and results. They are counted in bytes, and leave memory above a limit.
//!
//! The scheduler orders and times tasks by their states alone. A body is needed when a command is decided on the task
//! and when an attempt of it is handed out; then it is read from the disk, and nothing of that read stays in memory.
//!
//! ```text
//! stage    the body is in memory: the change was decided on all of the task, and is on its way to the disk
//! publish  below the limit it stays. Above it, it is to leave: the disk has this version of the task
//! depart   it leaves, unless the task has changed since or somebody reads the disk who began before the publish
//! load     a body that is not in memory is read with its task. Both have the same version, or the load fails
//! ```
//!
//! So a body leaves as tasks at rest do (see [`rest`](super::rest)): each read of the disk finds the latest version
//! there, or in memory.

mod loading;

use std::{collections::BTreeSet, sync::Arc};

use windlass_core::{
    ActKey, Json, Task, TaskId,
    planted::{Bug, is_planted},
};

use super::{BodyPolicy, ReadTask, RestPolicy, TaskRow, entry::Entry, rest::Leaves, scheduler::Scheduler};
use crate::port::{Loaded, Portions, TaskChange};

/// Tasks read at once where memory is to hold few.
pub(super) const LOADED_AT_ONCE: usize = Portions::FIRST;

/// The account of all bodies in memory.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    policy: BodyPolicy,
    bytes: u64,
    /// How many active tasks have their bodies on disk only.
    away: usize,
}

/// The body of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// It is in memory and has this size in bytes: in 32 bits, as there is one in each entry.
    Here(u32),
    /// It is on disk only.
    Away,
}

impl Body {
    /// A body in memory.
    pub(super) fn here(bytes: usize) -> Self {
        Self::Here(u32::try_from(bytes).unwrap_or(u32::MAX))
    }
}

/// Room in memory for the bodies of tasks that are read. What finds none comes without its body.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    bytes: u64,
    policy: BodyPolicy,
}

impl Room {
    /// Room for all.
    pub const ENDLESS: Self = Self { bytes: u64::MAX, policy: BodyPolicy::ALL };

    /// Room for as much as the policy allows.
    #[must_use]
    pub fn of(policy: BodyPolicy) -> Self {
        Self { bytes: policy.bytes_max, policy }
    }

    /// Keeps the body of a task where there is room for it.
    pub fn admit(&mut self, row: &mut TaskRow) {
        let bytes = row.input.params.as_str().len() + row.state.result_bytes();
        if bytes as u64 <= self.bytes || bytes <= self.policy.kept {
            self.bytes = self.bytes.saturating_sub(bytes as u64);
            return;
        }
        row.input.params = Json::empty();
        row.state.clear_results();
        row.is_body_away = true;
    }

    /// As [`Self::admit`], where the task could be read.
    pub fn admit_read(&mut self, read: &mut ReadTask) {
        if let Ok(row) = read {
            self.admit(row);
        }
    }
}

impl Bodies {
    pub(super) fn new(policy: &RestPolicy) -> Self {
        Self { policy: policy.bodies, ..Self::default() }
    }

    /// How many bytes the bodies in memory have.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Room for what is read.
    pub(super) fn room(&self) -> Room {
        Room { bytes: self.policy.bytes_max.saturating_sub(self.bytes), policy: self.policy }
    }

    fn add(&mut self, body: Body) {
        match body {
            Body::Here(bytes) => self.bytes += u64::from(bytes),
            Body::Away => self.away += 1,
        }
    }

    fn subtract(&mut self, body: Body) {
        match body {
            Body::Here(bytes) => self.bytes = self.bytes.saturating_sub(u64::from(bytes)),
            Body::Away => self.away = self.away.saturating_sub(1),
        }
    }

    fn is_over(&self) -> bool {
        self.bytes > self.policy.bytes_max
    }
}

impl Entry {
    /// The body of the task after a change that was decided on all of it.
    pub(super) fn body_after(&self, change: &TaskChange) -> Body {
        let added = || change.results.iter().map(|(_, result)| result.as_str().len()).sum::<usize>();
        Body::here(match self.body {
            Body::Here(bytes) => bytes as usize + added(),
            Body::Away => self.task.payload_bytes(),
        })
    }
}

impl Scheduler {
    /// The task as it is by now, if it is active and its body is in memory.
    pub(super) fn loaded(&self, id: TaskId) -> Option<Loaded> {
        if self.is_body_away(id) { None } else { self.without_body(id) }
    }

    /// The task as it is by now, if it is active. Its parameters and results may be missing.
    pub(super) fn without_body(&self, id: TaskId) -> Option<Loaded> {
        let entry = self.active.get(&id)?;
        Some(Loaded {
            task: entry.task.clone(),
            claims: self.claims.of_task(id, &entry.task),
            handed_out: entry.handed_out.clone(),
            awaited: self.awaited(id, &entry.task),
            generation: self.generation,
        })
    }

    /// Acts of a task whose attempts workers are given time to name.
    fn awaited(&self, id: TaskId, task: &Task) -> BTreeSet<ActKey> {
        let of_task = self.recovered.range((id, ActKey::forward(0))..).take_while(|((of, _), _)| *of == id);
        let current =
            |((_, key), attempt): (&(TaskId, ActKey), &u32)| task.has_current(*key, *attempt).then_some(*key);
        of_task.filter_map(current).collect()
    }

    /// A task is in memory from now on.
    pub(super) fn enter(&mut self, id: TaskId, entry: Entry) {
        self.bodies.add(entry.body);
        self.active.insert(id, entry);
    }

    /// A task leaves memory.
    pub(super) fn remove(&mut self, id: TaskId) -> Option<Entry> {
        let entry = self.active.remove(&id)?;
        self.bodies.subtract(entry.body);
        Some(entry)
    }

    /// The body of a task has changed from `before` to `after`.
    pub(super) fn count_body(&mut self, before: Body, after: Body) {
        self.bodies.subtract(before);
        self.bodies.add(after);
    }

    /// The body of a task is to leave memory, if there are too many bytes. The disk has the task as it is.
    pub(super) fn shed(&mut self, id: TaskId) {
        if !self.bodies.is_over() {
            return;
        }
        let Some(entry) = self.active.get(&id) else { return };
        if matches!(entry.body, Body::Here(bytes) if bytes as usize > self.bodies.policy.kept) {
            self.departures.add(self.reads.now(), id, entry.task.state.events, Leaves::Body);
        }
    }

    /// Takes the body of a task out of memory that is to leave, unless there is room for it by now.
    pub(super) fn depart_body(&mut self, id: TaskId) {
        if !self.bodies.is_over() {
            return;
        }
        let Some(entry) = self.active.get_mut(&id) else { return };
        let is_on_disk = entry.under_way == 0 || is_planted(Bug::BodyDroppedEarly);
        if let before @ Body::Here(_) = entry.body
            && is_on_disk
        {
            entry.task = Arc::new(Task::clone(&entry.task).without_payload());
            entry.body = Body::Away;
            self.count_body(before, Body::Away);
        }
    }

    /// How many tasks may be loaded at once.
    pub(super) fn loads_at_once(&self) -> usize {
        if self.bodies.away == 0 { usize::MAX } else { LOADED_AT_ONCE }
    }

    /// Whether the body of a task in memory is on disk only.
    pub(super) fn is_body_away(&self, id: TaskId) -> bool {
        self.bodies.away > 0
            && self.active.get(&id).is_some_and(|entry| entry.body == Body::Away)
            && !is_planted(Bug::BodyNotRead)
    }
}
