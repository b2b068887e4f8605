//! From the engine's answer to the document, written from where its parts are.

use serde::Serialize;
use serde_json::value::RawValue;
use windlass_api as api;
use windlass_core::{Direction, HeldLock, Json};
use windlass_engine::{
    ExchangeAnswer, HandedOut, ReportAnswer, ReportStatus, Results, effect_key, rolled_back_key,
};

use crate::http::{answer::problem::Refused, tasks::view};

/// [`api::ExchangeAnswer`], written from where its parts are.
#[derive(Debug, Serialize)]
pub(super) struct AnswerBody<'a> {
    attempts: Vec<AttemptBody<'a>>,
    reports: Vec<ReportAnswerBody<'a>>,
    cancels: &'a [String],
    lease_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll: Option<u64>,
}

/// [`api::Attempt`], written from where its parts are.
#[derive(Debug, Serialize)]
struct AttemptBody<'a> {
    token: &'a str,
    task: String,
    flow: &'a str,
    step: &'a str,
    cursor: usize,
    direction: api::Direction,
    attempt: u32,
    module: &'a str,
    command: &'a str,
    params: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    results: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    results_omitted: bool,
    timeout_ms: u64,
    idempotency_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward_idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    locks: Vec<api::AttemptLock>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exclusive: Option<api::AttemptLock>,
}

/// [`api::ReportAnswer`], written from where its parts are.
#[derive(Debug, Serialize)]
struct ReportAnswerBody<'a> {
    token: &'a str,
    status: api::ReportStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

impl<'a> AnswerBody<'a> {
    pub(super) fn of(answer: &'a ExchangeAnswer) -> Result<Self, Refused> {
        Ok(Self {
            attempts: answer.attempts.iter().map(AttemptBody::of).collect::<Result<_, _>>()?,
            reports: answer.reports.iter().map(ReportAnswerBody::of).collect(),
            cancels: &answer.cancels,
            lease_ms: answer.lease.0,
            poll: answer.poll,
        })
    }
}

impl<'a> AttemptBody<'a> {
    fn of(handed_out: &'a HandedOut) -> Result<Self, Refused> {
        let HandedOut { token, id, task, params, results, traceparent } = handed_out;
        let (Some(action), Some(step)) = (task.action(id.key), task.flow.steps.get(id.key.step)) else {
            return Err(Refused::fault("an attempt was handed out of a step that its flow does not have"));
        };
        let Some((module, command)) = action.worker() else {
            return Err(Refused::fault("an attempt was handed out that no worker does"));
        };
        let is_rollback = id.key.direction == Direction::Rollback;
        Ok(Self {
            token,
            task: task.id.to_string(),
            flow: &task.flow.name,
            step: &step.name,
            cursor: id.key.step,
            direction: view::direction(id.key.direction),
            attempt: id.attempt,
            module,
            command,
            params: raw(params)?,
            results: match results {
                Results::These(results) => Some(raw(results)?),
                Results::None | Results::TooLarge => None,
            },
            results_omitted: *results == Results::TooLarge,
            timeout_ms: task.time_allowed(id.key).unwrap_or(action.timeout).0,
            idempotency_key: effect_key(task, id.key),
            forward_idempotency_key: rolled_back_key(task, id.key),
            error: if is_rollback { task.message() } else { None },
            result: task.done_by(id.key).filter(|_| is_rollback).map(raw).transpose()?,
            traceparent: traceparent.as_deref(),
            locks: task
                .act(id.key)
                .map(|act| act.locks().iter().filter_map(lock).collect())
                .unwrap_or_default(),
            exclusive: view::exclusive(task),
        })
    }
}

fn lock(lock: &HeldLock) -> Option<api::AttemptLock> {
    Some(api::AttemptLock { name: lock.name.to_string(), fence: lock.fence? })
}

fn raw(json: &Json) -> Result<&RawValue, Refused> {
    serde_json::from_str(json.as_str())
        .map_err(|error| Refused::fault(format!("a stored payload is not valid JSON: {error}")))
}

impl<'a> ReportAnswerBody<'a> {
    fn of(answer: &'a ReportAnswer) -> Self {
        let (status, detail) = match &answer.status {
            ReportStatus::Accepted => (api::ReportStatus::Accepted, None),
            ReportStatus::Duplicate => (api::ReportStatus::Duplicate, None),
            ReportStatus::Stale => (api::ReportStatus::Stale, None),
            ReportStatus::Unknown => (api::ReportStatus::Unknown, None),
            ReportStatus::Invalid(detail) => (api::ReportStatus::Invalid, Some(detail.as_str())),
        };
        Self { token: &answer.token, status, detail }
    }
}
