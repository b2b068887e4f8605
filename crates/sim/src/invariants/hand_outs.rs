//! Ready work is handed out in time: no attempt waits for longer than a bound while a worker that serves its queue has
//! a free slot and a poll open.
//!
//! The time counts from when the last of these became true: the attempt is ready on disk, the worker has a free slot,
//! servers know of that and it is in touch with one,
//! and nothing disturbs the servers and stores. Limits and pauses keep work
//! back for good reasons, so queues with a limit or a pause are not looked at. A task with damaged rows is left out of all
//! work, so its attempts are not expected; attempts behind them in the same queue are.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, EventKind, Free, Name, TaskId, Wakeup, waiting};
use windlass_store::{AttemptId, Change, TaskChange};

use super::{Invariant, broken};
use crate::{
    config::{Config, Fault, WorkerConfig},
    judge::{Seen, Violation},
    truth::Truth,
    world::{Host, World},
};

/// How long work may wait, in milliseconds, beside what the store takes for [`OPERATIONS`].
const BOUND_MS: u64 = 1_000;

/// Operations of the store between an attempt that is ready and its claim: a round of all services and some retries.
const OPERATIONS: u64 = 60;

/// With several servers, slots that become free are told to the server that gets the report. The one with the poll hears
/// of them with the next poll at the latest.
const NEXT_POLL_MS: u64 = 6_000;

/// Polls follow one another: a worker that is without one for no longer is in touch all the time.
const GAP_MS: u64 = 100;

/// So long after nothing goes wrong any more every cut has healed, and every worker knows that.
const HEALED_AFTER_MS: u64 = 60_000;

/// Between two looks, in milliseconds.
const LOOK_EVERY_MS: u64 = 20;

pub(super) struct HandOuts {
    applies: bool,
    bound: u64,
    workers: Vec<Worker>,
    /// Ready attempts that nobody has claimed: which, in which queue, and since when.
    waiting: BTreeMap<(TaskId, ActKey), (u32, Name, u64)>,
    /// What each run that goes on is of.
    runs: BTreeMap<u64, (usize, AttemptId)>,
    /// Whether calls may be lost or held up: only a while after that is over work is handed out in time.
    cut_off: bool,
    calm_at: Option<u64>,
    disturbed_at: u64,
    looked_at: u64,
}

struct Worker {
    config: WorkerConfig,
    /// What it was given and has not ended.
    has: BTreeSet<AttemptId>,
    /// Since when it has a free slot and servers know of one, if so.
    free_since: Option<u64>,
    /// The number of the last call that a server heard, and how many slots it offered that were not given since.
    offered: (u64, u32),
    /// Since when it has had a poll open without a gap, and when it last had one.
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

    /// Since when it could take something, if it can.
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
            free_since: None,
            offered: (0, 0),
            in_touch: None,
        };
        let next_poll = if config.servers > 1 { NEXT_POLL_MS } else { 0 };
        Self {
            // A call that arrives twice may be answered where nobody waits.
            applies: config.faults.doubled == 0,
            bound: BOUND_MS + next_poll + OPERATIONS * config.faults.device_ms,
            workers: config.workers.iter().map(worker).collect(),
            waiting: BTreeMap::new(),
            runs: BTreeMap::new(),
            cut_off: is_cut_off(config),
            calm_at: None,
            disturbed_at: 0,
            looked_at: 0,
        }
    }

    /// Notes what became ready by a change, and what of the task waits no more.
    fn change(&mut self, change: &TaskChange, now: u64) {
        let task = &change.task;
        self.waiting.retain(|(id, key), (attempt, ..)| {
            *id != task.id
                || waiting(task, Wakeup::Act(*key))
                    .is_some_and(|wait| wait.attempt == *attempt && wait.ready.is_some())
        });
        for event in &change.events {
            let EventKind::ActReady { key, attempt } = event.kind else { continue };
            let wait = waiting(task, Wakeup::Act(key)).filter(|wait| wait.attempt == attempt);
            let ready = wait.and_then(|wait| wait.ready).filter(|ready| ready.free == Free::HandOut);
            if let Some(ready) = ready {
                self.waiting.insert((task.id, key), (attempt, ready.module, now));
            }
        }
    }

    fn claimed(&mut self, id: &AttemptId) {
        self.waiting.remove(&(id.task, id.key));
    }

    fn let_go(&mut self, worker: usize, id: &AttemptId, now: u64) {
        self.workers[worker].has.remove(id);
        self.workers[worker].count(now);
    }

    /// Looks at which workers are in touch, and for how long work has waited for them.
    fn look(&mut self, truth: &Truth, world: &World) -> Result<(), Violation> {
        let now = world.now();
        let servers = 0..world.servers.count();
        let runs =
            |server: usize| world.servers.live(server).is_some() && !world.is_paused(Host::Server(server));
        if world.is_calm() {
            self.calm_at.get_or_insert(now);
        }
        let is_healed = !self.cut_off || self.calm_at.is_some_and(|at| now - at > HEALED_AFTER_MS);
        if !is_healed
            || servers.clone().any(|server| !runs(server) || world.servers.device(server).is_disturbed(world))
        {
            self.disturbed_at = now;
        }
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let host = Host::Worker(index);
            if !world.is_paused(host) && world.network.is_heard(host, runs) {
                worker.in_touch = Some((worker.in_touch.map_or(now, |(since, _)| since), now));
            }
            worker.in_touch = worker.in_touch.filter(|(_, last)| now - last <= GAP_MS);
        }
        for ((task, key), (attempt, queue, since)) in &mut self.waiting {
            let limited = truth.rules.limits.values().any(|limit| limit.queue == *queue);
            // A worker has it since before a restart: once it has named it, nobody else gets it (world 1795422982703143).
            let runs =
                |(_, id): &(usize, AttemptId)| (id.task, id.key, id.attempt) == (*task, *key, *attempt);
            if self.runs.values().any(runs)
                || limited
                || truth.rules.paused.contains(queue)
                || truth.is_damaged(*task)
            {
                *since = now;
                continue;
            }
            let serving = self.workers.iter().enumerate().filter(|(_, worker)| worker.serves(queue));
            for (index, ready_since) in
                serving.filter_map(|(index, worker)| Some((index, worker.ready_since()?)))
            {
                let waited = now - ready_since.max(*since).max(self.disturbed_at);
                if waited > self.bound {
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

impl Invariant for HandOuts {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        if !self.applies {
            return Ok(());
        }
        let now = world.now();
        match seen {
            Seen::Written(Change::Task(change)) => self.change(change, now),
            Seen::Written(Change::Limit(_) | Change::Queue(_))
            | Seen::ServerStarted
            | Seen::ServerKilled
            | Seen::ServerResumed
            | Seen::Recovered => self.disturbed_at = now,
            Seen::Claimed { id } => self.claimed(id),
            Seen::Given { worker, id } => {
                self.claimed(id);
                self.workers[*worker].has.insert(*id);
                self.workers[*worker].offered.1 = self.workers[*worker].offered.1.saturating_sub(1);
                self.workers[*worker].count(now);
            }
            Seen::Offered { worker, seq, free } if *seq > self.workers[*worker].offered.0 => {
                self.workers[*worker].offered = (*seq, *free);
                self.workers[*worker].count(now);
            }
            Seen::Declined { worker, id } => self.let_go(*worker, id, now),
            Seen::RunBegan { worker, run, id } => drop(self.runs.insert(*run, (*worker, *id))),
            Seen::RunEnded { run, .. } => {
                if let Some((worker, id)) = self.runs.remove(run) {
                    self.let_go(worker, &id, now);
                }
            }
            Seen::WorkerKilled { worker } => {
                self.runs.retain(|_, (other, _)| other != worker);
                self.workers[*worker].has.clear();
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
