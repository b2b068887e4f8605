//! Writes a step as the event of a job: `{"jobId","name","value"}`, with the attempt's token in a header.

use serde_json::value::RawValue;
use windlass_api::JobEvent;
use windlass_brokers::Message;
use windlass_core::Direction;
use windlass_engine::{HandedOut, effect_key, services::WriteStep};

use super::step::with_headers;
use crate::http::JobParams;

/// Writes steps as events of jobs.
#[derive(Debug)]
pub(super) struct Writer;

impl WriteStep for Writer {
    fn message(&self, attempt: &HandedOut, has_headers: bool) -> Message {
        let params = JobParams::of(&attempt.params);
        let value = params.value.unwrap_or(RawValue::NULL).to_owned();
        write(attempt, JobEvent { name: params.name(), value: Some(value), ..event(attempt) }, has_headers)
    }

    fn reference(&self, attempt: &HandedOut, has_headers: bool) -> Message {
        let name = JobParams::of(&attempt.params).name();
        write(attempt, JobEvent { name, ..event(attempt) }, has_headers)
    }
}

fn write(attempt: &HandedOut, mut event: JobEvent, has_headers: bool) -> Message {
    if !has_headers {
        (event.token, event.key) =
            (Some(attempt.token.clone()), Some(effect_key(&attempt.task, attempt.id.key)));
    }
    with_headers(attempt, &event, has_headers)
}

/// The event without what may be large.
fn event(attempt: &HandedOut) -> JobEvent {
    JobEvent {
        job_id: attempt.task.id.to_string(),
        name: None,
        value: None,
        rollback: attempt.id.key.direction == Direction::Rollback,
        token: None,
        key: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_core::{ActKey, Input, Json, Task, TaskId, Timestamp};
    use windlass_engine::Results;
    use windlass_store::AttemptId;

    use super::*;
    use crate::flowfile::{self, Format};

    fn attempt(params: &str, key: ActKey) -> HandedOut {
        let text =
            r#"{ "flow": "job", "steps": [{ "name": "run", "run": "jobs.run", "rollback": "jobs.wipe" }] }"#;
        let sources = flowfile::read(text, Format::Json).unwrap();
        let input = Input::new(Json::parse(params).unwrap(), Timestamp(0));
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

    const JOB: &str = r#"{"name":"cancel order","value":{"id":12345678901234567890123}}"#;

    #[test]
    fn a_message_is_the_event_and_has_its_token_beside_it() {
        let message = Writer.message(&attempt(JOB, ActKey::forward(0)), true);
        assert_eq!(
            body(&message),
            r#"{"jobId":"00000000-0000-0000-0000-000000000007","name":"cancel order","value":{"id":12345678901234567890123}}"#
        );
        assert_eq!(message.header("windlass-token"), Some("a.b"));
        assert_eq!(
            message.header("windlass-idempotency-key"),
            Some("00000000-0000-0000-0000-000000000007/run/0/forward")
        );
        let rollback = Writer.message(&attempt(JOB, ActKey::rollback(0)), true);
        assert!(body(&rollback).ends_with(r#","rollback":true}"#), "{}", body(&rollback));
    }

    #[test]
    fn without_headers_the_token_is_in_the_event() {
        let message = Writer.message(&attempt(JOB, ActKey::forward(0)), false);
        assert!(message.headers.is_empty());
        assert!(body(&message).contains(r#""token":"a.b","key":"00000000-"#), "{}", body(&message));
    }

    #[test]
    fn a_large_value_is_left_out_and_a_task_that_is_no_job_has_none() {
        let reference = Writer.reference(&attempt(JOB, ActKey::forward(0)), true);
        let text = body(&reference);
        assert!(text.contains("cancel order") && !text.contains("value"), "{text}");
        let other = Writer.message(&attempt(r#"{"size":1}"#, ActKey::forward(0)), true);
        assert_eq!(body(&other), r#"{"jobId":"00000000-0000-0000-0000-000000000007","value":null}"#);
    }
}
