//! A job is published for the task that has the device, while the device is online, and not again while the answer to it
//! waits at the broker for a server that has just come.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{
    Device, LockName, Message, Name, Presence, PresenceRule, TaskId, device_lock, device_of_lock,
};
use windlass_store::{Change, LockChange, RecordChange, RecordKind, memory::Row, stored};

use super::{Invariant, broken, job_of};
use crate::{
    config::Config,
    fleet,
    judge::{Seen, Violation},
    stores::{Answered, MqttEvent, Published},
    truth::Truth,
    world::{Host, World},
};

const NAME: &str = "jobs of devices";

/// A job may be on its way for this long, in milliseconds, in addition to the time of [`OPERATIONS`] of the store: its
/// attempt may have ended meanwhile.
const ON_ITS_WAY_MS: u64 = 10_000;

/// How long a device may be offline on disk before servers know it, in milliseconds, in addition to the same time: they
/// read all devices every 2 s.
const READ_AFTER_MS: u64 = 5_000;

/// Operations of a store in a round of all services, with some retries.
const OPERATIONS: u64 = 60;

pub(super) struct Jobs {
    slack: u64,
    presence_slack: u64,
    /// When each task lost each device.
    lost: BTreeMap<(LockName, TaskId), u64>,
    holders: BTreeMap<LockName, TaskId>,
    /// Tasks from which an operator took a device, and devices whose locks were damaged.
    seized: BTreeSet<(LockName, TaskId)>,
    damaged: BTreeSet<LockName>,
    /// Devices as they are declared, and whether they are online, on disk, with the times of the last changes.
    declared: BTreeMap<Name, (Device, u64)>,
    presences: BTreeMap<Name, (Presence, u64)>,
    answers: BTreeMap<u64, Answered>,
    disturbed_at: u64,
}

impl Jobs {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            slack: ON_ITS_WAY_MS + OPERATIONS * config.faults.device_ms,
            presence_slack: READ_AFTER_MS + OPERATIONS * config.faults.device_ms,
            lost: BTreeMap::new(),
            holders: BTreeMap::new(),
            seized: BTreeSet::new(),
            damaged: BTreeSet::new(),
            declared: BTreeMap::new(),
            presences: BTreeMap::new(),
            answers: BTreeMap::new(),
            disturbed_at: 0,
        }
    }
}

impl Invariant for Jobs {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        // A server that stands still publishes later what it has decided before.
        if (0..world.servers.count()).any(|server| {
            world.is_paused(Host::Server(server)) || world.servers.device(server).is_disturbed(world)
        }) {
            self.disturbed_at = world.now();
        }
        match seen {
            Seen::Written(Change::Lock(change)) => self.change_hands(change, world.now()),
            Seen::Written(Change::Record(change)) => {
                world
                    .tell(|| format!("record {:?} {}: version {}", change.kind, change.name, change.version));
                self.see_record(change, world.now());
            }
            Seen::Damaged(Row::Lock(name)) => drop(self.damaged.insert(name.clone())),
            Seen::ServerResumed | Seen::Recovered => self.disturbed_at = world.now(),
            Seen::Mqtt(MqttEvent::Answered(answered)) => {
                self.answers.insert(answered.number, answered.clone());
            }
            Seen::Mqtt(MqttEvent::Published(published)) => {
                world.count("device: job published");
                let Some(device) = fleet::of_topic(&published.topic).map(fleet::device) else {
                    return Ok(());
                };
                let checked = self
                    .has_device(published, &device, truth, world)
                    .and_then(|()| self.is_online(published, &device, world))
                    .and_then(|()| self.is_heard(published, &device, truth));
                return checked.map_err(|message| {
                    let message =
                        format!("task {}: a job of {device} is published, and {message}", published.task);
                    broken(NAME, published.task, message)
                });
            }
            _ => {}
        }
        Ok(())
    }
}

impl Jobs {
    fn change_hands(&mut self, change: &LockChange, now: u64) {
        let name = &change.lock.name;
        if device_of_lock(name).is_none() {
            return;
        }
        for envelope in &change.messages {
            if let Message::Seized { owner, name, .. } = &envelope.message {
                self.seized.insert((name.clone(), owner.task));
            }
        }
        let holder = change.lock.holder.map(|holder| holder.owner.task);
        let before = match holder {
            Some(task) => self.holders.insert(name.clone(), task),
            None => self.holders.remove(name),
        };
        if let Some(before) = before.filter(|before| holder != Some(*before)) {
            self.lost.insert((name.clone(), before), now);
        }
    }

    fn see_record(&mut self, change: &RecordChange, now: u64) {
        match (change.kind, change.record()) {
            (RecordKind::Device, Some(record)) => {
                if let Ok(device) = stored::read_device(&record.body) {
                    self.declared.insert(change.name.clone(), (device, now));
                }
            }
            (RecordKind::Presence, Some(record)) => {
                if let Ok(presence) = stored::read_presence(&record.body) {
                    self.presences.insert(change.name.clone(), (presence, now));
                }
            }
            (RecordKind::Device, None) => drop(self.declared.remove(&change.name)),
            (RecordKind::Presence, None) => drop(self.presences.remove(&change.name)),
            _ => {}
        }
    }

    /// The task has the device, or lost it so recently that the job was on its way, or to an operator.
    fn has_device(
        &self,
        published: &Published,
        device: &Name,
        truth: &Truth,
        world: &World,
    ) -> Result<(), String> {
        let Some(lock) = device_lock(device) else { return Ok(()) };
        let holder = truth.post.locks.get(&lock).and_then(|lock| lock.holder);
        let has_it = holder.is_some_and(|holder| holder.owner.task == published.task || holder.is_unknown());
        let key = (lock, published.task);
        let since = self.lost.get(&key).map(|at| world.now() - (*at).max(self.disturbed_at));
        let just_lost = since.is_some_and(|since| since <= self.slack);
        if has_it || just_lost || self.seized.contains(&key) || self.damaged.contains(&key.0) {
            return Ok(());
        }
        Err(format!("the device is with {holder:?}; the task lost it {since:?} ms ago"))
    }

    /// The device is online on disk, or has not been offline for long.
    fn is_online(&self, published: &Published, device: &Name, world: &World) -> Result<(), String> {
        // A server may have heard what is not on disk yet.
        let is_connected = world.mqtt.is_connected(&published.topic);
        let Some((declared, at)) = self.declared.get(device).filter(|_| !is_connected) else { return Ok(()) };
        // A message that waited at the broker makes a device with a keep-alive time online when it is heard, before that is on disk.
        if matches!(declared.presence, PresenceRule::Always | PresenceRule::KeepAlive(_)) {
            return Ok(());
        }
        let presence = self.presences.get(device);
        let since = presence.map_or(0, |(_, at)| *at).max(*at).max(self.disturbed_at);
        let is_offline = !declared.is_online(presence.map(|(presence, _)| *presence));
        if is_offline && world.now() - since > self.presence_slack {
            return Err(format!("the device is offline on disk since {since} ms"));
        }
        Ok(())
    }

    /// None of the messages that waited for the server answers this job.
    fn is_heard(&self, published: &Published, device: &Name, truth: &Truth) -> Result<(), String> {
        if job_of(published, truth).is_none() {
            return Ok(());
        }
        let answers = published.unheard.iter().filter_map(|number| self.answers.get(number));
        let mut answers = answers.filter(|answer| {
            (answer.task, &answer.device, answer.attempt) == (published.task, device, Some(published.attempt))
        });
        answers.next().map_or(Ok(()), |answer| Err(format!("this answer to it is not heard: {answer:?}")))
    }
}
