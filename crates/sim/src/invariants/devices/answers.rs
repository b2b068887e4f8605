//! Each result of a job is what its device answered about that job, as far as the answer says which it is. No answer is
//! acknowledged before what comes of it is on disk.

use std::collections::BTreeMap;

use windlass_core::{ActKey, EventKind, Json, Name, Task, TaskId};
use windlass_store::Change;

use super::{Invariant, broken, device_of, job_of, runs};
use crate::{
    judge::{Seen, Violation},
    stores::{Answered, MqttEvent, Published},
    truth::{Known, Truth},
    world::World,
};

const NAME: &str = "answers of devices";

#[derive(Default)]
pub(super) struct Answers {
    /// The answers by their numbers.
    answers: BTreeMap<u64, Answered>,
    /// The jobs by their numbers.
    jobs: BTreeMap<u64, Job>,
}

/// A job that was published while its attempt ran.
struct Job {
    task: TaskId,
    key: ActKey,
    attempt: u32,
    /// Whether another job of the task ran on the device at the same time, after an operator had unlocked it. An answer
    /// without `attempt` may be about either.
    is_beside: bool,
    /// Whether the server that published it is gone, and with it its claims, which were in memory. An answer without
    /// `attempt` may then be about an earlier job: it has no effect, and the job is published again or times out.
    is_forgotten: bool,
}

impl Invariant for Answers {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Mqtt(MqttEvent::Published(published)) => {
                if let Some((key, attempt)) = job_of(published, truth) {
                    self.published(published, key, attempt, truth);
                }
                Ok(())
            }
            Seen::Mqtt(MqttEvent::Answered(answered)) => {
                self.answers.insert(answered.number, answered.clone());
                Ok(())
            }
            Seen::ServerStarted if !world.config.shared => {
                self.jobs.values_mut().for_each(|job| job.is_forgotten = true);
                Ok(())
            }
            Seen::Mqtt(MqttEvent::Acknowledged(number)) => self.acknowledged(*number, truth, world),
            Seen::Written(Change::Task(change)) => match truth.tasks.get(&change.task.id) {
                Some(known) => self.results(known, world),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

impl Answers {
    fn published(&mut self, published: &Published, key: ActKey, attempt: u32, truth: &Truth) {
        let task = published.task;
        let mut is_beside = false;
        if let Some(known) = truth.tasks.get(&task) {
            let device = device_of(&known.task, key);
            let others = self
                .jobs
                .values_mut()
                .filter(|job| job.task == task && (job.key, job.attempt) != (key, attempt));
            for job in others.filter(|job| runs(&known.task, job.key, job.attempt)) {
                if device_of(&known.task, job.key) == device {
                    (job.is_beside, is_beside) = (true, true);
                }
            }
        }
        self.jobs.insert(published.number, Job { task, key, attempt, is_beside, is_forgotten: false });
    }

    /// The job of an answer has ended on disk when the answer is acknowledged.
    fn acknowledged(&self, number: u64, truth: &Truth, world: &World) -> Result<(), Violation> {
        let Some(answer) = self.answers.get(&number) else { return Ok(()) };
        let Some(job) = answer.job.and_then(|job| self.jobs.get(&job)) else { return Ok(()) };
        if (job.is_beside || job.is_forgotten) && answer.attempt.is_none() {
            return Ok(());
        }
        let Some(known) = truth.tasks.get(&job.task).filter(|_| !truth.is_damaged(job.task)) else {
            return Ok(());
        };
        world.count("device: answer acknowledged");
        // After an unlock an answer without `attempt` counts for the job that has the device then.
        let has_device =
            known.task.act(job.key).is_some_and(|act| act.locks().iter().all(|lock| lock.is_held()));
        if !runs(&known.task, job.key, job.attempt) || !has_device {
            return Ok(());
        }
        let message = format!(
            "task {}: the answer {number} to {:?} attempt {} was acknowledged, and the attempt runs on disk",
            job.task, job.key, job.attempt
        );
        Err(broken(NAME, job.task, message))
    }

    fn results(&self, known: &Known, world: &World) -> Result<(), Violation> {
        let mut task = Task::clone(&known.before);
        for event in &known.events {
            let said = match &event.kind {
                EventKind::ActSucceeded { key, attempt, result } => {
                    Some((*key, *attempt, true, result.as_ref().and_then(number_in)))
                }
                EventKind::ActRetrying { key, attempt, failure, .. }
                | EventKind::ActFailed { key, attempt, failure } => {
                    let number = failure.message.split(' ').next().and_then(|number| number.parse().ok());
                    number.map(|number| (*key, *attempt, false, Some(number)))
                }
                _ => None,
            };
            if let Some((key, attempt, success, number)) = said
                && let Some(device) = device_of(&task, key)
            {
                world.count("device: answer counted");
                let checked = self.check(&task, key, attempt, success, number, &device);
                checked.map_err(|message| {
                    let message =
                        format!("task {}: {key:?} attempt {attempt} of {device}: {message}", task.id);
                    broken(NAME, task.id, message)
                })?;
            }
            windlass_core::evolve(&mut task, event);
        }
        Ok(())
    }

    fn check(
        &self,
        task: &Task,
        key: ActKey,
        attempt: u32,
        success: bool,
        number: Option<u64>,
        device: &Name,
    ) -> Result<(), String> {
        let number = number.ok_or("it succeeded without an answer")?;
        let answer = self.answers.get(&number).ok_or(format!("nobody sent the answer {number}"))?;
        if (answer.task, &answer.device, answer.success) != (task.id, device, success) {
            return Err(format!("its result is {success}, by {answer:?}"));
        }
        let job = answer.job.and_then(|job| self.jobs.get(&job)).filter(|_| answer.attempt.is_some());
        match job {
            Some(job) if (job.key, job.attempt) != (key, attempt) => {
                Err(format!("its result is that of {:?} attempt {}", job.key, job.attempt))
            }
            _ => Ok(()),
        }
    }
}

/// The number of the answer in a result.
fn number_in(result: &Json) -> Option<u64> {
    let result: serde_json::Value = serde_json::from_str(result.as_str()).ok()?;
    result["answer"].as_u64()
}
