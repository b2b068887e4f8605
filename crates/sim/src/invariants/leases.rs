//! While a worker is in touch, its attempts do not start on another worker, nor are they rolled back.
//! Timeouts and deadlines may end them nevertheless.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, DEADLINE_CODE, Direction, EventKind, TaskId};
use windlass_engine::LEASE_DETACHED;
use windlass_store::{AttemptId, Change, TaskChange};

use super::{Invariant, broken};
use crate::{
    config::{Config, Fault, WorkerConfig},
    judge::{Seen, Violation},
    kinds::Kind,
    truth::Truth,
    world::{Host, World},
};

/// An attached worker that was silent for longer may have lost its attempts: a bit less than its lease.
/// Detached workers get their lease from the time at which a server received a call.
const SILENCE_MS: u64 = 700;

/// A worker that was silent towards a new server for longer may have lost its attempts.
const SILENCE_AFTER_START_MS: u64 = 200;

/// How long it may take to write a loss, during which the worker may come back.
const LOSS_MS: u64 = 5_000;

/// An attempt whose timeout is this near may be abandoned: its answer may have been in transit for as long.
const TIMEOUT_NEAR_MS: u64 = 8_000;

pub(super) struct Leases {
    /// False for databases that fail or are slow: they may not learn of a worker that the server has heard.
    applies: bool,
    shared: bool,
    /// The longest silence of each worker; none for attached ones.
    silences: Vec<Option<u64>>,
    server_started_at: u64,
    /// When workers first named each attempt to the running server.
    named: BTreeMap<AttemptId, u64>,
    runs: BTreeMap<u64, Run>,
    /// When each attempt was given to its worker, by a server on the present store: its timeout counts from then.
    given: BTreeMap<AttemptId, u64>,
    /// Attempts ended by the deadline of their step. That may be before their timeout, and unknown to their
    /// worker. The invariant of due times checks that no deadline passes too early.
    ended_by_deadline: BTreeSet<(TaskId, ActKey, u32)>,
    touch: BTreeMap<usize, Touch>,
}

struct Run {
    worker: usize,
    id: AttemptId,
    since: u64,
}

/// When servers heard a worker.
#[derive(Default)]
struct Touch {
    last: u64,
    /// When they heard it after it had been silent for too long.
    silent_before: Option<u64>,
}

impl Leases {
    pub(super) fn new(config: &Config) -> Self {
        let faults = &config.faults;
        let strange = |fault: &Fault| matches!(fault, Fault::StoreFull | Fault::StoreSlow);
        let failing = faults.device_errors > 0 || faults.kinds.iter().any(strange);
        // Timeouts of attempts use the clock shared by the servers: when it is set ahead, they are over at
        // once (world 1795400125261268).
        let set_ahead = config.is(Kind::OwnClocks) && faults.kinds.contains(&Fault::ClockJump);
        let silence = |worker: &WorkerConfig| {
            let lease = worker.lease.unwrap_or(LEASE_DETACHED);
            (!worker.attached).then_some(lease.0 * 7 / 10)
        };
        Self {
            silences: config.workers.iter().map(silence).collect(),
            applies: !(config.shared && (failing || set_ahead)),
            shared: config.shared,
            server_started_at: 0,
            named: BTreeMap::new(),
            runs: BTreeMap::new(),
            given: BTreeMap::new(),
            ended_by_deadline: BTreeSet::new(),
            touch: BTreeMap::new(),
        }
    }

    fn is_too_long(&self, worker: usize, last: u64, now: u64) -> bool {
        if !self.shared && self.server_started_at >= last {
            now - self.server_started_at > SILENCE_AFTER_START_MS
        } else {
            now - last > self.silences[worker].unwrap_or(SILENCE_MS)
        }
    }

    /// True if a server with everything in memory has restarted since it gave this attempt, and the worker did not name it in
    /// time. Its answer may have been in transit (world 1795821583782659), or the new server heard only an older
    /// call of this worker, which was delayed (world 1795992835239533).
    fn was_forgotten(&self, id: &AttemptId, given_at: u64) -> bool {
        let in_time = self.server_started_at + SILENCE_AFTER_START_MS;
        !self.shared
            && given_at < self.server_started_at
            && self.named.get(id).is_none_or(|named_at| *named_at > in_time)
    }

    fn hear(&mut self, worker: usize, now: u64) {
        let last = self.touch.entry(worker).or_default().last;
        let silent = self.is_too_long(worker, last, now);
        let touch = self.touch.entry(worker).or_default();
        touch.last = now;
        if silent {
            touch.silent_before = Some(now);
        }
    }

    /// An attempt abandoned because of a silence is lost, even if the server is killed before it hears the
    /// worker again.
    fn note_silences(&mut self, now: u64) {
        let mut touch = std::mem::take(&mut self.touch);
        for (worker, touch) in &mut touch {
            if self.is_too_long(*worker, touch.last, now) {
                touch.silent_before = Some(now);
            }
        }
        self.touch = touch;
    }

    /// Notes the attempts ended by a deadline.
    fn change(&mut self, change: &TaskChange) {
        for event in &change.events {
            if let EventKind::ActFailed { key, attempt, failure } = &event.kind
                && failure.code == DEADLINE_CODE
            {
                self.ended_by_deadline.insert((change.task.id, *key, *attempt));
            }
        }
    }

    fn begin(
        &mut self,
        worker: usize,
        id: &AttemptId,
        truth: &Truth,
        world: &World,
    ) -> Result<(), Violation> {
        let now = world.now();
        let alive =
            |server: usize| world.servers.live(server).is_some() && !world.is_paused(Host::Server(server));
        for run in self.runs.values() {
            let same = run.id.key == id.key && (run.id.attempt, run.id.claim) < (id.attempt, id.claim);
            let undone =
                id.key.direction == Direction::Rollback && run.id.key.direction == Direction::Forward;
            if run.id.task != id.task || !(same || undone) {
                continue;
            }
            let Some(known) = truth.tasks.get(&id.task) else { continue };
            // Two workers have the same attempt, one of them since before a restart, in which a resident
            // store loses its claims: the first report after another one ends it for both.
            let shares =
                |id: &&AttemptId| (id.task, id.key, id.attempt) == (run.id.task, run.id.key, run.id.attempt);
            let follows = undone || id.attempt > run.id.attempt;
            if follows && self.given.keys().filter(shares).count() > 1 {
                continue;
            }
            if self.ended_by_deadline.contains(&(run.id.task, run.id.key, run.id.attempt)) {
                continue;
            }
            let touch = self.touch.get(&run.worker);
            let silent_before =
                touch.and_then(|touch| touch.silent_before).is_some_and(|at| at + LOSS_MS >= run.since);
            let attached = self.silences[run.worker].is_none();
            let heard_now = attached && world.network.is_heard(Host::Worker(run.worker), alive);
            let silent_now =
                !heard_now && self.is_too_long(run.worker, touch.map_or(0, |touch| touch.last), now);
            let given_at = self.given.get(&run.id).copied().unwrap_or(0);
            if self.was_forgotten(&run.id, given_at) {
                continue;
            }
            let timeout = known.task.action(run.id.key).map_or(0, |action| action.timeout.0);
            if silent_before || silent_now || now - given_at + TIMEOUT_NEAR_MS >= timeout {
                continue;
            }
            let message = format!(
                "task {}: worker {worker} begins {:?} attempt {} while worker {}, which is in touch, runs {:?} attempt {}",
                id.task, id.key, id.attempt, run.worker, run.id.key, run.id.attempt
            );
            return Err(broken("leases", id.task, message));
        }
        Ok(())
    }
}

impl Invariant for Leases {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(Change::Task(change)) => self.change(change),
            // Tokens are not valid in another store: workers lose what they run, and what they are about to run because
            // the answer was in transit (world 1796017871427129).
            Seen::Moved(_) => {
                self.runs.clear();
                self.given.clear();
            }
            Seen::ServerKilled => self.note_silences(world.now()),
            Seen::ServerStarted => {
                self.server_started_at = world.now();
                self.named.clear();
            }
            Seen::Named { ids } => ids.iter().for_each(|id| {
                self.named.entry(*id).or_insert(world.now());
            }),
            Seen::InTouch { worker, called } if *called || self.silences[*worker].is_none() => {
                self.hear(*worker, world.now());
            }
            Seen::Given { id, .. } => {
                self.given.entry(*id).or_insert(world.now());
            }
            Seen::WorkerKilled { worker } => self.runs.retain(|_, run| run.worker != *worker),
            Seen::RunEnded { run, .. } => {
                self.runs.remove(run);
            }
            Seen::RunBegan { worker, run, id } => {
                if self.applies {
                    self.begin(*worker, id, truth, world)?;
                }
                if self.given.contains_key(id) {
                    self.runs.insert(*run, Run { worker: *worker, id: *id, since: world.now() });
                }
            }
            _ => {}
        }
        Ok(())
    }
}
