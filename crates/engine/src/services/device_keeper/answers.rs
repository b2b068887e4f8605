//! Messages from devices: status, answers to jobs, and everything else, which is kept for searches.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::json;
use windlass_brokers::{BrokerError, DeviceConnection, DeviceMessage};
use windlass_core::{
    Act, ActKey, ActState, Device, Failure, Json, Millis, Name, Outcome, TaskId, check_answered,
    planted::{Bug, is_planted},
};
use windlass_store::{
    AttemptId, Change, JournalEntry, JournalKind, Loaded, Now, Outcome as Committed, Service, SessionId,
};

use super::{
    CATCH_UP_MAX, DeviceKeeper, Hearing, KEPT_BYTES_MAX, RECEIVE_WAIT, ROUND_MAX, STANDBY_PAUSE, State,
    device_of, entry, fence_of_device,
};
use crate::{EngineError, ReportStatus, Said, WorkerReport, services::leading::Led};

/// The subject of messages that name no device.
const UNKNOWN: &str = "unknown";

/// After this number of conflicts of presences in a row a record cannot be read. Before, a device may have been declared again,
/// or another server may have led.
const CONFLICTS_MAX: u32 = 3;

/// The answer of a device to a job.
#[derive(Debug, Deserialize)]
struct Answer {
    uuid: String,
    device: String,
    success: bool,
    #[serde(default)]
    error: Option<serde_json::Value>,
    #[serde(default)]
    attempt: Option<u64>,
    #[serde(default)]
    result: Option<serde_json::Value>,
}

/// An answer, and the job that it is about.
struct Addressed {
    device: Name,
    task: TaskId,
    topic: String,
    answer: Answer,
}

impl DeviceKeeper {
    /// Receives messages and settles the jobs that they answer; then acknowledges them. Returns the pause until the next
    /// call.
    ///
    /// # Errors
    /// When the store fails: the messages come again.
    pub async fn hear_once(&self, clock: impl Fn() -> Now) -> Result<Millis, EngineError> {
        if !self.hears(clock()) {
            return Ok(STANDBY_PAUSE);
        }
        let receive = async || {
            let connection = self.network.connect().await?;
            let messages = connection.receive(ROUND_MAX, RECEIVE_WAIT).await?;
            Ok::<_, BrokerError>((connection, messages))
        };
        let (connection, messages) = match receive().await {
            Ok(received) => received,
            Err(error) => {
                self.has_failed(&error, clock());
                return Ok(STANDBY_PAUSE);
            }
        };
        // The messages may have been waited for.
        let now = clock();
        let heard = match self.engine.leads(Service::Devices, now).filter(|_| self.hears(now)) {
            Some(led) => self.engine.unless_lost(led, self.hear(led, &connection, &messages, now).await),
            None => Ok(false),
        };
        if !matches!(heard, Ok(true)) {
            self.hear_again().await;
        }
        Ok(if heard? { Millis(0) } else { STANDBY_PAUSE })
    }

    /// Whether this server hears devices now.
    fn hears(&self, now: Now) -> bool {
        let led = self.engine.leads(Service::Devices, now);
        let state = self.state();
        let is_ready = state.hears_after.is_none() && state.fleet.is_read() && !state.has_ended;
        led.is_some() && state.led == led && is_ready
    }

    /// Everything that waited at the network was heard over this connection, or this server has heard for long enough.
    fn catch_up(&self, connection: &Arc<dyn DeviceConnection>, is_empty: bool, now: Now) {
        let mut state = self.state();
        let same = state.hearing.take().filter(|hearing| hearing.concerns(connection));
        let mut hearing = same.unwrap_or_else(|| Hearing {
            connection: Arc::downgrade(connection),
            since: now.mono,
            is_caught_up: false,
        });
        let is_long = now.mono.0 >= hearing.since.0.saturating_add(CATCH_UP_MAX.0);
        if !hearing.is_caught_up && (is_empty || is_long) {
            hearing.is_caught_up = true;
            self.stirred.set();
        }
        state.hearing = Some(hearing);
    }

    /// Settles messages. False if they must come again.
    async fn hear(
        &self,
        led: Led,
        connection: &Arc<dyn DeviceConnection>,
        messages: &[DeviceMessage],
        now: Now,
    ) -> Result<bool, EngineError> {
        let (mut changes, mut entries, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        if is_planted(Bug::AnswersAcknowledgedEarly) {
            self.acknowledge(&**connection, messages, now).await;
        }
        let generation;
        {
            let mut state = self.state();
            generation = state.fleet.generation();
            changes.extend(state.fleet.silent(now));
            for message in messages {
                let text = String::from_utf8_lossy(&message.payload);
                let of_topic = state.fleet.of_topic(&message.topic).to_vec();
                let mut subject = of_topic.first().cloned();
                if of_topic.is_empty() {
                    let State { learning, fleet, .. } = &mut *state;
                    learning.hear(&self.learn, &message.topic, &text, |device| fleet.knows(device));
                }
                for device in &of_topic {
                    changes.extend(state.fleet.hear_status(device, &text, now));
                    state.waiting.may_be_online(device);
                }
                if message.topic.ends_with("done") {
                    match read(message) {
                        Ok(addressed) => {
                            subject = Some(addressed.device.clone());
                            answers.push(addressed);
                        }
                        Err((device, error)) => {
                            tracing::warn!(
                                topic = message.topic,
                                error,
                                "an answer of a device cannot be read"
                            );
                            subject = device.or(subject);
                        }
                    }
                }
                if let Some(device) = subject.as_ref().filter(|_| !message.retained) {
                    changes.extend(state.fleet.hear(device, now));
                    state.waiting.may_be_online(device);
                }
                entries.extend(kept(message, subject, now));
            }
        }
        let read_in = self.engine.store.generation();
        self.settle(answers, &mut entries, now).await?;
        self.fire(led, messages, now).await?;
        if !entries.is_empty() {
            changes.push(Change::Journal(entries));
        }
        if !self.commit_presence(led, changes, now).await? && self.hears_again_after_conflict(generation) {
            return Ok(false);
        }
        // A write had failed: the tasks that the answers were compared with may be staged changes that were never written.
        if self.engine.store.generation() != read_in {
            return Ok(false);
        }
        if !is_planted(Bug::AnswersAcknowledgedEarly) {
            self.acknowledge(&**connection, messages, now).await;
        }
        if !messages.is_empty() {
            self.stirred.set();
        }
        self.catch_up(connection, messages.is_empty(), now);
        Ok(true)
    }

    /// A presence was not what this server knew in this state of the store. Whether the same messages are heard again: after too
    /// many conflicts in a row a device has a record that cannot be read, and the others go on.
    fn hears_again_after_conflict(&self, generation: u64) -> bool {
        // The store went back after a failed write: no record needs to be damaged for that.
        if self.engine.store.generation() != generation {
            return true;
        }
        let mut state = self.state();
        state.conflicts = (state.conflicts + 1).min(CONFLICTS_MAX);
        state.conflicts < CONFLICTS_MAX
    }

    /// Acknowledges messages. After an error they come again, and change nothing then.
    async fn acknowledge(&self, connection: &dyn DeviceConnection, messages: &[DeviceMessage], now: Now) {
        let receipts: Vec<u64> = messages.iter().map(|message| message.receipt).collect();
        if !receipts.is_empty()
            && let Err(error) = connection.acknowledge(&receipts).await
        {
            self.has_failed(&error, now);
        }
    }

    /// Commits changes of presence and what goes with them. False if a presence was not what this server knew: all are read
    /// again then.
    pub(super) async fn commit_presence(
        &self,
        led: Led,
        changes: Vec<Change>,
        now: Now,
    ) -> Result<bool, EngineError> {
        if changes.is_empty() {
            return Ok(true);
        }
        let outcomes = self.engine.commit_as(led.lease, changes, now).await?;
        let is_stored = !outcomes.contains(&Committed::Conflict);
        let mut state = self.state();
        if is_stored {
            state.conflicts = 0;
        } else {
            state.fleet.forget_presence();
        }
        Ok(is_stored)
    }

    /// Settles the jobs that are answered. What becomes of each answer is noted in the journal of its device.
    async fn settle(
        &self,
        answers: Vec<Addressed>,
        entries: &mut Vec<JournalEntry>,
        now: Now,
    ) -> Result<(), EngineError> {
        if answers.is_empty() {
            return Ok(());
        }
        let ids: Vec<TaskId> = answers.iter().map(|answer| answer.task).collect();
        let loaded = self.engine.store.load(&ids).await?;
        let tasks: BTreeMap<TaskId, Loaded> =
            ids.iter().zip(loaded).filter_map(|(id, loaded)| Some((*id, loaded?))).collect();
        let (mut reports, mut of_reports) = (Vec::new(), Vec::new());
        for addressed in answers {
            let job = {
                let state = self.state();
                job_of(&addressed, tasks.get(&addressed.task), state.fleet.device(&addressed.device))
            };
            match job {
                Ok(id) => {
                    let outcome = outcome(&addressed.answer);
                    let token = self.engine.tokens.seal(&id);
                    reports.push(WorkerReport { token, said: Ok(Said::Ended(outcome)), logs: Vec::new() });
                    of_reports.push((id, addressed));
                }
                Err((id, why)) => {
                    tracing::info!(device = %addressed.device, task = %addressed.task, why, "an answer has no effect");
                    let more = json!({ "why": why, "answered": addressed.answer.attempt });
                    entries.push(entry(&addressed.device, "ignored", id, now.wall, &more));
                }
            }
        }
        let answers = self.engine.hear_from_afar(reports, now).await?;
        for ((id, addressed), answer) in of_reports.into_iter().zip(answers) {
            let Addressed { device, task, answer: Answer { success, error, .. }, .. } = addressed;
            if answer.status != ReportStatus::Accepted {
                let more = json!({ "why": "the job had ended when it came", "answered": id.attempt });
                entries.push(entry(&device, "ignored", id, now.wall, &more));
                continue;
            }
            // The commit of the answer has written to the log of the device.
            self.state().running.has_ended(&device, &id);
            if !success {
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                tracing::warn!("[Job Execution Error {task} ] device: {device} error: {error}");
            }
        }
        Ok(())
    }
}

/// The job that an answer is about, or why it is about none that is running.
fn job_of(
    addressed: &Addressed,
    loaded: Option<&Loaded>,
    device: Option<&Device>,
) -> Result<AttemptId, (AttemptId, &'static str)> {
    let none = AttemptId { task: addressed.task, key: ActKey::forward(0), attempt: 0, claim: 0 };
    let loaded = loaded.ok_or((none, "there is no such task"))?;
    let task = &loaded.task;
    let jobs = task.acts().filter(|(key, _)| {
        task.action(*key).is_some_and(|action| action.device_job().is_some())
            && (device_of(task, *key).as_ref() == Some(&addressed.device)
                || is_planted(Bug::ForeignAnswerCounts))
    });
    let running: Vec<_> = jobs.into_iter().filter(|(_, act)| act.state == ActState::Ready).collect();
    // A device has one job at a time, because the step holds its lock. Another one goes on if an operator has unlocked the
    // device: then the newest fence has it, of those that were published. One that is claimed for this service only waits
    // for its publish.
    let named = addressed.answer.attempt;
    let is_named = |(key, act): &&(ActKey, &Act)| Some(task.job_number(*key, act.attempt)) == named;
    let is_published = |key: ActKey| {
        let claim = loaded.claims.iter().find(|claim| claim.key == key);
        claim.map(|claim| claim.session == SessionId::AFAR)
    };
    let newest =
        || running.iter().rev().max_by_key(|(key, _)| (is_published(*key), fence_of_device(task, *key)));
    let job = running.iter().find(is_named).or_else(newest);
    let (key, act) = *job.ok_or((none, "the task has no running job of this device"))?;
    let id = AttemptId { key, attempt: act.attempt, ..none };
    let number = match is_planted(Bug::AnswerOfAnotherAttempt) {
        true => named.unwrap_or(0),
        false => task.job_number(key, act.attempt),
    };
    check_answered(device, named, number).map_err(|why| (id, why))?;
    let job = task.action(key).and_then(|action| action.device_job());
    if job.and_then(|job| job.done.as_deref()).is_some_and(|done| done != addressed.topic) {
        return Err((id, "it came on another topic than `done` of the step"));
    }
    match loaded.claims.iter().find(|claim| claim.key == key) {
        Some(claim) => Ok(AttemptId { claim: claim.number, ..id }),
        // A server that died, or whose write failed, had published it: a device knows the number from the message alone.
        None if named == Some(number) => Ok(id),
        None => Err((id, "the job was not published")),
    }
}

fn outcome(answer: &Answer) -> Outcome {
    if answer.success || is_planted(Bug::FailedJobMovesOn) {
        let result = answer.result.as_ref().filter(|result| result.is_object());
        return Outcome::Succeeded(result.and_then(|result| Json::parse(&result.to_string()).ok()));
    }
    let message = match &answer.error {
        Some(serde_json::Value::String(text)) if !text.is_empty() => text.clone(),
        Some(error) if !error.is_null() => error.to_string(),
        _ => "the device reported a failure without an error".to_owned(),
    };
    Outcome::Failed(Failure::new(&message, 1, true))
}

/// An answer, or the device that it names, if any, and what is wrong.
fn read(message: &DeviceMessage) -> Result<Addressed, (Option<Name>, String)> {
    let answer: Answer = serde_json::from_slice(&message.payload)
        .map_err(|error| (None, format!("it is not `{{uuid, device, success, error}}`: {error}")))?;
    let device = Name::new(&answer.device).map_err(|error| (None, format!("`device`: {error}")))?;
    let task = answer
        .uuid
        .parse::<TaskId>()
        .map_err(|_| (Some(device.clone()), "`uuid` is not the id of a task".to_owned()))?;
    Ok(Addressed { device, task, topic: message.topic.clone(), answer })
}

/// The entry that keeps a message for searches.
fn kept(message: &DeviceMessage, subject: Option<Name>, now: Now) -> Option<JournalEntry> {
    let subject = match subject {
        Some(subject) => subject,
        None => Name::new(UNKNOWN).ok()?,
    };
    let kept = &message.payload[..message.payload.len().min(KEPT_BYTES_MAX)];
    let entry = json!({
        "topic": message.topic,
        "payload": String::from_utf8_lossy(kept),
        "bytes": message.payload.len(),
        "retained": message.retained,
    });
    let body = entry.to_string().into_bytes().into();
    Some(JournalEntry { kind: JournalKind::DeviceMessage, subject, at: now.wall, body })
}
