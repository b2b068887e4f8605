//! `POST /v1/worker/exchange`: how workers take attempts and report them. The hot path: what lies in the body is
//! not copied before it is kept, and what is handed out is written from where it is.

use std::{borrow::Cow, sync::Arc};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_api as api;
use windlass_core::{FLOW_MODULE, Failure, Json, Millis, Name, Outcome, SPAN_MAX};
use windlass_engine::{
    Exchange, ExchangeAnswer, HandedOut, LEASE_RANGE, Progress, ReportAnswer, ReportStatus, Said, WAIT_MAX,
    WorkerReport, effect_key,
    ports::{SessionId, Wish, WorkerState},
};

use super::{
    App, extract,
    extract::{BATCH_BYTES_MAX, RESULT_BYTES_MAX, bytes_in_words},
    json_response,
    problem::Refused,
    view,
};

/// Modules one worker may serve.
const MODULES_MAX: usize = 1000;

/// Commands one worker may name for a module.
const COMMANDS_MAX: usize = 10_000;

/// The longest name, machine or version a worker may say of itself, in bytes.
const WORKER_TEXT_BYTES_MAX: usize = 256;

/// What a failure says where the worker gives no reason.
const NO_REASON: &str = "the worker gave no reason";

/// [`api::ExchangeRequest`] as it lies in the body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    protocol: u32,
    #[serde(borrow)]
    session: Cow<'a, str>,
    seq: u64,
    #[serde(default)]
    attached: bool,
    #[serde(default)]
    lease_ms: Option<u64>,
    #[serde(default)]
    worker: Option<api::WorkerInfo>,
    #[serde(default)]
    holding: Option<Vec<String>>,
    #[serde(borrow, default)]
    modules: Option<Vec<ModuleBody<'a>>>,
    #[serde(default)]
    free: Option<u32>,
    #[serde(default)]
    wait_ms: u64,
    #[serde(borrow, default)]
    reports: Vec<&'a RawValue>,
}

/// [`api::ModuleOffer`] as it lies in the body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModuleBody<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    commands: Option<Vec<Cow<'a, str>>>,
    free: u32,
}

/// [`api::Report`] as it lies in the body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportBody<'a> {
    token: String,
    outcome: api::ReportOutcome,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<api::ReportError>,
    #[serde(default)]
    delay_ms: Option<u64>,
    #[serde(default)]
    progress: Option<api::Progress>,
    #[serde(default)]
    logs: Vec<String>,
}

/// All that is looked for in a report that is malformed.
#[derive(Debug, Deserialize)]
struct TokenOnly {
    token: String,
}

/// Takes attempts, reports them and keeps the worker's session.
///
/// A call with reports is answered as soon as they are on disk. A call without is the poll: it waits up to
/// `wait_ms` for something to do.
#[utoipa::path(
    post,
    path = "/v1/worker/exchange", operation_id = "exchange",
    tag = "workers",
    request_body = api::ExchangeRequest,
    responses(
        (status = 200, description = "What to do, and what became of the reports", body = api::ExchangeAnswer),
        (status = 400, description = "Malformed as a whole", body = api::Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = api::Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store is not available, or the server is shutting down: keep what is held and call again", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn exchange(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    let text = extract::read_json(&parts.headers, body, BATCH_BYTES_MAX).await?;
    let (call, nameless) = call(text.parse()?)?;
    drop(text);
    let is_poll = call.reports.is_empty();
    let heard = app.engine.exchange(call, app.now());
    let mut answer = if is_poll {
        tokio::select! {
            // What was handed out is answered, also when the server is told to stop in the same moment.
            biased;
            answer = heard => answer?,
            () = app.shutdown.begun() => return Err(Refused::shutting_down()),
        }
    } else {
        heard.await?
    };
    for (index, detail) in nameless {
        answer.reports[index].status = ReportStatus::Invalid(detail);
    }
    answer.reports.iter().for_each(|report| app.metrics.report(&report.status));
    app.metrics.handed_out(answer.attempts.len());
    Ok(json_response(StatusCode::OK, &AnswerBody::of(&answer)?))
}

/// A report in which no token can be found: its index, and what is wrong with it.
type Nameless = (usize, String);

/// The call of a body, and what to say of its reports without a token.
fn call(body: Body<'_>) -> Result<(Exchange, Vec<Nameless>), Refused> {
    if body.protocol != api::PROTOCOL {
        let (theirs, ours) = (body.protocol, api::PROTOCOL);
        return Err(Refused::malformed(format!(
            "`protocol` is {theirs}, and this server speaks {ours} only"
        )));
    }
    let session = uuid::Uuid::try_parse(&body.session)
        .map_err(|_| Refused::malformed("`session` must be a UUID that the worker made when it started"))?;
    if body.seq == 0 {
        return Err(Refused::malformed("`seq` is 0, and counts the calls of the session up from 1"));
    }
    if body.wait_ms > WAIT_MAX.0 {
        let (asked, most) = (body.wait_ms, WAIT_MAX.0);
        return Err(Refused::malformed(format!(
            "`wait_ms` is {asked}, and may be {most}: poll again after that"
        )));
    }
    if let Some(lease) = body.lease_ms.filter(|lease| !LEASE_RANGE.contains(&Millis(*lease))) {
        let (least, most) = (LEASE_RANGE.start().0, LEASE_RANGE.end().0);
        return Err(Refused::malformed(format!("`lease_ms` is {lease}, and must be from {least} to {most}")));
    }
    let (mut reports, mut nameless) = (Vec::with_capacity(body.reports.len()), Vec::new());
    for (index, raw) in body.reports.into_iter().enumerate() {
        reports.push(report(raw).unwrap_or_else(|detail| {
            let token =
                serde_json::from_str(raw.get()).map(|TokenOnly { token }| token).unwrap_or_else(|_| {
                    nameless.push((index, format!("report {} has no token: {detail}", index + 1)));
                    String::new()
                });
            WorkerReport { token, said: Err(detail), logs: Vec::new() }
        }));
    }
    let call = Exchange {
        session: SessionId(session.as_u128()),
        seq: body.seq,
        attached: body.attached,
        lease: body.lease_ms.map(Millis),
        worker: body.worker.map(|worker| self::worker(worker, body.attached)).transpose()?,
        holding: body.holding,
        wishes: body.modules.map(wishes).transpose()?,
        free: body.free,
        wait: Millis(body.wait_ms),
        reports,
    };
    Ok((call, nameless))
}

fn worker(worker: api::WorkerInfo, attached: bool) -> Result<WorkerState, Refused> {
    for (field, text) in [("name", &worker.name), ("host", &worker.host), ("version", &worker.version)] {
        if text.len() > WORKER_TEXT_BYTES_MAX || text.chars().any(char::is_control) {
            return Err(Refused::malformed(format!(
                "`worker.{field}` must be at most {WORKER_TEXT_BYTES_MAX} bytes without control characters"
            )));
        }
    }
    Ok(WorkerState {
        name: worker.name.into(),
        host: worker.host.into(),
        version: worker.version.into(),
        attached,
        modules: Vec::new(),
    })
}

fn wishes(modules: Vec<ModuleBody<'_>>) -> Result<Vec<Wish>, Refused> {
    if modules.len() > MODULES_MAX {
        let count = modules.len();
        return Err(Refused::malformed(format!(
            "there are {count} modules, and a worker may serve {MODULES_MAX}"
        )));
    }
    let mut wishes: Vec<Wish> = Vec::with_capacity(modules.len());
    for offer in modules {
        let module = extract::name("a module", &offer.name)?;
        if module.as_str() == FLOW_MODULE {
            return Err(Refused::malformed("no worker can serve the module `flow`: its commands are flows"));
        }
        if wishes.iter().any(|wish| wish.module == module) {
            return Err(Refused::malformed(format!("the module {module} is there twice: take one away")));
        }
        let commands = offer.commands.map(|commands| names(&module, &commands)).transpose()?;
        wishes.push(Wish { module, commands, free: offer.free });
    }
    Ok(wishes)
}

fn names(module: &Name, commands: &[Cow<'_, str>]) -> Result<Vec<Name>, Refused> {
    if commands.len() > COMMANDS_MAX {
        let count = commands.len();
        return Err(Refused::malformed(format!(
            "the module {module} names {count} commands, and may {COMMANDS_MAX}"
        )));
    }
    commands
        .iter()
        .map(|command| extract::name(&format!("a command of the module {module}"), command))
        .collect()
}

/// Reads one report; the error says what is wrong with it.
fn report(raw: &RawValue) -> Result<WorkerReport, String> {
    let body: ReportBody<'_> = serde_json::from_str(raw.get()).map_err(|error| malformed(&error))?;
    let said = said(&body);
    Ok(WorkerReport { token: body.token, said, logs: body.logs })
}

/// What serde says of a report, without the place: the worker has the report, not the line it is on.
fn malformed(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    format!("the report is not as it should be: {}", text.strip_suffix(&place).unwrap_or(&text))
}

fn said(body: &ReportBody<'_>) -> Result<Said, String> {
    let stray = [
        ("result", body.result.is_some(), [api::ReportOutcome::Succeeded].as_slice()),
        ("error", body.error.is_some(), &[api::ReportOutcome::Failed, api::ReportOutcome::RetryLater]),
        ("delay_ms", body.delay_ms.is_some(), &[api::ReportOutcome::RetryLater]),
        ("progress", body.progress.is_some(), &[api::ReportOutcome::Running]),
    ]
    .into_iter()
    .find(|(_, given, outcomes)| *given && !outcomes.contains(&body.outcome));
    if let Some((field, ..)) = stray {
        return Err(format!("`{field}` does not go with this outcome"));
    }
    let error = body.error.as_ref();
    let message = error.map(|error| error.message.as_str()).filter(|message| !message.is_empty());
    Ok(match body.outcome {
        api::ReportOutcome::Succeeded => Said::Ended(Outcome::Succeeded(
            body.result.map(result).transpose()?.filter(|json| !json.is_empty()),
        )),
        api::ReportOutcome::Failed => {
            let (code, retryable) =
                error.map_or((1, true), |error| (error.code.unwrap_or(1), error.retryable));
            Said::Ended(Outcome::Failed(Failure::new(message.unwrap_or(NO_REASON), code, retryable)))
        }
        api::ReportOutcome::RetryLater => {
            if let Some(delay) = body.delay_ms.filter(|delay| *delay > SPAN_MAX.0) {
                return Err(format!("`delay_ms` is {delay}, and may be {}: a year", SPAN_MAX.0));
            }
            // The same cut as for failures.
            let message = Failure::new(message.unwrap_or_default(), 1, true).message;
            Said::Ended(Outcome::RetryLater { delay: body.delay_ms.map(Millis), message })
        }
        api::ReportOutcome::Running => Said::Running(body.progress.as_ref().map(progress).transpose()?),
        api::ReportOutcome::Declined => Said::Declined,
    })
}

fn result(raw: &RawValue) -> Result<Json, String> {
    if raw.get().len() > RESULT_BYTES_MAX {
        return Err(format!(
            "`result` has {} bytes, and may have {}: keep large data elsewhere and return where it is",
            raw.get().len(),
            bytes_in_words(RESULT_BYTES_MAX)
        ));
    }
    Json::from_raw(raw).map_err(|error| format!("`result`: {error}"))
}

fn progress(progress: &api::Progress) -> Result<Progress, String> {
    if let Some(value) = progress.value.filter(|value| !(0.0..=1.0).contains(value)) {
        return Err(format!("`progress.value` is {value}, and must be from 0 to 1"));
    }
    let message = progress.message.as_deref().map(|message| Failure::new(message, 1, true).message);
    Ok(Progress { value: progress.value, message })
}

/// [`api::ExchangeAnswer`], written from where its parts are.
#[derive(Debug, Serialize)]
struct AnswerBody<'a> {
    attempts: Vec<AttemptBody<'a>>,
    reports: Vec<ReportAnswerBody<'a>>,
    cancels: &'a [String],
    lease_ms: u64,
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
    timeout_ms: u64,
    idempotency_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
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
    fn of(answer: &'a ExchangeAnswer) -> Result<Self, Refused> {
        Ok(Self {
            attempts: answer.attempts.iter().map(AttemptBody::of).collect::<Result<_, _>>()?,
            reports: answer.reports.iter().map(ReportAnswerBody::of).collect(),
            cancels: &answer.cancels,
            lease_ms: answer.lease.0,
        })
    }
}

impl<'a> AttemptBody<'a> {
    fn of(handed_out: &'a HandedOut) -> Result<Self, Refused> {
        let HandedOut { token, id, task, params } = handed_out;
        let (Some(action), Some(step)) = (task.action(id.key), task.flow.steps.get(id.key.step)) else {
            return Err(Refused::fault("an attempt was handed out of a step that its flow does not have"));
        };
        let undone = (id.key.direction == windlass_core::Direction::Rollback)
            .then(|| task.state.steps.get(id.key.step))
            .flatten();
        Ok(Self {
            token,
            task: task.id.to_string(),
            flow: &task.flow.name,
            step: &step.name,
            cursor: id.key.step,
            direction: view::direction(id.key.direction),
            attempt: id.attempt,
            module: &action.module,
            command: &action.command,
            params: raw(params)?,
            timeout_ms: action.timeout.0,
            idempotency_key: effect_key(task, id.key),
            error: undone.and_then(|_| task.message()),
            result: undone.and_then(|step| step.forward.result.as_ref()).map(raw).transpose()?,
            traceparent: task.input.traceparent.as_deref(),
        })
    }
}

fn raw(json: &Json) -> Result<&RawValue, Refused> {
    serde_json::from_str(json.as_str())
        .map_err(|error| Refused::fault(format!("a payload is no JSON any more: {error}")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_in_place_is_the_document_of_the_contract() {
        let text = concat!(
            r#"{"protocol":1,"session":"00000000-0000-4000-8000-000000000001","seq":7,"attached":true,"#,
            r#""lease_ms":5000,"worker":{"name":"w","host":"h","version":"1"},"holding":["t"],"#,
            r#""modules":[{"name":"m","commands":["c"],"free":3}],"free":2,"wait_ms":100,"#,
            r#""reports":[{"token":"t","outcome":"succeeded","result":{"a":1.0},"logs":["line"]}]}"#
        );
        let document: api::ExchangeRequest = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&document).unwrap(), text, "the text has every field");
        let (call, nameless) = call(serde_json::from_str(text).unwrap()).unwrap();
        assert!(nameless.is_empty());
        assert_eq!(
            (call.seq, call.attached, call.lease, call.wait),
            (7, true, Some(Millis(5000)), Millis(100))
        );
        assert_eq!(
            (&*call.worker.unwrap().name, call.holding.unwrap(), call.free),
            ("w", vec!["t".to_owned()], Some(2))
        );
        let wishes = call.wishes.unwrap();
        assert_eq!(
            (wishes[0].module.as_str(), wishes[0].commands.as_ref().unwrap().len(), wishes[0].free),
            ("m", 1, 3)
        );
        let report = &call.reports[0];
        assert!(
            matches!(&report.said, Ok(Said::Ended(Outcome::Succeeded(Some(json)))) if json.as_str() == r#"{"a":1.0}"#)
        );
        assert_eq!(report.logs, ["line"]);
    }

    #[test]
    fn a_report_in_place_is_the_document_of_the_contract() {
        let text = concat!(
            r#"{"token":"t","outcome":"retry_later","result":{},"error":{"message":"busy","code":75,"retryable":true},"#,
            r#""delay_ms":10,"progress":{"value":0.5,"message":"half"},"logs":["line"]}"#
        );
        let document: api::Report = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&document).unwrap(), text, "the text has every field");
        let body: ReportBody<'_> = serde_json::from_str(text).unwrap();
        assert_eq!(said(&body).unwrap_err(), "`result` does not go with this outcome");
    }
}
