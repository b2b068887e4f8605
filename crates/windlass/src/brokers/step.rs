//! A step as a message on its module's queue: the classic document, with the attempt's token beside it.

use bytes::Bytes;
use windlass_api::{KEY_HEADER, StepMessage, TOKEN_HEADER};
use windlass_brokers::Message;
use windlass_core::{ActKey, Action, Millis, RetryBy, Task};
use windlass_engine::{HandedOut, effect_key, services::WriteStep};

use crate::http::view;

/// Writes steps as messages.
#[derive(Debug)]
pub(super) struct Writer;

impl WriteStep for Writer {
    fn message(&self, attempt: &HandedOut, has_headers: bool) -> Message {
        let parameters = Some(view::payload(&attempt.params));
        message(attempt, StepMessage { parameters, ..document(&attempt.task, attempt.id.key) }, has_headers)
    }

    fn reference(&self, attempt: &HandedOut, has_headers: bool) -> Message {
        let reference = Some(format!("/v1/worker/attempts/{}", attempt.token));
        message(attempt, StepMessage { reference, ..document(&attempt.task, attempt.id.key) }, has_headers)
    }
}

/// The whole document of an attempt, with its token and key in it.
pub(crate) fn whole(attempt: &HandedOut) -> StepMessage {
    StepMessage {
        parameters: Some(view::payload(&attempt.params)),
        token: Some(attempt.token.clone()),
        key: Some(effect_key(&attempt.task, attempt.id.key)),
        ..document(&attempt.task, attempt.id.key)
    }
}

fn message(attempt: &HandedOut, mut document: StepMessage, has_headers: bool) -> Message {
    let key = effect_key(&attempt.task, attempt.id.key);
    let mut headers = Vec::new();
    if has_headers {
        headers.push((TOKEN_HEADER.to_owned(), attempt.token.clone()));
        headers.push((KEY_HEADER.to_owned(), key));
    } else {
        (document.token, document.key) = (Some(attempt.token.clone()), Some(key));
    }
    // Documents of this kind can always be written.
    let body = serde_json::to_vec(&document).unwrap_or_default();
    Message {
        id: attempt.token.clone(),
        key: attempt.task.id.to_string(),
        headers,
        body: Bytes::from(body),
        priority: attempt.task.input.priority,
    }
}

/// The document of an act, without its parameters.
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
        reference: None,
    }
}

/// What all attempts that the module makes may take together: the deadline over all attempts, where there is one. Part of
/// a second counts as one.
pub(crate) fn timeout_seconds(action: &Action) -> u64 {
    let Millis(ms) = action.deadline.unwrap_or(action.timeout);
    ms.div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_core::{Input, Json, TaskId, Timestamp};
    use windlass_engine::ports::AttemptId;

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
        HandedOut { token: "a.b".to_owned(), id, params: task.params_for(key), task }
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
