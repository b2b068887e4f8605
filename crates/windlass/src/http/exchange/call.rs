//! From the body of an exchange to the engine's call. What is wrong with the whole is a refusal; what is wrong with
//! one report is said in its answer and leaves the others alone.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_api as api;
use windlass_core::{Failure, Json, Millis, Name, Outcome, SPAN_MAX, reserved_module};
use windlass_engine::{Exchange, LEASE_RANGE, Progress, Said, WAIT_MAX, WorkerReport};
use windlass_store::{ClaimRequest, SessionId, WorkerState};

use crate::http::{
    answer::problem::Refused,
    request::{self, AtMost, RESULT_BYTES_MAX, bytes_in_words, cut},
};

/// Modules one worker may serve.
const MODULES_MAX: usize = 1000;

/// Commands one worker may name for a module.
const COMMANDS_MAX: usize = 10_000;

/// Attempts one worker may have, and attempts it may return at once.
const HELD_MAX: usize = 50_000;

/// Reports in one call.
const REPORTS_MAX: usize = 10_000;

/// The longest name, machine or version a worker may say of itself, in bytes.
const WORKER_TEXT_BYTES_MAX: usize = 256;

/// What a failure says where the worker gives no reason.
const NO_REASON: &str = "the worker gave no reason";

/// [`api::ExchangeRequest`] as it lies in the body.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Body<'a> {
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
    holding: Option<AtMost<String, HELD_MAX>>,
    #[serde(default)]
    declining: Option<AtMost<String, HELD_MAX>>,
    #[serde(borrow, default)]
    modules: Option<Vec<ModuleBody<'a>>>,
    #[serde(default)]
    free: Option<u32>,
    #[serde(default)]
    draining: Option<bool>,
    #[serde(default)]
    wait_ms: u64,
    #[serde(borrow, default)]
    reports: AtMost<&'a RawValue, REPORTS_MAX>,
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

/// A report in which no token can be found: its index, and what is wrong with it.
pub(in crate::http) type Nameless = (usize, String);

/// The highest number of a call: what JSON numbers carry exactly everywhere.
const SEQ_MAX: u64 = 1 << 53;

/// The call of a body, and what to say of its reports without a token.
pub(in crate::http) fn call(body: Body<'_>) -> Result<(Exchange, Vec<Nameless>), Refused> {
    if body.protocol != api::PROTOCOL {
        let (theirs, ours) = (body.protocol, api::PROTOCOL);
        return Err(Refused::malformed(format!(
            "`protocol` is {theirs}, and this server speaks {ours} only"
        )));
    }
    let session = uuid::Uuid::try_parse(&body.session)
        .map_err(|_| Refused::malformed("`session` must be a UUID that the worker made when it started"))?;
    let session = SessionId(session.as_u128());
    if session.is_own() {
        return Err(Refused::malformed("`session` is one of the server's own: make another UUID"));
    }
    if body.seq == 0 {
        return Err(Refused::malformed("`seq` is 0, and counts the calls of the session up from 1"));
    }
    if body.seq > SEQ_MAX {
        let seq = body.seq;
        return Err(Refused::malformed(format!("`seq` is {seq}: count the calls of the session up from 1")));
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
    let (mut reports, mut nameless) = (Vec::with_capacity(body.reports.0.len()), Vec::new());
    for (index, raw) in body.reports.0.into_iter().enumerate() {
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
        session,
        seq: body.seq,
        attached: body.attached,
        lease: body.lease_ms.map(Millis),
        worker: body.worker.map(|worker| self::worker(worker, body.attached)).transpose()?,
        holding: body.holding.map(|tokens| tokens.0),
        declining: body.declining.map(|tokens| tokens.0).unwrap_or_default(),
        claim_requests: body.modules.map(claim_requests).transpose()?,
        free: body.free,
        draining: body.draining,
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

fn claim_requests(modules: Vec<ModuleBody<'_>>) -> Result<Vec<ClaimRequest>, Refused> {
    if modules.len() > MODULES_MAX {
        let count = modules.len();
        return Err(Refused::malformed(format!(
            "there are {count} modules, and a worker may serve {MODULES_MAX}"
        )));
    }
    let mut claim_requests: Vec<ClaimRequest> = Vec::with_capacity(modules.len());
    for offer in modules {
        let module = request::name("a module", &offer.name)?;
        if let Some(instead) = reserved_module(module.as_str()) {
            return Err(Refused::malformed(format!("no worker can serve the module `{module}`: {instead}")));
        }
        if claim_requests.iter().any(|claim_request| claim_request.module == module) {
            return Err(Refused::malformed(format!("the module {module} is there twice: take one away")));
        }
        let commands = offer.commands.map(|commands| names(&module, &commands)).transpose()?;
        claim_requests.push(ClaimRequest { module, commands, free: offer.free });
    }
    Ok(claim_requests)
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
        .map(|command| request::name(&format!("a command of the module {module}"), command))
        .collect()
}

/// Reads one report; the error says what is wrong with it.
fn report(raw: &RawValue) -> Result<WorkerReport, String> {
    let body: ReportBody<'_> = serde_json::from_str(raw.get()).map_err(|error| malformed(&error))?;
    let said = said(&body);
    Ok(WorkerReport { token: body.token, said, logs: body.logs })
}

/// Serde's message about a report, without the place: the worker has the report, not the line it is on.
fn malformed(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&place).unwrap_or(&text);
    format!("invalid report: {}", cut(what))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_in_place_is_the_document_of_the_contract() {
        let text = concat!(
            r#"{"protocol":1,"session":"00000000-0000-4000-8000-000000000001","seq":7,"attached":true,"#,
            r#""lease_ms":5000,"worker":{"name":"w","host":"h","version":"1"},"holding":["t"],"declining":["u"],"#,
            r#""modules":[{"name":"m","commands":["c"],"free":3}],"free":2,"draining":true,"wait_ms":100,"#,
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
        assert_eq!(call.declining, ["u"]);
        assert_eq!(call.draining, Some(true));
        let claim_requests = call.claim_requests.unwrap();
        assert_eq!(
            (
                claim_requests[0].module.as_str(),
                claim_requests[0].commands.as_ref().unwrap().len(),
                claim_requests[0].free
            ),
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
