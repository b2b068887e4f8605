//! Ready work is handed out in time: no attempt waits longer than a bound while a worker that serves its
//! queue has a free slot and an open poll. An attempt that a worker has returned is not given to it again under the same
//! claim.
//!
//! The time counts from when the last of these became true: the attempt is ready on disk, the worker has a
//! free slot, servers know of it and the worker is in touch with one, and no fault affects the servers and
//! stores. Limits and pauses delay work on purpose, so queues with a limit or a pause are not checked. A task
//! with damaged rows is left out of all work, so its attempts are not expected; attempts behind them in the
//! same queue are. In a backlog each attempt waits for those before it, which a slow store hands out slowly.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, EventKind, Free, Name, Task, TaskId, Wakeup, waiting};
use windlass_store::{AttemptId, Change, TaskChange};

use super::{Invariant, broken};
use crate::{
    config::{Config, Fault, WorkerConfig},
    judge::{Seen, Violation},
    truth::Truth,
    world::{Host, World},
};

/// How long work may wait, in milliseconds, in addition to the time of [`OPERATIONS`] of the store.
const BOUND_MS: u64 = 1_000;

/// The most operations of the store between a ready attempt and its claim: a round of all services and some
/// retries.
const OPERATIONS: u64 = 60;

/// The maximum number of store operations for each attempt that the same queue hands out earlier (world 1796001592877504).
const OPERATIONS_EACH: u64 = 4;

/// Polls follow each other: a worker without one for no longer than this is in touch all the time.
const GAP_MS: u64 = 100;

/// After this time in a calm world every disconnection has healed, and every worker knows it.
const HEALED_AFTER_MS: u64 = 60_000;

/// The interval of the checks, in milliseconds.
const LOOK_EVERY_MS: u64 = 20;

pub(super) struct HandOuts {
    applies: bool,
    bound: u64,
    /// What is added to the bound for each attempt that is handed out earlier.
    bound_each: u64,
    workers: Vec<Worker>,
    waiting: BTreeMap<(TaskId, ActKey), Waiting>,
    /// The attempt of each active run.
    runs: BTreeMap<u64, (usize, AttemptId)>,
    /// Whether calls may be lost or delayed: then work is handed out in time only a while after this has
    /// ended.
    cut_off: bool,
    calm_at: Option<u64>,
    disturbed_at: u64,
    looked_at: u64,
}

/// An unclaimed ready attempt.
struct Waiting {
    attempt: u32,
    queue: Name,
    since: u64,
    /// How many others of its queue were claimed meanwhile.
    behind: u64,
}

struct Worker {
    config: WorkerConfig,
    /// The attempts that it was given and has not ended.
    has: BTreeSet<AttemptId>,
    /// The attempts that it returns; after the answer to that with the number of its last call before.
    returned: BTreeMap<AttemptId, Option<u64>>,
    /// The time since which it has a free slot that servers know of, if it has one.
    free_since: Option<u64>,
    /// The number of the last call that a server received, and the slots that it offered that were not used
    /// since.
    offered: (u64, u32),
    /// The time since which it has had an open poll without a gap, and the last time it had one.
    in_touch: Option<(u64, u64)>,
}

impl Worker {
    fn count(&mut self, now: u64) {
        let is_free = self.has.len() < self.config.slots && self.offered.1 > 0;
        self.free_since = is_free.then(|| self.free_since.unwrap_or(now));
    }

    fn serves(&self, queue: &Name) -> bool {
        self.config.attached && (&**queue == "m" || &**queue == "n" && self.config.both_modules)
    }

    /// The time since which it could accept an attempt, if it can.
    fn ready_since(&self) -> Option<u64> {
        Some(self.free_since?.max(self.in_touch?.0))
    }
}

fn is_cut_off(config: &Config) -> bool {
    let kinds = [Fault::Partition, Fault::WorkerPaused];
    let faults = &config.faults;
    faults.lost > 0 || faults.delayed > 0 || faults.kinds.iter().any(|fault| kinds.contains(fault))
}

impl HandOuts {
    pub(super) fn new(config: &Config) -> Self {
        let worker = |config: &WorkerConfig| Worker {
            config: config.clone(),
            has: BTreeSet::new(),
            returned: BTreeMap::new(),
            free_since: None,
            offered: (0, 0),
            in_touch: None,
        };
        Self {
            // The answer to a duplicated call may go to the copy without a receiver.
            applies: config.faults.doubled == 0,
            bound: BOUND_MS + OPERATIONS * config.faults.device_ms,
            bound_each: OPERATIONS_EACH * config.faults.device_ms,
            workers: config.workers.iter().map(worker).collect(),
            waiting: BTreeMap::new(),
            runs: BTreeMap::new(),
            cut_off: is_cut_off(config),
            calm_at: None,
            disturbed_at: 0,
            looked_at: 0,
        }
    }

    /// Notes attempts that a change made ready, and those that wait no more.
    fn change(&mut self, change: &TaskChange, now: u64) {
        let task = &change.task;
        self.waiting.retain(|(id, key), wait| *id != task.id || queue_of(task, *key, wait.attempt).is_some());
        for event in &change.events {
            let EventKind::ActReady { key, attempt } = event.kind else { continue };
            if let Some(queue) = queue_of(task, key, attempt) {
                self.waiting.insert((task.id, key), Waiting { attempt, queue, since: now, behind: 0 });
            }
        }
    }

    /// An attempt that a worker returns waits again.
    fn waits_again(&mut self, id: &AttemptId, truth: &Truth, now: u64) {
        let is_same =
            |other: &AttemptId| (other.task, other.key, other.attempt) == (id.task, id.key, id.attempt);
        if self.workers.iter().any(|worker| worker.has.iter().any(is_same)) {
            return;
        }
        let queue = truth.task_now(id.task).and_then(|task| queue_of(task, id.key, id.attempt));
        if let Some(queue) = queue {
            let wait = Waiting { attempt: id.attempt, queue, since: now, behind: 0 };
            self.waiting.insert((id.task, id.key), wait);
        }
    }

    fn claimed(&mut self, id: &AttemptId) {
        let Some(claimed) = self.waiting.remove(&(id.task, id.key)) else { return };
        for wait in self.waiting.values_mut().filter(|wait| wait.queue == claimed.queue) {
            wait.behind += 1;
        }
    }

    fn let_go(&mut self, worker: usize, id: &AttemptId, now: u64) {
        self.workers[worker].has.remove(id);
        self.workers[worker].count(now);
    }

    /// Checks which workers are in touch, and how long work has waited for them.
    fn look(&mut self, truth: &Truth, world: &World) -> Result<(), Violation> {
        let now = world.now();
        let runs =
            |server: usize| world.servers.live(server).is_some() && !world.is_paused(Host::Server(server));
        if world.is_calm() {
            self.calm_at.get_or_insert(now);
        }
        let is_healed = !self.cut_off || self.calm_at.is_some_and(|at| now - at > HEALED_AFTER_MS);
        if !is_healed || (0..world.servers.count()).any(|server| !runs(server)) {
            self.disturbed_at = now;
        }
        // A disk may have been slow and have recovered since the last look.
        self.disturbed_at = self.disturbed_at.max(world.servers.disturbed_at(world));
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let host = Host::Worker(index);
            if !world.is_paused(host) && world.network.is_heard(host, runs) {
                worker.in_touch = Some((worker.in_touch.map_or(now, |(since, _)| since), now));
            }
            worker.in_touch = worker.in_touch.filter(|(_, last)| now - last <= GAP_MS);
        }
        for ((task, key), Waiting { attempt, queue, since, behind }) in &mut self.waiting {
            let limited = truth.rules.limits.values().any(|limit| limit.queue == *queue);
            // A worker has had it since before a restart: once the worker has named it, no other worker gets
            // it (world 1795422982703143).
            let runs =
                |(_, id): &(usize, AttemptId)| (id.task, id.key, id.attempt) == (*task, *key, *attempt);
            if self.runs.values().any(runs)
                || limited
                || truth.rules.paused.contains(queue)
                || truth.is_damaged(*task)
            {
                (*since, *behind) = (now, 0);
                continue;
            }
            let serving = self.workers.iter().enumerate().filter(|(_, worker)| worker.serves(queue));
            for (index, ready_since) in
                serving.filter_map(|(index, worker)| Some((index, worker.ready_since()?)))
            {
                let waited = now - ready_since.max(*since).max(self.disturbed_at);
                if waited > self.bound + *behind * self.bound_each {
                    let message = format!(
                        "task {task}: {key:?} attempt {attempt} has been ready in the queue {queue} for {waited} ms \
                         beside worker {index}, which polls and has a free slot"
                    );
                    return Err(broken("hand-outs", *task, message));
                }
            }
        }
        Ok(())
    }
}

/// The queue from which an attempt is to be handed out, if it is. What its worker must end, because it is overdue for
/// example, is not handed out.
fn queue_of(task: &Task, key: ActKey, attempt: u32) -> Option<Name> {
    let wait = waiting(task, Wakeup::Act(key)).filter(|wait| wait.attempt == attempt)?;
    wait.ready.filter(|ready| ready.free == Free::HandOut).map(|ready| ready.module)
}

/// Whether a change is of a limit or of the pause of a queue.
fn is_rule(change: &Change) -> bool {
    matches!(change, Change::Limit(_) | Change::Queue(_))
}

fn given_again(worker: usize, id: &AttemptId) -> Violation {
    let AttemptId { task, key, attempt, claim } = *id;
    let message = format!(
        "task {task}: {key:?} attempt {attempt} is given to worker {worker} under claim {claim:x}, after the worker had \
         returned it"
    );
    broken("hand-outs", task, message)
}

impl Invariant for HandOuts {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        if !self.applies {
            return Ok(());
        }
        let now = world.now();
        match seen {
            Seen::Written(Change::Task(change)) => self.change(change, now),
            // Also when it is staged: no event may have happened since the rule that it changes was seen (world
            // 1796017871418952).
            Seen::Staged(batch) if batch.changes.iter().any(is_rule) => self.disturbed_at = now,
            Seen::Written(change) if is_rule(change) => self.disturbed_at = now,
            Seen::ServerStarted | Seen::ServerKilled | Seen::ServerResumed | Seen::Recovered => {
                self.disturbed_at = now;
            }
            Seen::Claimed { id } => self.claimed(id),
            Seen::Given { worker, seq, id } => {
                if let Some(answered) = self.workers[*worker].returned.get(id) {
                    return match answered {
                        Some(last) if seq > last => Err(given_again(*worker, id)),
                        _ => Ok(()),
                    };
                }
                self.claimed(id);
                self.workers[*worker].has.insert(*id);
                self.workers[*worker].offered.1 = self.workers[*worker].offered.1.saturating_sub(1);
                self.workers[*worker].count(now);
            }
            Seen::Offered { worker, seq, free } if *seq > self.workers[*worker].offered.0 => {
                self.workers[*worker].offered = (*seq, *free);
                self.workers[*worker].count(now);
            }
            Seen::Declined { worker, id } => {
                self.let_go(*worker, id, now);
                self.workers[*worker].returned.insert(*id, None);
                if world.config.faults.device_errors == 0 {
                    self.waits_again(id, truth, now);
                }
            }
            Seen::Returned { worker, seq, id } => {
                let before = self.workers[*worker].returned.insert(*id, Some(*seq));
                // Each call that returns it may fail with the store.
                if before == Some(None) && world.config.faults.device_errors > 0 {
                    self.waits_again(id, truth, now);
                }
            }
            Seen::RunBegan { worker, run, id } => drop(self.runs.insert(*run, (*worker, *id))),
            Seen::RunEnded { run, .. } => {
                if let Some((worker, id)) = self.runs.remove(run) {
                    self.let_go(worker, &id, now);
                }
            }
            Seen::WorkerKilled { worker } => {
                self.runs.retain(|_, (other, _)| other != worker);
                self.workers[*worker].has.clear();
                self.workers[*worker].returned.clear();
                self.workers[*worker].in_touch = None;
                self.workers[*worker].offered = (0, 0);
                self.workers[*worker].count(now);
            }
            _ => {}
        }
        if now < self.looked_at + LOOK_EVERY_MS {
            return Ok(());
        }
        self.looked_at = now;
        self.look(truth, world)
    }
}
