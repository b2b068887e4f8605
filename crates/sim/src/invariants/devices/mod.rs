//! Invariants of devices: who has one, which answers count, and that jobs are published in time and in order.

mod answers;
mod jobs;
mod order;
mod waits;

use windlass_core::{Act, ActKey, ActState, Name, Task, device_of_lock};

use super::{Invariant, broken};
use crate::{config::Config, fleet, kinds::Kind, stores::Published, truth::Truth};

/// All of these invariants; none in a world without devices.
pub(super) fn all(config: &Config) -> Vec<Box<dyn Invariant>> {
    if !config.is(Kind::Devices) {
        return Vec::new();
    }
    vec![
        Box::<answers::Answers>::default(),
        Box::new(jobs::Jobs::new(config)),
        Box::<order::Order>::default(),
        Box::new(waits::Waits::new(config)),
    ]
}

/// The device of an execution, if a device does it and the execution has its lock.
fn device_of(task: &Task, key: ActKey) -> Option<Name> {
    task.action(key)?.device_job()?;
    task.act(key)?.locks().iter().find_map(|lock| device_of_lock(&lock.name))
}

/// The execution that a job is published for, and its attempt, while that runs.
fn job_of(published: &Published, truth: &Truth) -> Option<(ActKey, u32)> {
    let device = fleet::device(fleet::of_topic(&published.topic)?);
    let task = &truth.tasks.get(&published.task)?.task;
    let is_ready = |act: &Act| act.state == ActState::Ready;
    let jobs = task
        .open_acts()
        .filter(|(key, act)| is_ready(act) && device_of(task, *key).as_ref() == Some(&device));
    let mut attempts = jobs.map(|(key, act)| (key, act.attempt));
    attempts.find(|(key, attempt)| task.job_number(*key, *attempt) == published.attempt)
}

/// Whether an attempt runs on disk.
fn runs(task: &Task, key: ActKey, attempt: u32) -> bool {
    task.act(key).is_some_and(|act| act.state == ActState::Ready && act.attempt == attempt)
}
