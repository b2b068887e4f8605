//! A job is published in time: no attempt waits longer than a bound while its step has the device, the device is declared and
//! online, and no fault affects servers, stores and the broker. No job is made again whose device has answered in time.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, ActState, Free, Name, TaskId, when_free};
use windlass_store::{Change, RecordKind};

use super::{Invariant, broken, device_of, job_of, runs};
use crate::{
    config::Config,
    fleet,
    judge::{Seen, Violation},
    stores::{Answered, MqttEvent},
    truth::Truth,
    world::{Host, World},
};

const NAME: &str = "waiting jobs";

/// How long a job may wait, and an answer may be unheard, in milliseconds, in addition to the time of [`OPERATIONS`] of the
/// store: another server takes over after its lease has ended, and devices are read again.
const BOUND_MS: u64 = 20_000;

/// Operations of the store in a round of all services, with some retries.
const OPERATIONS: u64 = 100;

/// The interval of the checks, in milliseconds.
const LOOK_EVERY_MS: u64 = 100;

/// An attempt of a job.
type Job = (TaskId, ActKey, u32);

pub(super) struct Waits {
    bound: u64,
    /// Attempts that were published.
    published: BTreeSet<Job>,
    /// The devices of jobs, and since when they could have been published.
    waiting: BTreeMap<Job, (Name, u64)>,
    /// Jobs by number, and answers to running attempts, with the times when they came.
    jobs: BTreeMap<u64, Job>,
    answered: BTreeMap<Job, u64>,
    /// The devices that are declared.
    declared: BTreeSet<Name>,
    /// A server has connected since the broker was empty.
    is_subscribed: bool,
    disturbed_at: u64,
    looked_at: u64,
}

impl Waits {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            bound: BOUND_MS + OPERATIONS * config.faults.device_ms,
            published: BTreeSet::new(),
            waiting: BTreeMap::new(),
            jobs: BTreeMap::new(),
            answered: BTreeMap::new(),
            declared: BTreeSet::new(),
            is_subscribed: false,
            disturbed_at: 0,
            looked_at: 0,
        }
    }
}

impl Invariant for Waits {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        let now = world.now();
        match seen {
            Seen::Mqtt(MqttEvent::Published(published)) => {
                if let Some((key, attempt)) = job_of(published, truth) {
                    let job = (published.task, key, attempt);
                    self.published.insert(job);
                    self.waiting.remove(&job);
                    self.jobs.insert(published.number, job);
                }
            }
            // Until a server has connected, a broker that has lost everything keeps nothing for it.
            Seen::Mqtt(MqttEvent::Answered(Answered { job: Some(job), .. })) if self.is_subscribed => {
                let goes_on = |(id, key, attempt): &&Job| {
                    truth.tasks.get(id).is_some_and(|known| runs(&known.task, *key, *attempt))
                };
                // A second answer may come after the end of the task.
                if let Some(job) = self.jobs.get(job).filter(goes_on) {
                    self.answered.entry(*job).or_insert(now);
                }
            }
            Seen::Mqtt(MqttEvent::Wiped) => {
                self.answered.clear();
                (self.is_subscribed, self.disturbed_at) = (false, now);
            }
            Seen::Written(Change::Record(change)) if change.kind == RecordKind::Device => {
                match change.body.is_some() {
                    true => drop(self.declared.insert(change.name.clone())),
                    false => drop(self.declared.remove(&change.name)),
                }
            }
            Seen::Written(Change::Task(change)) => {
                let task = &change.task;
                let goes_on = |(id, key, attempt): &Job| *id != task.id || runs(task, *key, *attempt);
                self.waiting.retain(|job, _| goes_on(job));
                self.answered.retain(|job, _| goes_on(job));
                for (key, act) in task.open_acts().filter(|(_, act)| act.state == ActState::Ready) {
                    let job = (task.id, key, act.attempt);
                    let Some(device) = device_of(task, key) else { continue };
                    if !self.published.contains(&job) {
                        self.waiting.entry(job).or_insert((device, now));
                    }
                }
            }
            // A server that comes hears first.
            Seen::Mqtt(MqttEvent::Connected) => (self.is_subscribed, self.disturbed_at) = (true, now),
            Seen::ServerStarted
            | Seen::ServerKilled
            | Seen::ServerResumed
            | Seen::Recovered
            | Seen::Moved(_)
            | Seen::Left(_) => self.disturbed_at = now,
            _ => {}
        }
        if now < self.looked_at + LOOK_EVERY_MS {
            return Ok(());
        }
        self.looked_at = now;
        self.look(truth, world)
    }
}

impl Waits {
    fn look(&mut self, truth: &Truth, world: &World) -> Result<(), Violation> {
        let now = world.now();
        let runs =
            |server: usize| world.servers.live(server).is_some() && !world.is_paused(Host::Server(server));
        let fails = !world.is_calm() && world.config.faults.device_errors > 0;
        if fails || world.mqtt.is_down() || !(0..world.servers.count()).all(runs) {
            self.disturbed_at = now;
        }
        let devices =
            (0..world.servers.count()).map(|server| world.servers.device(server).disturbed_at(world));
        self.disturbed_at = devices.fold(self.disturbed_at, u64::max);
        for ((task, key, attempt), (device, since)) in &mut self.waiting {
            let index = device.as_str().trim_start_matches('d').parse().unwrap_or(usize::MAX);
            let is_online = world.mqtt.is_connected(&fleet::jobs(index));
            let known = truth.tasks.get(task).filter(|_| !truth.is_damaged(*task));
            let is_free = known.is_some_and(|known| {
                when_free(&known.task, *key) == Free::HandOut
                    && known.task.act(*key).is_some_and(|act| act.locks().iter().all(|lock| lock.is_held()))
            });
            // The jobs of a device that was removed wait until it is declared again.
            if !is_online || !is_free || !self.declared.contains(device) {
                *since = now;
            }
            let waited = now - (*since).max(self.disturbed_at);
            if waited > self.bound {
                let message = format!(
                    "task {task}: {key:?} attempt {attempt} waits for {waited} ms to be published, and {device} is online"
                );
                return Err(broken(NAME, *task, message));
            }
        }
        for ((task, key, attempt), at) in &self.answered {
            let waited = now - (*at).max(self.disturbed_at);
            if waited > self.bound && !truth.is_damaged(*task) {
                let message = format!(
                    "task {task}: the answer to {key:?} attempt {attempt} is unheard for {waited} ms"
                );
                return Err(broken(NAME, *task, message));
            }
        }
        Ok(())
    }
}
