//! Tasks at rest: those that nothing will wake soon are on disk only.
//!
//! A task leaves memory when the change that lets it rest is on disk, and comes back before it is changed or
//! due. A read of the disk for what is not in memory is announced before ([`Reads`]): what comes
//! back meanwhile, or is written meanwhile, stays until the read is over. What was written before may leave all the
//! time, as the read finds it. So a task is always found in one of the two, and what was read of one that is not in
//! memory is what it is.
//!
//! Parameters and results leave the same way (see [`bodies`](super::bodies)).
//!
//! A caller that brings back all up to a place, in a line or in the order of waking, says so in the same breath
//! ([`Standing::move_reach`](super::standing::Standing::move_reach), [`Scheduler::awake_until`]): what is up to
//! there leaves no more, whatever was decided before.

use std::collections::{BTreeSet, VecDeque};

use windlass_core::{
    ActKey, ActState, Effect, Free, Millis, Name, Ready, TaskId, Timestamp, Waiting, Wakeup, waits,
};

use super::{
    Batch, entry::may_have_been_handed_out, overlay::Reads, scheduler::Scheduler, standing::Admission,
};
use crate::port::{Change, TaskChange};

/// When tasks leave memory, and how many come back at once.
#[derive(Debug, Clone, Copy)]
pub struct RestPolicy {
    /// A task that nothing wakes for so long rests.
    pub horizon: Millis,
    /// How many tasks are brought back in one go when their time comes.
    pub page: usize,
    /// How many ready attempts of a command are in memory; what comes behind them rests.
    pub head: usize,
    /// Which parameters and results are in memory.
    pub bodies: BodyPolicy,
}

/// Which bodies of tasks, that is their parameters and results, are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyPolicy {
    /// Above this sum in bytes, bodies leave memory.
    pub bytes_max: u64,
    /// A body of at most this size stays with its task, which takes as much without it.
    pub kept: usize,
}

impl BodyPolicy {
    /// All stay.
    pub const ALL: Self = Self { bytes_max: u64::MAX, kept: 0 };

    /// All leave as soon as they are on disk: for tests, which then see all of it.
    pub const NONE: Self = Self { bytes_max: 0, kept: 0 };

    /// At most `bytes_max` bytes stay.
    #[must_use]
    pub fn up_to(bytes_max: u64) -> Self {
        Self { bytes_max, kept: BODY_BYTES_KEPT }
    }
}

/// A body of so few bytes stays: reading it costs more than having it.
const BODY_BYTES_KEPT: usize = 1 << 10;

/// Bytes of bodies in memory: 256 MiB are few on a server, and many where parameters are as small as they mostly are.
const BODY_BYTES_MAX: u64 = 256 << 20;

impl Default for BodyPolicy {
    fn default() -> Self {
        Self::up_to(BODY_BYTES_MAX)
    }
}

impl RestPolicy {
    /// Tasks rest whenever they may, and few come back at once: for tests, which then see all of it.
    pub const EAGER: Self = Self { horizon: Millis(0), page: 2, head: 2, bodies: BodyPolicy::ALL };

    /// As [`Self::EAGER`], and no parameters or results stay in memory.
    pub const BARE: Self = Self { bodies: BodyPolicy::NONE, ..Self::EAGER };
}

impl Default for RestPolicy {
    fn default() -> Self {
        Self { horizon: Millis::from_secs(60), page: 1_000, head: 4_000, bodies: BodyPolicy::default() }
    }
}

/// How a task rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    /// When it must be woken; nothing = it waits for an operator.
    pub wake_at: Option<Timestamp>,
    /// No current attempt of it was ever handed out. Otherwise each of them may have been.
    pub never_handed_out: bool,
    /// Where its ready attempt stands, if it has one.
    pub line: Option<(Line, LinePlace)>,
}

/// The ready attempts of one command of a module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The module.
    pub module: Name,
    /// The command.
    pub command: Name,
}

impl Line {
    pub(super) fn of(ready: &Ready) -> Self {
        Self { module: ready.module.clone(), command: ready.command.clone() }
    }
}

/// A place in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinePlace {
    /// Smaller goes first.
    pub rank: i64,
    /// The task; one that rests has one ready attempt.
    pub task: TaskId,
}

impl LinePlace {
    /// Behind all others.
    pub const LAST: Self = Self { rank: i64::MAX, task: TaskId(u128::MAX) };
}

/// A place in the order of waking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WakePlace {
    /// When the task is woken.
    pub at: Timestamp,
    /// The task.
    pub task: TaskId,
}

impl WakePlace {
    /// After all tasks that are woken at this time.
    #[must_use]
    pub fn end_of(at: Timestamp) -> Self {
        Self { at, task: TaskId(u128::MAX) }
    }
}

impl Default for WakePlace {
    /// Before all tasks.
    fn default() -> Self {
        Self { at: Timestamp(i64::MIN), task: TaskId(0) }
    }
}

/// What leaves memory once nobody reads the disk who began before.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// Tasks that leave in this version, by when they were ready to.
    waiting: VecDeque<Departure>,
}

#[derive(Debug)]
struct Departure {
    at: u64,
    task: TaskId,
    version: u64,
    leaves: Leaves,
}

/// What of a task leaves memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    /// All of it.
    Task,
    /// Its parameters and results.
    Body,
}

impl Departures {
    pub(super) fn add(&mut self, at: u64, task: TaskId, version: u64, leaves: Leaves) {
        self.waiting.push_back(Departure { at, task, version, leaves });
    }

    /// The next task that may leave.
    fn next(&mut self, reads: &Reads) -> Option<Departure> {
        self.waiting.pop_front_if(|departure| reads.are_over(departure.at))
    }
}

impl Scheduler {
    /// Has those of the tasks in `batch` rest that may; it is staged.
    pub(super) fn lay_down(&mut self, batch: &mut Batch, policy: &RestPolicy) {
        let tasks = || {
            batch.changes.iter().filter_map(|change| match change {
                Change::Task(change) => Some(change),
                _ => None,
            })
        };
        // Of a task in several pieces, one piece says so.
        let parked: BTreeSet<TaskId> =
            tasks().filter(|change| gives_parked(change)).map(|change| change.task.id).collect();
        let changed = tasks()
            .filter(|change| !parked.contains(&change.task.id))
            .filter_map(|change| Some((change.task.id, change.events.last()?.at)));
        for (id, at) in changed {
            // By its last change in the batch, as the task is staged.
            let Some(rest) = self.rest(id, at, policy) else { continue };
            if let Some((line, place)) = &rest.line {
                match self.queues.admits_rest(line, *place, policy.head) {
                    Admission::Refused => continue,
                    Admission::Behind => {}
                    Admission::NewLimit(limit) => drop(batch.limits.insert(line.clone(), limit)),
                }
            }
            batch.resting.insert(id, rest);
        }
    }

    /// How a task rests that was changed `at`, if nothing wakes it before the horizon.
    fn rest(&self, id: TaskId, at: Timestamp, policy: &RestPolicy) -> Option<Rest> {
        let entry = self.active.get(&id)?;
        let task = &entry.task;
        if task.is_ended() {
            return None;
        }
        let mut ready = task.open_acts().filter(|(_, act)| act.state == ActState::Ready);
        if let Some((key, _)) = ready.next() {
            // Nearly all tasks go no further: their attempt goes to a worker soon.
            let (module, command) = task.action(key)?.worker()?;
            if !self.queues.is_deep(module, command, policy.head)
                || !entry.handed_out.is_empty()
                || ready.next().is_some()
            {
                return None;
            }
        }
        let waits = waits(task);
        let line = match waits.iter().find_map(ready_act) {
            Some((key, ready)) if self.may_stand_on_disk(id, key, ready) => {
                Some((Line::of(ready), LinePlace { rank: ready.rank, task: id }))
            }
            Some(_) => return None,
            None => None,
        };
        let wake_at = waits.iter().filter_map(|waiting| waiting.due_at).min();
        let horizon = self.awake_until.at.max(at + policy.horizon);
        if wake_at.is_some_and(|wake_at| wake_at <= horizon) {
            return None;
        }
        // What rows do not say exactly stays in memory.
        let never_handed_out = entry.handed_out.is_empty();
        let is_known = never_handed_out || entry.handed_out == may_have_been_handed_out(task);
        is_known.then_some(Rest { wake_at, never_handed_out, line })
    }

    /// Whether a ready attempt is one that was in no hands and may be handed out.
    fn may_stand_on_disk(&self, id: TaskId, key: ActKey, ready: &Ready) -> bool {
        ready.free == Free::HandOut
            // Whose turn it is is decided over all that have keys.
            && ready.fairness.is_none()
            && self.claims.get(id, key).is_none()
            && !self.recovered.contains_key(&(id, key))
    }

    /// What rests by a batch need not be in memory any more: it is on disk.
    pub(super) fn let_go_resting(&mut self, batch: &Batch) {
        if batch.resting.is_empty() {
            return;
        }
        for change in &batch.changes {
            if let Change::Task(change) = change
                && batch.resting.contains_key(&change.task.id)
            {
                self.let_go(change.task.id, change.task.state.events);
                if let Some(entry) = self.active.get_mut(&change.task.id) {
                    entry.rests_on_disk = true;
                }
            }
        }
    }

    /// A task need not be in memory any more: its change to this version is on disk.
    pub(super) fn let_go(&mut self, id: TaskId, version: u64) {
        self.departures.add(self.reads.now(), id, version, Leaves::Task);
    }

    /// Takes away what may leave. A task that has changed since stays, and one whose time is near by now.
    pub(super) fn depart(&mut self) {
        while let Some(Departure { task: id, version, leaves, .. }) = self.departures.next(&self.reads) {
            let Some(entry) = self.active.get(&id) else { continue };
            if entry.task.state.events != version {
                continue;
            }
            if leaves == Leaves::Body {
                self.depart_body(id);
                continue;
            }
            let soon = |at: Timestamp| at <= self.awake_until.at;
            let is_needed = |waiting: &Waiting| {
                waiting.due_at.is_some_and(soon)
                    || ready_act(waiting).is_some_and(|(_, ready)| !self.queues.is_behind(id, ready))
            };
            if entry.published().iter().any(is_needed) && !entry.task.is_ended() {
                continue;
            }
            let line = entry.published().iter().find_map(ready_act).map(|(_, ready)| Line::of(ready));
            self.forget(id);
            if let Some(line) = line {
                self.queues.count_resting(&line, 1);
            }
        }
    }
}

/// The attempt that is ready, if one is.
pub(super) fn ready_act(waiting: &Waiting) -> Option<(ActKey, &Ready)> {
    match (waiting.key, &waiting.ready) {
        (Wakeup::Act(key), Some(ready)) => Some((key, ready)),
        _ => None,
    }
}

/// Whether a parked attempt waits for a worker: an import is about to note that one may have had it, for which the task
/// must be in memory.
fn gives_parked(change: &TaskChange) -> bool {
    change.waits.iter().any(|effect| match effect {
        Effect::Wait(Waiting { key: Wakeup::Act(key), ready: Some(_), .. }) => {
            change.task.act(*key).is_some_and(|act| act.state == ActState::Parked)
        }
        _ => false,
    })
}
