//! A device: it gets jobs over MQTT, does one after another, and answers. It may go offline in the middle, and it may lie.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use serde_json::{Value, json};
use windlass_core::{Name, PresenceRule, TaskId};
use windlass_store::Signal;

use crate::{
    fleet::{self, DeviceConfig},
    stores::{Answered, job_of},
    world::World,
};

/// The longest time until a device connects again, in milliseconds: in general, at times, and while the world is calm.
const OFFLINE_MS: u64 = 3_000;
const OFFLINE_LONG_MS: u64 = 30_000;
const OFFLINE_CALM_MS: u64 = 300;

/// The longest time until the broker notices that a device is gone, in milliseconds.
const LAST_WILL_MS: u64 = 3_000;

/// The interval of looks at the connection, in milliseconds.
const LOOK_EVERY_MS: u64 = 1_000;

/// The interval of measurements, in milliseconds: shorter than a server waits for messages.
const CHATTERS_EVERY_MS: u64 = 300;

/// The longest time that a job takes, in milliseconds: in general and while the world is calm.
const JOB_MS: u64 = 1_000;
const JOB_CALM_MS: u64 = 50;

/// How long after the end of the settle time a late answer may come, in milliseconds.
const LATE_MS: u64 = 3_000;

/// An answer to a job.
#[derive(Clone)]
struct Answer {
    device: Name,
    task: TaskId,
    attempt: Option<u64>,
    error: Option<&'static str>,
    /// The number of the job, if this is true of it.
    job: Option<u64>,
}

/// A device.
struct FieldDevice {
    world: Rc<World>,
    index: usize,
    config: DeviceConfig,
    /// What it has answered to jobs, by task and attempt.
    done: BTreeMap<(TaskId, u64), Answer>,
    /// Answers that did not arrive.
    unsent: Vec<Answer>,
    /// Tasks that it has had jobs of.
    tasks: Vec<TaskId>,
    beat_at: u64,
}

/// Lives as long as the world exists.
pub(super) async fn live(world: Rc<World>, index: usize) {
    let config = world.config.fleet.devices[index].clone();
    let (done, unsent, tasks) = (BTreeMap::new(), Vec::new(), Vec::new());
    let mut device = FieldDevice { world, index, config, done, unsent, tasks, beat_at: 0 };
    loop {
        let world = device.world.clone();
        let most = match world.is_calm() {
            true => OFFLINE_CALM_MS,
            false if world.chance(250) => OFFLINE_LONG_MS,
            false => OFFLINE_MS,
        };
        world.sleep(world.below(most)).await;
        let arrived = world.mqtt.connect_device(&fleet::jobs(index), device.config.is_kept);
        if let Some(arrived) = arrived {
            world.count("device: connected");
            device.stay(arrived).await;
        }
    }
}

impl FieldDevice {
    /// Works until it loses the connection, or goes offline.
    async fn stay(&mut self, arrived: Arc<Signal>) {
        let world = self.world.clone();
        let until = self.config.online_ms.map(|most| world.now() + world.within(200..=most.max(200)));
        let is_to_leave = || until.is_some_and(|until| world.now() >= until) && !world.is_calm();
        let topic = fleet::jobs(self.index);
        let pause = if self.config.chatters { CHATTERS_EVERY_MS } else { LOOK_EVERY_MS };
        self.tell_status("online");
        self.beat_at = 0;
        while world.mqtt.is_connected(&topic) {
            if is_to_leave() {
                return self.leave();
            }
            self.beat();
            self.send();
            if self.config.chatters {
                world.mqtt.hear(&format!("d{}/measured", self.index), "21".to_owned(), false, None);
            }
            match world.mqtt.take_job(&topic) {
                Some((number, job)) => self.work(number, &job).await,
                None => drop(world.at_most(pause, arrived.wait()).await),
            }
        }
    }

    /// Goes offline: in good order, or so that the broker notices it later. It may lose what it has in memory.
    fn leave(&mut self) {
        let world = &self.world;
        world.mqtt.disconnect_device(&fleet::jobs(self.index));
        if world.chance(300) {
            world.count("device: offline");
            self.tell_status("offline");
        } else {
            world.count("device: lost");
            let (index, is_watched) = (self.index, self.is_watched());
            world.after(world.below(LAST_WILL_MS), "last will", move |world| {
                let is_back = world.mqtt.is_connected(&fleet::jobs(index));
                if is_watched && !is_back {
                    world.mqtt.hear(&fleet::status(index), "offline".to_owned(), true, None);
                }
            });
        }
        if world.chance(300) {
            world.count("device: forgot everything");
            self.done.clear();
            self.unsent.clear();
        }
    }

    fn is_watched(&self) -> bool {
        matches!(self.config.presence, PresenceRule::Topic { .. })
    }

    fn tell_status(&self, status: &str) {
        if self.is_watched() {
            self.world.tell(|| format!("device d{} is {status}", self.index));
            self.world.mqtt.hear(&fleet::status(self.index), status.to_owned(), true, None);
        }
    }

    /// A device that is watched by its messages sends one from time to time.
    fn beat(&mut self) {
        let PresenceRule::KeepAlive(span) = self.config.presence else { return };
        if self.world.now() >= self.beat_at {
            self.beat_at = self.world.now() + span.0 / 3;
            let beat = json!({ "uuid": "none", "device": fleet::device(self.index), "success": true });
            self.world.mqtt.hear(&fleet::answers(self.index), beat.to_string(), false, None);
        }
    }

    /// Does a job, and answers, or not, or wrongly.
    async fn work(&mut self, number: u64, payload: &str) {
        let world = self.world.clone();
        let Some((task, attempt)) = job_of(payload) else { return };
        world.tell(|| format!("task {task}: device d{} gets attempt {attempt}", self.index));
        if let Some(answer) = self.done.get(&(task, attempt)).filter(|_| self.config.remembers) {
            world.count("device: a job again");
            self.unsent.push(answer.clone());
            return;
        }
        self.tasks.push(task);
        let args: Value = serde_json::from_str(payload).unwrap_or_default();
        let time = |name: &str| args[name].as_u64().unwrap_or(0);
        let (calm, config) = (world.is_calm(), self.config.clone());
        let happens = |rate: u64| !calm && world.chance(rate);
        if happens(config.silent) {
            return world.count("device: says nothing");
        }
        let takes = match calm {
            true => world.below(JOB_CALM_MS),
            false if happens(config.late) => {
                world.count("device: late");
                time("timeout") + world.below(time("settle") + LATE_MS)
            }
            false => world.below(JOB_MS),
        };
        world.sleep(takes).await;
        world.count("device: answers");
        let fails = world.chance(if calm { config.fails / 4 } else { config.fails });
        let answer = Answer {
            device: fleet::device(self.index),
            task,
            attempt: config.echoes.then_some(attempt),
            error: fails.then_some("no"),
            job: Some(number),
        };
        // In a calm world a lie is followed by the answer, so that every task ends.
        if world.chance(if calm { config.lies / 2 } else { config.lies }) {
            self.lie(&answer, attempt);
            if happens(300) {
                return;
            }
        }
        self.done.insert((task, attempt), answer.clone());
        self.unsent.push(answer.clone());
        if world.chance(100) {
            world.count("device: answers twice");
            self.unsent.push(answer);
        }
    }

    /// Sends something that does not answer the job.
    fn lie(&mut self, answer: &Answer, attempt: u64) {
        let world = self.world.clone();
        let mut lie = Answer { job: None, ..answer.clone() };
        match world.below(7) {
            0 => {
                world.count("device: lies about the task");
                let other = world.judge.borrow().truth.any_task(&world).map(|task| task.id);
                lie.task = other.unwrap_or(TaskId(1));
            }
            1 => {
                world.count("device: lies about the task of before");
                lie.task = world.choose(&self.tasks).copied().unwrap_or(TaskId(1));
            }
            2 => {
                world.count("device: lies about its name");
                let other = world.below(world.config.fleet.devices.len() as u64 + 1);
                lie.device = fleet::device(usize::try_from(other).unwrap_or(0));
            }
            3 => {
                world.count("device: lies about the attempt");
                lie.attempt = Some(if world.chance(500) { attempt + 1 } else { attempt.saturating_sub(1) });
            }
            4 => {
                world.count("device: leaves the attempt out");
                lie.attempt = None;
            }
            5 => {
                world.count("device: changes its mind");
                lie.error = if lie.error.is_some() { None } else { Some("changed") };
            }
            _ => {
                world.count("device: sends junk");
                let junk =
                    ["", "done", "{", "{\"uuid\":7}", "[]", "{\"uuid\":\"\",\"device\":\"\",\"success\":1}"];
                let junk = world.choose(&junk).copied().unwrap_or_default();
                world.mqtt.hear(&fleet::answers(self.index), junk.to_owned(), false, None);
                return;
            }
        }
        self.unsent.push(lie);
    }

    /// Publishes answers, as far as the broker takes them.
    fn send(&mut self) {
        let world = self.world.clone();
        while !self.unsent.is_empty() && !world.mqtt.is_down() {
            let answer = self.unsent.remove(0);
            let (number, topic) = (world.mqtt.number(), fleet::answers(self.index));
            let success = answer.error.is_none();
            let mut said =
                json!({ "uuid": answer.task.to_string(), "device": answer.device, "success": success });
            if let Some(attempt) = answer.attempt {
                said["attempt"] = attempt.into();
            }
            // What comes of an answer shows which one it was.
            match answer.error {
                Some(error) => said["error"] = format!("{number} {error}").into(),
                None => said["result"] = json!({ "answer": number }),
            }
            world.tell(|| format!("task {}: device d{} answers {said}", answer.task, self.index));
            let Answer { device, task, attempt, job, .. } = answer;
            let answered = Answered { number, device, task, attempt, success, job };
            world.mqtt.hear(&topic, said.to_string(), false, Some(answered));
        }
    }
}
