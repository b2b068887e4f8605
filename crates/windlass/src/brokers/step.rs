//! Writes a step as a message on its module's queue: the classic document, with the attempt's token in a
//! header.

use bytes::Bytes;
use serde::Serialize;
use windlass_api::{FORWARD_KEY_HEADER, KEY_HEADER, StepMessage, TOKEN_HEADER, TRACEPARENT_HEADER};
use windlass_brokers::Message;
use windlass_core::{ActKey, Action, Direction, Millis, RetryBy, RollbackParams, Task};
use windlass_engine::{HandedOut, Results, effect_key, rolled_back_key, services::WriteStep};

use crate::http::view;

/// Writes steps as messages.
#[derive(Debug)]
pub(super) struct Writer;

impl WriteStep for Writer {
    fn message(&self, attempt: &HandedOut, has_headers: bool) -> Message {
        message(attempt, full(attempt), has_headers)
    }

    fn reference(&self, attempt: &HandedOut, has_headers: bool) -> Message {
        let reference = Some(format!("/v1/worker/attempts/{}", attempt.token));
        message(attempt, StepMessage { reference, ..document(&attempt.task, attempt.id.key) }, has_headers)
    }
}

/// The complete document of an attempt, with its token and idempotency key as fields.
pub(crate) fn whole(attempt: &HandedOut) -> StepMessage {
    StepMessage {
        token: Some(attempt.token.clone()),
        key: Some(effect_key(&attempt.task, attempt.id.key)),
        forward_key: rolled_back_key(&attempt.task, attempt.id.key),
        traceparent: attempt.traceparent.as_deref().map(str::to_owned),
        ..full(attempt)
    }
}

/// The document of an attempt with all inputs of its command. In a classic catalogue all inputs are
/// parameters, and the document has no other fields.
fn full(attempt: &HandedOut) -> StepMessage {
    let HandedOut { task, id, params, results, .. } = attempt;
    let classic = StepMessage { parameters: Some(view::payload(params)), ..document(task, id.key) };
    if task.flow.rollback_params == RollbackParams::Shared {
        return classic;
    }
    let is_rollback = id.key.direction == Direction::Rollback;
    StepMessage {
        results: match results {
            Results::These(results) => Some(view::payload(results)),
            Results::None | Results::TooLarge => None,
        },
        results_omitted: *results == Results::TooLarge,
        result: task.done_by(id.key).filter(|_| is_rollback).map(view::payload),
        error: if is_rollback { task.message() } else { None },
        ..classic
    }
}

fn message(attempt: &HandedOut, mut document: StepMessage, has_headers: bool) -> Message {
    if !has_headers {
        (document.token, document.key) =
            (Some(attempt.token.clone()), Some(effect_key(&attempt.task, attempt.id.key)));
        document.forward_key = rolled_back_key(&attempt.task, attempt.id.key);
        document.traceparent = attempt.traceparent.as_deref().map(str::to_owned);
    }
    with_headers(attempt, &document, has_headers)
}

/// The message of an attempt: its token and idempotency keys are in headers, if its queue has headers.
pub(super) fn with_headers(attempt: &HandedOut, document: &impl Serialize, has_headers: bool) -> Message {
    let mut headers = Vec::new();
    if has_headers {
        headers.push((TOKEN_HEADER.to_owned(), attempt.token.clone()));
        headers.push((KEY_HEADER.to_owned(), effect_key(&attempt.task, attempt.id.key)));
        let forward_key = rolled_back_key(&attempt.task, attempt.id.key);
        headers.extend(forward_key.map(|key| (FORWARD_KEY_HEADER.to_owned(), key)));
        let traceparent = attempt.traceparent.as_deref();
        headers.extend(traceparent.map(|value| (TRACEPARENT_HEADER.to_owned(), value.to_owned())));
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    // Serialization of these types cannot fail.
    let body = serde_json::to_vec(document).unwrap_or_default();
    Message {
        id: attempt.token.clone(),
        key: attempt.task.id.to_string(),
        headers,
        body: Bytes::from(body),
        priority: attempt.task.input.priority,
    }
}

/// The document of an execution, without its parameters.
fn document(task: &Task, key: ActKey) -> StepMessage {
    let action = task.action(key);
    let (module, command) = action
        .and_then(Action::worker)
        .map_or_else(Default::default, |(module, command)| (module.to_string(), command.to_string()));
    StepMessage {
        task_id: task.id.to_string(),
        cursor: key.step,
        direction: view::direction(key.direction),
        parameters: None,
        module,
        command,
        timeout: action.map_or(0, timeout_seconds),
        retry: match task.flow.retry_by {
            RetryBy::Engine => 0,
            RetryBy::Module => action.map_or(0, |action| action.retry.max),
        },
        token: None,
        key: None,
        forward_key: None,
        traceparent: None,
        results: None,
        results_omitted: false,
        result: None,
        error: None,
        exclusive: view::exclusive(task),
        reference: None,
    }
}

/// The time that all attempts made by the module may take together: the overall deadline where there is one,
/// otherwise the timeout. Rounded up to seconds.
pub(crate) fn timeout_seconds(action: &Action) -> u64 {
    let Millis(ms) = action.deadline.unwrap_or(action.timeout);
    ms.div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_core::{Input, Json, TaskId, Timestamp};
    use windlass_store::AttemptId;

    use super::*;
    use crate::flowfile::{self, Format};

    fn attempt(settings: &str, key: ActKey) -> HandedOut {
        let step = r#"{ "name": "init", "run": "mysql.init", "timeout": "1500ms", "retry": 3,
                        "rollback": { "run": "mysql.clean", "timeout": "10m", "deadline": "15m", "retry": 2 } }"#;
        let text =
            format!(r#"{{ "flow": "f", {settings} "params": {{ "region": "eu" }}, "steps": [{step}] }}"#);
        let sources = flowfile::read(&text, Format::Json).unwrap();
        let input = Input::new(Json::parse(r#"{"Cpu":4}"#).unwrap(), Timestamp(0));
        let task = Arc::new(Task::new(
            TaskId(7),
            Arc::new(flowfile::compile(&sources[0]).unwrap()),
            Arc::new(input),
        ));
        let id = AttemptId { task: task.id, key, attempt: 1, claim: 1 };
        let params = task.params_for(key);
        HandedOut { token: "a.b".to_owned(), id, params, results: Results::None, task, traceparent: None }
    }

    fn body(message: &Message) -> &str {
        std::str::from_utf8(&message.body).unwrap()
    }

    #[test]
    fn a_message_is_the_classic_document_and_has_its_token_beside_it() {
        let settings = r#""retry_by": "module","#;
        let forward = Writer.message(&attempt(settings, ActKey::forward(0)), true);
        assert_eq!(
            body(&forward),
            r#"{"TaskId":"00000000-0000-0000-0000-000000000007","Cursor":0,"Type":0,"Parameters":{"region":"eu","Cpu":4},"Module":"mysql","Command":"init","Timeout":2,"Retry":3}"#
        );
        assert_eq!(forward.header("windlass-token"), Some("a.b"));
        assert_eq!(forward.header("windlass-forward-idempotency-key"), None);
        assert_eq!(forward.header("content-type"), Some("application/json"));
        assert_eq!(
            forward.header("windlass-idempotency-key"),
            Some("00000000-0000-0000-0000-000000000007/init/0/forward")
        );
        let rollback = Writer.message(&attempt(settings, ActKey::rollback(0)), true);
        assert_eq!(
            body(&rollback),
            r#"{"TaskId":"00000000-0000-0000-0000-000000000007","Cursor":0,"Type":1,"Parameters":{"region":"eu","Cpu":4},"Module":"mysql","Command":"clean","Timeout":900,"Retry":2}"#
        );
    }

    #[test]
    fn without_headers_the_token_is_in_the_document() {
        let message = Writer.message(&attempt("", ActKey::forward(0)), false);
        assert!(message.headers.is_empty());
        assert!(body(&message).contains(r#""Token":"a.b","Key":"00000000-"#), "{}", body(&message));
    }

    #[test]
    fn the_trace_context_is_beside_the_token() {
        let attempt = HandedOut { traceparent: Some("00-1-2-01".into()), ..attempt("", ActKey::forward(0)) };
        let message = Writer.message(&attempt, true);
        assert_eq!(message.header("traceparent"), Some("00-1-2-01"));
        let message = Writer.message(&attempt, false);
        assert!(body(&message).contains(r#""Traceparent":"00-1-2-01""#), "{}", body(&message));
    }

    #[test]
    fn retries_of_the_engine_are_not_multiplied_by_the_module() {
        let message = Writer.message(&attempt("", ActKey::forward(0)), true);
        assert!(body(&message).contains(r#""Retry":0"#));
    }

    #[test]
    fn what_is_too_large_says_where_it_is() {
        let message = Writer.reference(&attempt("", ActKey::forward(0)), true);
        let text = body(&message);
        assert!(
            !text.contains("Parameters") && text.contains(r#""Reference":"/v1/worker/attempts/a.b""#),
            "{text}"
        );
    }
}
