//! Firing: the tasks that a trigger starts.
//!
//! The idempotency key of a task is made of the trigger, what fired it, and the flow. So a server that fires the same
//! instant again, or receives the same request again, starts nothing more.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use windlass_core::{
    Actor, AlarmCommand, AlarmId, AlarmKind, EvaluationBudget, Input, Json, Name, TaskId, Timestamp, Trigger,
    TriggeredFlow,
    planted::{Bug, is_planted},
};
use windlass_store::{Leadership, Now, StoreError, SubmitKey};

use super::{TriggerCause, TriggerEntry, TriggerEntryTask, TriggerOutcome};
use crate::{Accepted, Engine, EngineError, Existing, Submission, services::leading::Led};

/// The maximum number of steps of all expressions of a firing: they are evaluated where requests are answered.
pub(crate) const EVALUATION_STEPS_MAX: u64 = 200_000;

/// The maximum length of a task's parameters, as for other tasks.
const PARAMS_BYTES_MAX: usize = 1 << 20;

/// The label with the name of the trigger.
const TRIGGER_LABEL: &str = "trigger";

/// The label with the instant of the schedule.
const INSTANT_LABEL: &str = "instant";

/// What fires a trigger.
#[derive(Debug, Clone, Copy)]
pub enum Occasion<'a> {
    /// An instant of its schedule.
    Instant(Timestamp),
    /// A request to its address.
    Request {
        /// Its id: a repeated request has the same one.
        id: &'a str,
        /// What it is to have in common with a repeated one.
        fingerprint: [u8; 32],
        /// Its body.
        body: &'a RawValue,
    },
    /// A message.
    Message {
        /// Its id: a message that comes again has the same one.
        id: &'a str,
        /// What expressions read of it, beside `trigger`: members of a JSON object, such as `"body":{}`.
        members: &'a str,
        /// What replaces parameters where the trigger has no `map`.
        params: Option<&'a RawValue>,
    },
    /// An operator.
    Operator {
        /// A new id.
        id: TaskId,
        /// Parameters that replace those of the trigger.
        params: &'a Json,
    },
}

/// A task that a trigger started, or was to start.
#[derive(Debug)]
pub struct TriggerStart {
    /// Its flow.
    pub flow: Name,
    /// The task, and whether it existed already; or why it was refused.
    pub result: Result<(TaskId, Option<Existing>), EngineError>,
}

impl TriggerStart {
    /// Whether the same try can succeed later.
    pub(crate) fn is_postponed(&self) -> bool {
        let later = |error: &EngineError| match error {
            EngineError::Overloaded | EngineError::Conflict => true,
            EngineError::Store(error) => !matches!(error, StoreError::Damaged(_)),
            _ => false,
        };
        self.result.as_ref().is_err_and(later)
    }

    /// Whether an operator must see it. A task with the same unique key is what the flow asks for.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !matches!(self.result, Ok(_) | Err(EngineError::UniqueConflict { .. }))
    }

    pub(crate) fn entry(&self) -> TriggerEntryTask {
        let task = self.result.as_ref().ok().map(|(task, _)| *task);
        let problem = self.result.as_ref().err().map(|error| error.to_string().into());
        TriggerEntryTask { flow: self.flow.clone(), task, problem }
    }
}

impl Engine {
    /// Fires a trigger for a request, a message or an operator. The history records it.
    ///
    /// # Errors
    /// When the parameters cannot be computed, or the store fails; for each flow separately when its task is refused.
    pub async fn fire_trigger(
        &self,
        trigger: &Trigger,
        occasion: Occasion<'_>,
        by: Option<Actor>,
        now: Now,
    ) -> Result<Vec<TriggerStart>, EngineError> {
        let starts = self.start_flows(None, trigger, occasion, now).await?;
        let is_repeated = starts.iter().all(|start| matches!(start.result, Ok((_, Some(_)))));
        if !is_repeated {
            let cause = match occasion {
                Occasion::Operator { .. } => TriggerCause::Operator,
                Occasion::Message { .. } => TriggerCause::Message,
                Occasion::Request { .. } | Occasion::Instant(_) => TriggerCause::Request,
            };
            let tasks = starts.iter().map(TriggerStart::entry).collect();
            let outcome = TriggerOutcome::Fired;
            let entry = TriggerEntry { cause, instant: None, outcome, missed: 0, tasks, by };
            self.note_trigger(None, &trigger.name, &entry, now.wall).await?;
        }
        Ok(starts)
    }

    /// Fires a trigger for the leader of a service. Parameters that cannot be computed are the refusal of their flow.
    ///
    /// # Errors
    /// When the same try can succeed later.
    pub(crate) async fn start_led(
        &self,
        led: Led,
        trigger: &Trigger,
        occasion: Occasion<'_>,
        now: Now,
    ) -> Result<Vec<TriggerStart>, EngineError> {
        let starts = match self.start_flows(led.lease, trigger, occasion, now).await {
            Err(EngineError::TriggerParams { flow, message }) => {
                let error = EngineError::TriggerParams { flow: flow.clone(), message };
                vec![TriggerStart { flow, result: Err(error) }]
            }
            starts => starts?,
        };
        match starts.iter().find(|start| start.is_postponed()) {
            Some(TriggerStart { result: Err(error), .. }) => Err(error.clone()),
            _ => Ok(starts),
        }
    }

    /// Raises an alarm about tasks that were refused, or resolves it. `occasion` is what fired the trigger, as in `at TIME`.
    pub(crate) async fn tell_trigger(
        &self,
        led: Led,
        trigger: &Name,
        starts: &[TriggerStart],
        occasion: &str,
    ) -> Result<(), EngineError> {
        let id = AlarmId::new(AlarmKind::TriggerFailed, TaskId::NONE, Some(trigger));
        let failed = starts.iter().filter(|start| start.is_failure()).map(TriggerStart::entry).next();
        let command = match failed {
            Some(TriggerEntryTask { flow, problem, .. }) => {
                let why = problem.unwrap_or_default();
                let message = format!("trigger {trigger} did not start flow {flow} {occasion}: {why}");
                let (kind, task) = (AlarmKind::TriggerFailed, TaskId::NONE);
                AlarmCommand::Raise { kind, task, step: None, message: message.into() }
            }
            None => AlarmCommand::Resolve { by: None },
        };
        match self.tell_alarm_as(led.lease, id, command).await {
            // There was none to resolve.
            Ok(_) | Err(EngineError::UnknownAlarm(_) | EngineError::AlarmRejected(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Submits the tasks of a trigger, each separately. `led`: the caller is the leader of a service.
    pub(crate) async fn start_flows(
        &self,
        led: Option<Leadership>,
        trigger: &Trigger,
        occasion: Occasion<'_>,
        now: Now,
    ) -> Result<Vec<TriggerStart>, EngineError> {
        let with_id = |submission| (self.ids.next(now.wall), submission);
        let unique = is_planted(Bug::InstantFiredTwice).then(|| self.ids.next(now.wall));
        let submissions = submissions(trigger, occasion, unique, now)?.into_iter().map(with_id).collect();
        let results = self.submit_as(led, submissions).await?;
        let start = |(flow, result): (&TriggeredFlow, Result<Accepted, EngineError>)| TriggerStart {
            flow: flow.flow.clone(),
            result: match result {
                Ok(accepted) => Ok((accepted.loaded.task.id, accepted.existing)),
                // The task was started before; it has ended and been deleted since.
                Err(EngineError::KeyWithoutTask { task }) => Ok((task, Some(Existing::IdempotencyKey))),
                Err(error) => Err(error),
            },
        };
        Ok(trigger.definition.flows.iter().zip(results).map(start).collect())
    }
}

fn submissions(
    trigger: &Trigger,
    occasion: Occasion<'_>,
    unique: Option<TaskId>,
    now: Now,
) -> Result<Vec<Submission>, EngineError> {
    let budget = EvaluationBudget::new(EVALUATION_STEPS_MAX);
    let scope = scope(trigger, &occasion);
    let mut numbers: BTreeMap<&Name, u32> = BTreeMap::new();
    let mut submissions = Vec::with_capacity(trigger.definition.flows.len());
    for flow in &trigger.definition.flows {
        let number = numbers.entry(&flow.flow).and_modify(|number| *number += 1).or_insert(0);
        let params = params(flow, &scope, occasion, &budget)
            .map_err(|message| EngineError::TriggerParams { flow: flow.flow.clone(), message })?;
        let mut labels = flow.labels.clone();
        labels.entry(TRIGGER_LABEL.to_owned()).or_insert_with(|| trigger.name.to_string());
        if let Occasion::Instant(instant) = occasion {
            let instant = || windlass_schedule::rfc3339(instant);
            labels.entry(INSTANT_LABEL.to_owned()).or_insert_with(instant);
        }
        let by = Actor { name: format!("trigger {}", trigger.name).into(), claimed: false };
        let input = Input { labels, priority: flow.priority, by: Some(by), ..Input::new(params, now.wall) };
        let key = key(trigger, occasion, (&flow.flow, *number), unique);
        submissions.push(Submission {
            flow: flow.flow.clone(),
            version: None,
            input,
            key: Some(key),
            fingerprint_before: None,
        });
    }
    Ok(submissions)
}

/// The parameters of a task.
fn params(
    flow: &TriggeredFlow,
    scope: &Json,
    occasion: Occasion<'_>,
    budget: &EvaluationBudget,
) -> Result<Json, String> {
    let mut own = vec![flow.params.clone()];
    let body = match occasion {
        Occasion::Request { body, .. } => Some(body),
        Occasion::Message { params, .. } => params,
        Occasion::Instant(_) | Occasion::Operator { .. } => None,
    };
    if let Some(body) = body.filter(|_| flow.map.is_empty()) {
        own.push(Json::from_raw(body).map_err(|error| {
            format!("the body cannot be the parameters: {error}; compute them with `map`")
        })?);
    }
    // The parameters of requests and messages come from these. An operator has none, and gives the parameters.
    if !matches!(occasion, Occasion::Operator { .. }) && !flow.map.is_empty() {
        let mut mapped = String::from("{");
        for (index, (name, expression)) in flow.map.iter().enumerate() {
            let separator = if index > 0 { "," } else { "" };
            let value = expression.json_within(scope, budget)?;
            mapped += &format!("{separator}{}:{value}", serde_json::Value::from(name.as_str()));
            if mapped.len() > PARAMS_BYTES_MAX {
                return Err(format!("the mapped parameters have more than {PARAMS_BYTES_MAX} bytes"));
            }
        }
        mapped.push('}');
        own.push(Json::parse(&mapped).map_err(|error| error.to_string())?);
    }
    if let Occasion::Operator { params, .. } = occasion {
        own.push(params.clone());
    }
    Ok(Json::merge(&own))
}

/// What the expressions of `map` are over.
pub(crate) fn scope(trigger: &Trigger, occasion: &Occasion<'_>) -> Json {
    let name = serde_json::Value::from(trigger.name.as_str());
    Json::from_stored(&match occasion {
        Occasion::Instant(instant) => {
            let instant = windlass_schedule::rfc3339(*instant);
            format!(r#"{{"trigger":{{"name":{name},"instant":"{instant}"}}}}"#)
        }
        Occasion::Request { id, body, .. } => {
            let (id, body) = (serde_json::Value::from(*id), body.get());
            format!(r#"{{"trigger":{{"name":{name},"id":{id}}},"body":{body}}}"#)
        }
        Occasion::Message { id, members, .. } => {
            let id = serde_json::Value::from(*id);
            format!(r#"{{"trigger":{{"name":{name},"id":{id}}},{members}}}"#)
        }
        Occasion::Operator { .. } => format!(r#"{{"trigger":{{"name":{name}}}}}"#),
    })
}

/// The idempotency key of a task. `number` differs for tasks of one flow. `unique` makes it another key each time: a
/// planted bug.
fn key(
    trigger: &Trigger,
    occasion: Occasion<'_>,
    (flow, number): (&Name, u32),
    unique: Option<TaskId>,
) -> SubmitKey {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    add(b"trigger");
    add(trigger.name.as_bytes());
    add(flow.as_bytes());
    add(&number.to_be_bytes());
    let fingerprint = match occasion {
        Occasion::Instant(instant) => {
            add(b"instant");
            add(&instant.0.to_be_bytes());
            [0; 32]
        }
        Occasion::Request { id, fingerprint, .. } => {
            add(b"request");
            add(id.as_bytes());
            fingerprint
        }
        Occasion::Message { id, .. } => {
            add(b"message");
            add(id.as_bytes());
            [0; 32]
        }
        Occasion::Operator { id, .. } => {
            add(b"operator");
            add(&id.to_bytes());
            [0; 32]
        }
    };
    if let Some(unique) = unique {
        add(&unique.to_bytes());
    }
    SubmitKey { scope: hash.finalize().into(), fingerprint }
}
