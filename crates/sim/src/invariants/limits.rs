//! No limit is exceeded at the time of a hand-out.
//!
//! Runs of workers count while a server that owns its disk knows of them: after a start, once workers have
//! named them. Earlier starts are forgotten. An attempt starts when it is given to a worker: giving it again
//! after it was lost in transit is not another start.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{EventKind, Name, Ready, Wakeup, waiting};
use windlass_store::{AttemptId, Change, Limit, LimitChange};

use super::{Invariant, broken};
use crate::{
    config::{Config, Fault},
    judge::{Seen, Violation},
    kinds::Kind,
    truth::Truth,
    world::World,
};

/// A start may be counted a little before it is seen: the attempt leaves its queue, and the answer goes out
/// after up to this number of operations of the store. For each of its modules a poll may read pages of the
/// queue, then the tasks (world 1795422654308497 needs 7 of them).
const SLACK_OPERATIONS: u64 = 12;

/// The same on a database, where the claimed tasks are read before the answer, behind other requests.
const SLACK_OPERATIONS_SHARED: u64 = 15;

/// The least time of an operation, in milliseconds.
const OPERATION_MS: u64 = 10;

/// A slow or failing database may have handed out an attempt this long before it is seen.
const IN_THE_MAKING_MS: u64 = 10_000;

pub(super) struct Limits {
    shared: bool,
    /// Whether the store reads between the claim and the answer.
    reads_claimed: bool,
    /// How long before it is seen a start may be counted, in milliseconds.
    slack: u64,
    /// Whether starts can be checked: a start counts when the attempt leaves its queue, and with a slow disk,
    /// or a slow or failing database, that may be long before it is seen. A database counts by its own clock,
    /// which a jump sets ahead.
    counts_starts: bool,
    /// Attempts given since the server started, with their limits.
    given: BTreeMap<AttemptId, Given>,
    /// Attempts given before that.
    given_before: BTreeSet<AttemptId>,
    /// Those of them that were given by a store from which another one was filled.
    given_by_old_store: BTreeSet<AttemptId>,
    /// Attempts that workers declined.
    declined: BTreeSet<AttemptId>,
    runs: BTreeMap<u64, Run>,
    starts: BTreeMap<Name, StartsOf>,
    /// When limits were last changed: attempts handed out just before may be seen just after.
    changed_at: Option<u64>,
    resumed_at: u64,
}

struct Given {
    at: u64,
    starts: Vec<(Limit, Option<Box<str>>)>,
}

struct Run {
    worker: usize,
    id: AttemptId,
    /// The attempt as it was in its queue.
    ready: Ready,
    /// Whether the server knows of it.
    known: bool,
}

/// The starts under a limit.
struct StartsOf {
    limit: Limit,
    /// The times, with their keys.
    times: Vec<(u64, Option<Box<str>>)>,
}

impl Limits {
    pub(super) fn new(config: &Config) -> Self {
        let slow = config.faults.kinds.contains(&Fault::StoreSlow);
        let failing = config.faults.device_errors > 0 || config.faults.kinds.contains(&Fault::StoreFull);
        let set_ahead = config.is(Kind::OwnClocks) && config.faults.kinds.contains(&Fault::ClockJump);
        let operations = if config.shared { SLACK_OPERATIONS_SHARED } else { SLACK_OPERATIONS };
        Self {
            shared: config.shared,
            // Tasks at rest are read as well (world 1795883226489133).
            reads_claimed: config.shared || config.is(Kind::FewBytes) || config.rest.head != usize::MAX,
            slack: operations * config.faults.device_ms.max(OPERATION_MS),
            counts_starts: !(slow || config.shared && (failing || set_ahead)),
            given: BTreeMap::new(),
            given_before: BTreeSet::new(),
            given_by_old_store: BTreeSet::new(),
            declined: BTreeSet::new(),
            runs: BTreeMap::new(),
            starts: BTreeMap::new(),
            changed_at: None,
            resumed_at: 0,
        }
    }

    /// A parked attempt is nobody's: if its worker still runs it after the resume, it must name it again.
    fn park(&mut self, change: &Change) {
        let Change::Task(change) = change else { return };
        for event in &change.events {
            let EventKind::ActParked { key, attempt } = event.kind else { continue };
            let parked = (change.task.id, key, attempt);
            let runs = self.runs.values_mut();
            runs.filter(|run| (run.id.task, run.id.key, run.id.attempt) == parked)
                .for_each(|run| run.known = false);
        }
    }

    /// With a limit its starts are forgotten: one that is set again under its name counts from nothing (world
    /// 1795840394935329).
    fn forget_removed(&mut self, change: &Change) {
        let Change::Limit(LimitChange { name, limit: None }) = change else { return };
        self.starts.remove(name);
        for given in self.given.values_mut() {
            given.starts.retain(|(limit, _)| limit.name != *name);
        }
    }

    /// Checks that an attempt given to a worker does not exceed a limit together with the current runs.
    fn give(&mut self, id: &AttemptId, truth: &Truth, world: &World) -> Result<(), Violation> {
        let Some(ready) = ready(id, truth).filter(|_| !self.given.contains_key(id)) else { return Ok(()) };
        let mut starts = Vec::new();
        let in_the_making = match (self.reads_claimed, self.counts_starts) {
            (false, _) => 0,
            (true, true) => self.slack,
            (true, false) => IN_THE_MAKING_MS,
        };
        let just_changed = self.changed_at.is_some_and(|at| world.now() <= at + in_the_making);
        // The worker that had this claim before a restart gets it again, whatever limit was set meanwhile.
        let goes_on = self.given_before.contains(id);
        for limit in truth.rules.limits.values().filter(|_| !just_changed) {
            let Some(key) = limit.counts_ready(&ready) else { continue };
            let is_counted = !self.given_before.contains(id) && !self.declined.contains(id);
            if limit.starts.is_some() && is_counted {
                starts.push((limit.clone(), key.map(Into::into)));
            }
            let Some(most) = limit.running.filter(|_| !goes_on) else { continue };
            let counts = |run: &&Run| {
                (run.id.task, run.id.key) != (id.task, id.key)
                    && limit.counts_ready(&run.ready) == Some(key)
                    && self.is_held(run, truth)
            };
            let others: Vec<&Run> = self.runs.values().filter(counts).collect();
            world.count("limit: by what is running");
            if others.len() >= most as usize {
                let others: Vec<_> = others.iter().map(|run| (run.worker, run.id.task, run.id.key)).collect();
                let message = format!(
                    "task {}: {:?} is handed out beside {others:?}, and the limit is {limit:?}",
                    id.task, id.key
                );
                return Err(broken("limits", id.task, message));
            }
        }
        self.given.insert(*id, Given { at: world.now(), starts });
        Ok(())
    }

    /// Whether a server knows that this run is active.
    fn is_held(&self, run: &Run, truth: &Truth) -> bool {
        let next = AttemptId { claim: run.id.claim + 1, ..run.id };
        let last = AttemptId { claim: u64::MAX, ..run.id };
        // A task with damaged rows takes up no place.
        run.known
            && truth.is_current(&run.id)
            && !truth.is_damaged(run.id.task)
            && self.given.range(next..=last).next().is_none()
    }

    /// An attempt that was given starts: it counts from when it was given.
    fn begin(&mut self, id: &AttemptId) -> Result<(), Violation> {
        let Some(Given { at, starts }) = self.given.get_mut(id) else { return Ok(()) };
        if !self.counts_starts || *at < self.resumed_at {
            return Ok(());
        }
        let slack = self.slack;
        for (limit, key) in std::mem::take(starts) {
            let of = self.starts.entry(limit.name.clone()).or_insert_with(|| StartsOf::new(limit.clone()));
            if of.limit != limit {
                *of = StartsOf::new(limit);
            }
            of.times.push((*at, key.clone()));
            if let Some(times) = of.too_many(key.as_deref(), slack) {
                let message = format!("task {}: starts at {times:?} ms under {:?}", id.task, of.limit);
                return Err(broken("limits", id.task, message));
            }
        }
        Ok(())
    }
}

impl StartsOf {
    fn new(limit: Limit) -> Self {
        Self { limit, times: Vec::new() }
    }

    /// The times of starts that are too close to each other.
    fn too_many(&self, key: Option<&str>, slack: u64) -> Option<Vec<u64>> {
        let starts = self.limit.starts?;
        let of_key = self.times.iter().filter(|(_, of)| of.as_deref() == key).map(|(at, _)| *at);
        let times: BTreeSet<(u64, usize)> = of_key.enumerate().map(|(index, at)| (at, index)).collect();
        let times: Vec<u64> = times.into_iter().map(|(at, _)| at).collect();
        let mut windows = times.windows(starts.count as usize + 1);
        let near = |window: &&[u64]| {
            window.first().zip(window.last()).is_some_and(|(first, last)| last - first + slack < starts.per.0)
        };
        windows.find(near).map(<[u64]>::to_vec)
    }
}

impl Invariant for Limits {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Staged(batch) => {
                batch.changes.iter().for_each(|change| self.park(change));
                batch.changes.iter().for_each(|change| self.forget_removed(change));
                if batch.changes.iter().any(is_limit) {
                    self.changed_at = Some(world.now());
                }
            }
            Seen::Written(change) if self.shared => {
                self.park(change);
                self.forget_removed(change);
                if is_limit(change) {
                    self.changed_at = Some(world.now());
                }
            }
            // The new store knows of no run: tokens of the old one are not valid there, also where they arrive only now (world
            // 1795880145191838).
            Seen::Moved(_) => {
                self.runs.clear();
                self.given_by_old_store.extend(&self.given_before);
            }
            Seen::Damaged(_) => self.changed_at = Some(world.now()),
            Seen::Given { id, .. } => self.give(id, truth, world)?,
            Seen::RunBegan { worker, run, id } => {
                self.begin(id)?;
                if let Some(ready) = ready(id, truth) {
                    let known = self.shared || self.given.contains_key(id);
                    self.runs.insert(*run, Run { worker: *worker, id: *id, ready, known });
                }
            }
            Seen::Named { ids } => {
                for run in self.runs.values_mut().filter(|run| ids.contains(&run.id)) {
                    // A server does not take up a parked attempt (world 1795487982526066).
                    run.known |= truth.is_current(&run.id) && !self.given_by_old_store.contains(&run.id);
                }
            }
            Seen::RunEnded { run, .. } => drop(self.runs.remove(run)),
            Seen::WorkerKilled { worker } => self.runs.retain(|_, run| run.worker != *worker),
            // After a failed write the limit may change, and nothing was counted for it meanwhile.
            Seen::ServerResumed | Seen::Recovered => {
                self.resumed_at = world.now();
                self.starts.clear();
            }
            // If it is given again, that is another start. Under the same claim its start is not counted: the
            // store took the start back, and a poll sent before the worker declined made another server adopt
            // the attempt (world 1795422982688239).
            Seen::Declined { id, .. } => {
                self.given.remove(id);
                self.declined.insert(*id);
            }
            Seen::ServerKilled if !self.shared => {
                self.given_before.extend(std::mem::take(&mut self.given).into_keys());
                self.starts.clear();
                self.runs.values_mut().for_each(|run| run.known = false);
            }
            _ => {}
        }
        Ok(())
    }
}

fn is_limit(change: &Change) -> bool {
    matches!(change, Change::Limit(_))
}

/// The attempt in its queue, if it is there.
fn ready(id: &AttemptId, truth: &Truth) -> Option<Ready> {
    let task = truth.task_now(id.task)?;
    waiting(task, Wakeup::Act(id.key)).filter(|waiting| waiting.attempt == id.attempt)?.ready
}
