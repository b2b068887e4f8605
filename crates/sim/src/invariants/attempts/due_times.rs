//! Due work happens in time and not before: starts, retries, deadlines of steps and tasks, and
//! `start_within`.
//!
//! A deadline of a step counts from the claim of its first attempt. The times are computed here from the
//! stored events. Lateness counts only while all servers run and no store is slow or full.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{
    ActKey, ActState, Awaited, Cause, DEADLINE_CODE, Event, EventKind, Phase, ResolutionKind, START_CODE,
    Task, TaskId, Timestamp,
};
use windlass_store::{AttemptId, Change};

use super::{Invariant, broken};
use crate::{
    config::{Config, Fault},
    judge::{Seen, Violation},
    truth::Truth,
    world::{Host, World},
};

/// How late something may be, in milliseconds, in addition to [`OPERATIONS`] of the store.
const BOUND_MS: u64 = 2_000;

/// With a shared store: the time until another server takes over from a lost one.
const TAKE_OVER_MS: u64 = 10_000;

/// Operations of the store in a round of all services, with some retries.
const OPERATIONS: u64 = 60;

/// Operations for each unfinished task at rest: its own time comes in the same round, and so does a message to it. Each loads
/// the task from the disk, there and back (world 1795487890742205).
const OPERATIONS_AT_REST: u64 = 4;

/// The interval of the checks, in milliseconds.
const LOOK_EVERY_MS: u64 = 100;

/// The start of wall time in every world.
const BEGIN_MS: i64 = 1_700_000_000_000;

pub(super) struct DueTimes {
    /// False in worlds with wrong clocks: there the servers have no common time.
    applies: bool,
    bound: u64,
    /// How much longer for each unfinished task.
    bound_at_rest: u64,
    /// When the first attempt of each execution was claimed.
    taken: BTreeMap<(TaskId, ActKey), Timestamp>,
    /// When the current attempt of each execution became ready.
    ready: BTreeMap<(TaskId, ActKey), Timestamp>,
    /// Attempts that a session has claimed. A store with a single owner writes the claim late, and the worker
    /// may be gone before its poll is answered: then [`EventKind::ActTaken`] is the first sign of it.
    claimed: BTreeSet<(TaskId, ActKey, u32)>,
    /// Due work, with the time since which all servers run and know of it.
    due: BTreeMap<(TaskId, What), u64>,
    disturbed_at: u64,
    looked_at: u64,
}

/// Something that is due at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Start,
    Deadline,
    Next(ActKey, u32),
    DeadlineOf(ActKey),
    StartWithin(ActKey, u32),
}

impl DueTimes {
    pub(super) fn new(config: &Config) -> Self {
        let take_over = if config.shared { TAKE_OVER_MS } else { 0 };
        Self {
            applies: !config.faults.kinds.contains(&Fault::ClockJump),
            bound: BOUND_MS + take_over + OPERATIONS * config.faults.device_ms,
            bound_at_rest: if config.shared { 0 } else { OPERATIONS_AT_REST * config.faults.device_ms },
            taken: BTreeMap::new(),
            ready: BTreeMap::new(),
            claimed: BTreeSet::new(),
            due: BTreeMap::new(),
            disturbed_at: 0,
            looked_at: 0,
        }
    }

    /// Notes when an execution started, and checks that no deadline ends it too early.
    fn note(&mut self, task: &Task, event: &Event) -> Result<(), String> {
        if let EventKind::TaskRollingBack { cause: Cause::Deadline } = event.kind {
            return not_before(deadline(task), event, "the deadline of the task");
        }
        let Some(key) = event.kind.act() else { return Ok(()) };
        let id = (task.id, key);
        match &event.kind {
            EventKind::ActReady { .. } => drop(self.ready.insert(id, event.at)),
            EventKind::ActStarted { attempt, .. } | EventKind::ActTaken { attempt, .. } => {
                self.claimed.insert((task.id, key, *attempt));
                self.taken.entry(id).or_insert(event.at);
            }
            EventKind::ActAwaiting { awaited: Awaited::Signal | Awaited::Child, .. } => {
                self.taken.entry(id).or_insert(event.at);
            }
            EventKind::ActUnanswered { .. } => drop(self.taken.remove(&id)),
            EventKind::ActResolved { resolution: ResolutionKind::Retry, .. } => {
                self.taken.retain(|(task, other), _| {
                    let same = (other.step, other.direction) == (key.step, key.direction);
                    (*task, same) != (id.0, true) || (key.is_member() && *other != key)
                });
            }
            EventKind::ActRetrying { until, .. }
                if self.deadline_of(task, key).is_some_and(|deadline| *until >= deadline) =>
            {
                return Err(format!("{key:?} is to be retried at {until:?}, after its deadline"));
            }
            // The deadline had passed when the attempt became overdue. Another server decides on its end, and its
            // clock may be behind (world 1795488077635520).
            EventKind::ActFailed { .. } if task.act(key).is_some_and(|act| act.overdue) => {}
            // The answer with the claim was lost, so the time of the claim is unknown here.
            EventKind::ActOverdue { .. } | EventKind::ActFailed { .. }
                if self.taken.get(&id) == Some(&event.at) => {}
            EventKind::ActOverdue { .. } => {
                return not_before(self.deadline_of(task, key), event, "the deadline of the step");
            }
            EventKind::ActFailed { failure, .. } if failure.code == DEADLINE_CODE && is_own(task, key) => {
                return not_before(self.deadline_of(task, key), event, "the deadline of the step");
            }
            EventKind::ActFailed { failure, .. } | EventKind::ActRetrying { failure, .. }
                if failure.code == START_CODE && is_own(task, key) =>
            {
                return not_before(self.start_by(task, key), event, "`start_within`");
            }
            _ => {}
        }
        Ok(())
    }

    fn deadline_of(&self, task: &Task, key: ActKey) -> Option<Timestamp> {
        let span = task.action(key)?.deadline?;
        self.taken.get(&(task.id, key)).map(|taken| *taken + span)
    }

    fn start_by(&self, task: &Task, key: ActKey) -> Option<Timestamp> {
        let span = task.action(key)?.start_within?;
        self.ready.get(&(task.id, key)).map(|ready| *ready + span)
    }

    /// The pending due times of a task.
    fn waits(&self, task: &Task) -> Vec<(What, Timestamp)> {
        let mut waits = Vec::new();
        if task.state.phase == Phase::Scheduled {
            waits.extend(task.input.at.map(|at| (What::Start, at)));
        }
        if matches!(task.state.phase, Phase::Scheduled | Phase::Forward) {
            waits.extend(deadline(task).map(|at| (What::Deadline, at)));
        }
        for (key, act) in task.open_acts() {
            let next = match act.state {
                ActState::Delayed { until } => Some((What::Next(key, act.attempt), until)),
                // Somebody has an overdue attempt, and its end is awaited.
                ActState::Ready if !act.overdue && !self.claimed.contains(&(task.id, key, act.attempt)) => {
                    self.start_by(task, key).map(|at| (What::StartWithin(key, act.attempt), at))
                }
                _ => None,
            };
            waits.extend(next);
            // A pause preserves a parked attempt; a child has its own deadline.
            let ends =
                !act.overdue && !matches!(act.state, ActState::Parked | ActState::Awaiting(Awaited::Child));
            let end = self.deadline_of(task, key).filter(|_| ends);
            waits.extend(end.map(|at| (What::DeadlineOf(key), at)));
        }
        waits
    }

    /// Looks for overdue work.
    fn look(&mut self, truth: &Truth, world: &World) -> Result<(), Violation> {
        let now = world.now();
        let runs = |server: usize| {
            let device = world.servers.device(server);
            world.servers.live(server).is_some()
                && !world.is_paused(Host::Server(server))
                && !device.is_disturbed(world)
        };
        if !(0..world.servers.count()).all(runs) {
            self.disturbed_at = now;
            self.due.clear();
            return Ok(());
        }
        let wall = Timestamp(BEGIN_MS + i64::try_from(now).unwrap_or(0));
        let mut due = BTreeMap::new();
        let unfinished = truth.unfinished();
        let bound = self.bound + self.bound_at_rest * unfinished.len() as u64;
        for task in unfinished {
            for (what, _) in self.waits(&task).into_iter().filter(|(_, at)| *at <= wall) {
                let since = self.due.get(&(task.id, what)).copied().unwrap_or(now);
                if now - since > bound {
                    let message = format!("task {}: {what:?} is due for {} ms", task.id, now - since);
                    return Err(broken("due times", task.id, message));
                }
                due.insert((task.id, what), since);
            }
        }
        self.due = due;
        Ok(())
    }
}

impl Invariant for DueTimes {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        if !self.applies {
            return Ok(());
        }
        match seen {
            Seen::Written(Change::Task(change)) => {
                let Some(known) = truth.tasks.get(&change.task.id) else { return Ok(()) };
                let mut task = Task::clone(&known.before);
                for event in &known.events {
                    let noted = self.note(&task, event);
                    noted.map_err(|message| {
                        broken("due times", task.id, format!("task {}: {message}", task.id))
                    })?;
                    windlass_core::evolve(&mut task, event);
                }
            }
            Seen::Given { id, .. } | Seen::Claimed { id } => {
                let AttemptId { task, key, attempt, .. } = *id;
                self.claimed.insert((task, key, attempt));
            }
            Seen::ServerStarted | Seen::ServerKilled | Seen::ServerResumed | Seen::Recovered => {
                self.disturbed_at = world.now();
                self.due.clear();
            }
            _ => {}
        }
        if world.now() < self.looked_at + LOOK_EVERY_MS {
            return Ok(());
        }
        self.looked_at = world.now();
        self.look(truth, world)
    }
}

/// The deadline of a task, counted from its start, or from its submit.
fn deadline(task: &Task) -> Option<Timestamp> {
    let span = task.input.deadline.or(task.flow.deadline)?;
    Some(task.input.at.map_or(task.input.created_at, |at| at.max(task.input.created_at)) + span)
}

/// Whether its own times end it, not those of a child or of items.
fn is_own(task: &Task, key: ActKey) -> bool {
    let is_whole = task.flow.steps[key.step].each.is_some() && !key.is_member();
    !is_whole && task.runs_flow(key.step).is_none()
}

fn not_before(due: Option<Timestamp>, event: &Event, what: &str) -> Result<(), String> {
    match due {
        Some(due) if event.at >= due => Ok(()),
        _ => Err(format!("{what} ends at {due:?}, and at {:?} {:?} happens", event.at, event.kind)),
    }
}
