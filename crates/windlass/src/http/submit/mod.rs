//! `POST /v1/tasks`: takes a task in.

mod adhoc;
pub(super) mod batch;
mod canonical;
pub(super) mod enqueued;
mod envelope;
pub(super) mod idempotency;
pub(crate) mod intake;
pub(super) mod rerun;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;
use windlass_api as api;
use windlass_core::{Flow, Input, Json, Millis, Name, PRIORITY_MAX, SPAN_MAX, Timestamp};
use windlass_engine::{Accepted, Submission};
use windlass_store::Now;

use crate::http::{
    App,
    answer::{json_response, problem::Refused},
    flows,
    request::{self, Caller, JsonBody, PARAMS_BYTES_MAX, SUBMIT_BYTES_MAX, bytes_in_words},
    submit::{
        adhoc::Workflow,
        idempotency::{IdempotencyKey, Keyed},
    },
    tasks::{
        view::{self, Overlay},
        wait::{self, PreferredWait},
    },
};
use crate::{chain, flowfile::FlowError};

/// Labels a task may have.
const LABELS_MAX: usize = 16;

/// The longest name or value of a label, in bytes.
pub(crate) const LABEL_BYTES_MAX: usize = 128;

/// [`api::SubmitTask`] as it lies in the body: the hot path copies nothing that it does not keep.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitBody<'a> {
    #[serde(borrow, default)]
    flow: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    steps: Option<&'a RawValue>,
    #[serde(borrow, default)]
    on_error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    on_failure: Option<&'a RawValue>,
    #[serde(borrow, default)]
    retry_by: Option<&'a RawValue>,
    #[serde(borrow, default)]
    unique: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "start_time")]
    at: Option<jiff::Timestamp>,
    #[serde(default)]
    priority: Option<i64>,
    #[serde(default)]
    deadline: Option<api::Span>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(borrow, default)]
    traceparent: Option<Cow<'a, str>>,
}

fn start_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<jiff::Timestamp>, D::Error> {
    let Some(text) = Option::<Cow<'de, str>>::deserialize(deserializer)? else { return Ok(None) };
    let hint =
        |_| de::Error::custom(format!("invalid time {text:?}: write for example 2030-01-31T08:00:00Z"));
    text.parse().map(Some).map_err(hint)
}

/// Accepts a task: when this is answered it is on disk. It runs a flow of the catalogue, or brings its steps along.
///
/// With `Prefer: wait=n` the answer waits up to n seconds (60 at most) for the task's end. A request repeated under
/// the same idempotency key returns the task of the first one with status 200, and so does one whose unique key another
/// task has. The field `existing` and the header `Windlass-Existing` say why no task was started.
#[utoipa::path(
    post,
    path = "/v1/tasks", operation_id = "submit_task",
    tag = "tasks",
    request_body = api::SubmitTask,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "The same thing as `key` in the body; at most 255 bytes"),
        ("Prefer" = Option<String>, Header, description = "`wait=n`: wait up to n seconds for the end"),
        ("Windlass-Actor" = Option<String>, Header, description = "Who submits, for the history"),
        ("traceparent" = Option<String>, Header, description = "W3C trace context, the same thing as `traceparent` in the body"),
    ),
    responses(
        (status = 202, description = "Accepted: a new task", body = api::Task,
            headers(("Location" = String), ("Retry-After" = u32))),
        (status = 200, description = "No task was started, because one exists with this idempotency key or the same unique key: `existing` says which; or the new task has ended within the time it was waited for", body = api::Task,
            headers(("Location" = String), ("Windlass-Existing" = String), ("Preference-Applied" = String))),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown flow", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "The flow says `on_conflict: fail`, and another task has the unique key", body = api::Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = api::Problem, content_type = "application/problem+json"),
        (status = 415, description = "Not JSON", body = api::Problem, content_type = "application/problem+json"),
        (status = 422, description = "The key was used with another body", body = api::Problem, content_type = "application/problem+json"),
        (status = 429, description = "Too much is waiting", body = api::Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store is not available, or too much is being sent at once", body = api::Problem, content_type = "application/problem+json"),
        (status = 507, description = "The store is full", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn submit(
    State(app): State<Arc<App>>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    PreferredWait(wait): PreferredWait,
    JsonBody(text): JsonBody<SUBMIT_BYTES_MAX>,
) -> Result<Response, Refused> {
    let prepared = text.parse::<SubmitBody<'_>>()?.prepare(text.as_str(), key.as_deref(), &caller)?;
    let submission = prepared.store_flow(&app, caller.now).await?;
    let accepted = match app.engine.submit(submission, caller.now).await {
        Ok(accepted) => accepted,
        Err(error) => return Err(flows::with_versions(&app, error).await),
    };
    app.metrics.submitted(accepted.existing.is_some());
    match wait {
        None => answer(&app, &accepted, None).await,
        Some(seconds) => {
            let loaded = wait::wait_for_end(&app, accepted.loaded.task.id, seconds).await?;
            answer(&app, &Accepted { loaded, ..accepted }, Some(seconds)).await
        }
    }
}

/// The header that says why an existing task is returned.
const EXISTING: HeaderName = HeaderName::from_static("windlass-existing");

/// The task that was accepted, and where it is. The status is 202 where a new task was started and has not ended within
/// the time it was waited for, and 200 otherwise.
pub(in crate::http) async fn answer(
    app: &App,
    accepted: &Accepted,
    waited: Option<u64>,
) -> Result<Response, Refused> {
    let loaded = &accepted.loaded;
    let ended = waited.is_some() && loaded.task.is_ended();
    let existing = accepted.existing.map(view::existing);
    let status = if ended || existing.is_some() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let document = api::Task { existing, ..view::task(loaded, &Overlay::of(app, loaded).await?) };
    let mut response = json_response(status, &document);
    let headers = response.headers_mut();
    let location = format!("/v1/tasks/{}", document.id);
    headers.extend(HeaderValue::try_from(location).map(|location| (header::LOCATION, location)));
    if let Some(existing) = existing {
        headers.insert(EXISTING, HeaderValue::from_static(existing.as_str()));
    }
    if status == StatusCode::ACCEPTED {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if let Some(seconds) = waited {
        let applied = HeaderValue::try_from(format!("wait={seconds}"));
        headers.extend(applied.map(|applied| (HeaderName::from_static("preference-applied"), applied)));
    }
    Ok(response)
}

/// A task that was looked at, and the flow that it brings along.
pub(crate) struct Prepared {
    submission: Submission,
    flow: Option<Flow>,
}

impl Prepared {
    /// The submission, once the flow it brings along is in the catalogue.
    pub(crate) async fn store_flow(self, app: &App, now: Now) -> Result<Submission, Refused> {
        let Some(flow) = self.flow else { return Ok(self.submission) };
        if let Some(bad) = chain::check(&app.engine, &flow).await? {
            let message = format!("{}: {}", bad.path(), bad.message);
            return Err(FlowError::new(message).into());
        }
        let applied = app.engine.apply_flow(flow, now).await?;
        Ok(Submission { version: Some(applied.stored.flow.version), ..self.submission })
    }
}

impl<'a> SubmitBody<'a> {
    /// Reads a task that is not a body by itself, within the same limit.
    pub(in crate::http) fn read(text: &'a str) -> Result<Self, Refused> {
        if text.len() > SUBMIT_BYTES_MAX {
            let most = bytes_in_words(SUBMIT_BYTES_MAX);
            return Err(Refused::too_large(format!(
                "the task has {} bytes, and may have {most}",
                text.len()
            )));
        }
        request::parse(text)
    }

    /// Whether it has an idempotency key.
    pub(in crate::http) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Checks what the types do not say, and that the caller may start the flow. `text` is the document; `key` the idempotency key that came beside it.
    pub(crate) fn prepare(self, text: &str, key: Option<&str>, caller: &Caller) -> Result<Prepared, Refused> {
        let workflow = self.workflow();
        let (name, version, flow) = match &self.flow {
            Some(_) if workflow.is_there() => {
                return Err(Refused::malformed(
                    "the task has `flow` and also steps of its own: give the name of a flow, or `steps` with `on_error`, \
                     `on_failure`, `unique` and `retry_by` if need be",
                ));
            }
            Some(flow) => {
                let (name, version) = flow_name(flow)?;
                (name, version, None)
            }
            None if self.steps.is_some() => {
                let flow = workflow.compile(text)?;
                (flow.name.clone(), None, Some(flow))
            }
            None => {
                return Err(Refused::malformed(
                    "the task needs `flow`, the name of a flow, or `steps`, what it is to do",
                ));
            }
        };
        caller.grant.flow(&name)?;
        let params = params(self.params)?;
        check_labels(&self.labels, 0)?;
        let priority = priority(self.priority)?;
        let key = idempotency::key(key, self.key.as_deref())?;
        let traceparent = self.traceparent.as_deref().and_then(request::traceparent);
        let input = Input {
            labels: self.labels,
            priority,
            at: self.at.map(|at| Timestamp(at.as_millisecond())),
            deadline: self.deadline.map(deadline).transpose()?,
            by: caller.by.clone(),
            traceparent: traceparent.or_else(|| caller.traceparent.clone()),
            ..Input::new(params, caller.now.wall)
        };
        // Tasks with steps of their own share their keys: their flows' names come from what is in them.
        let scope = if flow.is_some() { idempotency::ADHOC } else { &name };
        let key = key.map(|key| idempotency::submit_key(key, scope, &name, version, &input));
        let (key, fingerprint_before) = key.map(Keyed::into_parts).unzip();
        Ok(Prepared { submission: Submission { flow: name, version, input, key, fingerprint_before }, flow })
    }

    fn workflow(&self) -> Workflow<'a> {
        let keys = [
            ("retry_by", self.retry_by),
            ("on_failure", self.on_failure),
            ("unique", self.unique),
            ("steps", self.steps),
            ("on_error", self.on_error),
        ];
        Workflow { keys }
    }
}

/// `NAME` or `NAME@VERSION`.
fn flow_name(text: &str) -> Result<(Name, Option<u32>), Refused> {
    let (name, version) = match text.split_once('@') {
        None => (text, None),
        Some((name, version)) => {
            let number = version.parse().map_err(|_| {
                Refused::malformed(format!("`flow`: invalid version {version:?}: write for example {name}@3"))
            })?;
            (name, Some(number))
        }
    };
    Ok((request::name("`flow`", name)?, version))
}

fn params(raw: Option<&RawValue>) -> Result<Json, Refused> {
    raw.map_or_else(|| Ok(Json::empty()), |raw| request::object("`params`", raw, PARAMS_BYTES_MAX))
}

pub(in crate::http) fn priority(priority: Option<i64>) -> Result<i8, Refused> {
    let priority = priority.unwrap_or(0);
    i8::try_from(priority)
        .ok()
        .filter(|priority| (-PRIORITY_MAX..=PRIORITY_MAX).contains(priority))
        .ok_or_else(|| {
            Refused::malformed(format!(
                "`priority` is {priority}, and must be from -{PRIORITY_MAX} to {PRIORITY_MAX}"
            ))
        })
}

fn deadline(span: api::Span) -> Result<Millis, Refused> {
    let deadline = Millis(span.ms);
    if deadline == Millis(0) {
        return Err(Refused::malformed(
            "a `deadline` of 0 would fail the task at once: give it a length, or leave it out",
        ));
    }
    if deadline > SPAN_MAX {
        return Err(Refused::malformed("`deadline` is too long: the limit is 366 days"));
    }
    Ok(deadline)
}

/// Checks labels. `reserved` others come to them.
pub(in crate::http) fn check_labels(
    labels: &BTreeMap<String, String>,
    reserved: usize,
) -> Result<(), Refused> {
    let most = LABELS_MAX - reserved;
    if labels.len() > most {
        return Err(Refused::malformed(format!("there are {} labels, and may be {most}", labels.len())));
    }
    for (name, value) in labels {
        if name.is_empty() || name.contains(':') {
            return Err(Refused::malformed(format!(
                "invalid label name {name:?}: use at least one character and no colon"
            )));
        }
        if name.len() > LABEL_BYTES_MAX || value.len() > LABEL_BYTES_MAX {
            let short: String = name.chars().take(32).collect();
            return Err(Refused::malformed(format!(
                "the label {short:?} is too long: its name and its value may have {LABEL_BYTES_MAX} bytes each"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::access::Grant;

    #[test]
    fn the_body_in_place_is_the_document_of_the_contract() {
        let all = r#"{"flow":"f@2","params":{"a":1},"key":"k","at":"2030-03-17T17:46:40Z","priority":-3,"deadline":"2h","labels":{"l":"v"},"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#;
        let document: api::SubmitTask = serde_json::from_str(all).unwrap();
        assert_eq!(serde_json::to_string(&document).unwrap(), all, "the text has every field");
        let body: SubmitBody<'_> = serde_json::from_str(all).unwrap();
        let caller = Caller {
            by: None,
            traceparent: None,
            now: Now { wall: Timestamp(1), mono: Millis(1) },
            grant: Grant::open(),
        };
        let submission = body.prepare(all, None, &caller).unwrap().submission;
        assert_eq!((submission.flow.as_str(), submission.version), ("f", Some(2)));
        assert_eq!(submission.input.params.as_str(), r#"{"a":1}"#);
        assert_eq!(submission.input.at, Some(Timestamp(1_900_000_000_000)));
        assert_eq!(submission.input.priority, -3);
        assert_eq!(submission.input.deadline, Some(Millis::from_secs(7200)));
        assert_eq!(submission.input.labels["l"], "v");
        assert!(all.contains(&*submission.input.traceparent.unwrap()));
        assert!(submission.key.is_some());
        assert!(serde_json::from_str::<SubmitBody<'_>>(r#"{"flow":"f","parms":{}}"#).is_err());
    }
}
