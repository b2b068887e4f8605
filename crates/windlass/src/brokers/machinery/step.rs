//! Steps for workers that use the library: an attempt as a signature, and its result as the signature that follows it.
//!
//! ```text
//! attempt ─▶ signature ─▶ worker ─┬─ success ─▶ windlass.succeeded (token, results…)
//!                                 └─ failure ─▶ windlass.failed (error, token)
//! ```
//!
//! The library's worker sends what follows to the queue of results. So it needs no configuration, and a result is a
//! message like that of any other module.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use windlass_api::{Direction, Payload, ResultEvent, ResultMessage};
use windlass_api::{KEY_HEADER, TRACEPARENT_HEADER};
use windlass_brokers::Message;
use windlass_core::{Action, Json};
use windlass_engine::{HandedOut, effect_key, services::WriteStep};

use super::{result::typed, signature::Signature, value::TypedValue};

/// The name of the signature that follows a success.
const SUCCEEDED: &str = "windlass.succeeded";

/// The name of the signature that follows a failure.
const FAILED: &str = "windlass.failed";

/// The parameter with the arguments.
const ARGS: &str = "args";

/// Writes attempts as signatures.
#[derive(Debug)]
pub(in crate::brokers) struct Writer {
    /// The queue of their module.
    pub(in crate::brokers) queue: String,
    /// The queue of results.
    pub(in crate::brokers) results: String,
}

/// A signature as the library writes it.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Written<'a> {
    #[serde(rename = "UUID")]
    uuid: String,
    name: &'a str,
    routing_key: &'a str,
    #[serde(rename = "ETA")]
    eta: Option<&'static str>,
    #[serde(rename = "GroupUUID")]
    group_uuid: &'static str,
    group_task_count: u32,
    args: Vec<Argument>,
    headers: BTreeMap<&'static str, String>,
    priority: u8,
    immutable: bool,
    retry_count: u32,
    retry_timeout: u32,
    on_success: Option<Vec<Written<'a>>>,
    on_error: Option<Vec<Written<'a>>>,
    chord_callback: Option<&'static str>,
    broker_message_group_id: &'static str,
    #[serde(rename = "SQSReceiptHandle")]
    sqs_receipt_handle: &'static str,
    stop_task_deletion_on_error: bool,
    ignore_when_task_not_registered: bool,
}

/// An argument: versions of the library before 1.5 need its name, which may be empty.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Argument {
    name: &'static str,
    #[serde(rename = "Type")]
    kind: String,
    value: Box<RawValue>,
}

impl From<TypedValue> for Argument {
    fn from(TypedValue { kind, value, .. }: TypedValue) -> Self {
        Self { name: "", kind, value }
    }
}

impl<'a> Written<'a> {
    fn new(uuid: String, name: &'a str, routing_key: &'a str, args: Vec<Argument>) -> Self {
        Self {
            uuid,
            name,
            routing_key,
            eta: None,
            group_uuid: "",
            group_task_count: 0,
            args,
            headers: BTreeMap::new(),
            priority: 0,
            immutable: false,
            retry_count: 0,
            retry_timeout: 0,
            on_success: None,
            on_error: None,
            chord_callback: None,
            broker_message_group_id: "",
            sqs_receipt_handle: "",
            stop_task_deletion_on_error: false,
            ignore_when_task_not_registered: false,
        }
    }
}

impl WriteStep for Writer {
    fn message(&self, attempt: &HandedOut, _has_headers: bool) -> Message {
        let HandedOut { task, id, params, token, .. } = attempt;
        let key = effect_key(task, id.key);
        let uuid = format!("{key}/{}", id.attempt);
        let command =
            task.action(id.key).and_then(Action::worker).map_or("", |(_, command)| command.as_str());
        let follows = |name, end: &str| {
            let args = text(token).into_iter().map(Argument::from).collect();
            Some(vec![Written::new(format!("{uuid}/{end}"), name, &self.results, args)])
        };
        let args = args(params).into_iter().map(Argument::from).collect();
        let mut headers = BTreeMap::from([(KEY_HEADER, key)]);
        headers.extend(attempt.traceparent.as_deref().map(|value| (TRACEPARENT_HEADER, value.to_owned())));
        let signature = Written {
            headers,
            priority: u8::try_from(task.input.priority).unwrap_or_default(),
            on_success: follows(SUCCEEDED, "succeeded"),
            on_error: follows(FAILED, "failed"),
            ..Written::new(uuid.clone(), command, &self.queue, args)
        };
        // Serialization of these types cannot fail.
        let body = serde_json::to_vec(&signature).unwrap_or_default();
        Message { priority: task.input.priority, ..Message::new(token.clone(), task.id.to_string(), body) }
    }

    /// Nothing in a signature can be left out: a step that is too large for the broker fails.
    fn reference(&self, attempt: &HandedOut, has_headers: bool) -> Message {
        self.message(attempt, has_headers)
    }
}

/// The arguments of a step: its parameter `args`, or else all parameters as the text of a JSON object.
fn args(params: &Json) -> Vec<TypedValue> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(params.as_str()).unwrap_or_default();
    let args = fields.get(ARGS).and_then(|args| serde_json::from_str::<Vec<&RawValue>>(args.get()).ok());
    match args {
        Some(args) => args.into_iter().map(typed).collect(),
        None => text(params.as_str()).into_iter().collect(),
    }
}

fn text(text: &str) -> Option<TypedValue> {
    Some(TypedValue::new("string", serde_json::value::to_raw_value(text).ok()?))
}

/// Reads the result in a signature that followed an attempt.
///
/// # Errors
/// Says why it is not one.
pub(in crate::brokers) fn result(body: &[u8]) -> Result<ResultMessage, String> {
    let text = std::str::from_utf8(body).map_err(|_| "it is not UTF-8".to_owned())?;
    let signature = Signature::parse(text)?;
    let (name, args) = (signature.name()?, signature.args()?);
    let string = |arg: Option<&TypedValue>, what: &str| -> Result<String, String> {
        let arg = arg.ok_or_else(|| format!("{name} has no argument with {what}"))?;
        serde_json::from_str(arg.value.get()).map_err(|_| format!("{name}: {what} is not a string"))
    };
    let (event, token, message, results) = match name.as_str() {
        SUCCEEDED => (ResultEvent::Succeeded, string(args.first(), "the token")?, None, args.get(1..)),
        FAILED => {
            let error = string(args.first(), "the error")?;
            (ResultEvent::Failed, string(args.get(1), "the token")?, Some(error), None)
        }
        _ => return Err(format!("it is the signature {name:?}: expected {SUCCEEDED} or {FAILED}")),
    };
    Ok(ResultMessage {
        task_id: String::new(),
        cursor: 0,
        direction: Direction::Forward,
        event,
        code: 0,
        message,
        parameters: parameters(results.unwrap_or_default()),
        token: Some(token),
    })
}

/// The results of a worker as the result of a step: nothing, `{"result": …}`, or `{"results": […]}`.
fn parameters(results: &[TypedValue]) -> Option<Payload> {
    let values: Vec<&RawValue> = results.iter().map(|result| &*result.value).collect();
    match values.as_slice() {
        [] => None,
        [value] => serde_json::value::to_raw_value(&BTreeMap::from([("result", value)])).ok(),
        values => serde_json::value::to_raw_value(&BTreeMap::from([("results", values)])).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, args: &str) -> Result<ResultMessage, String> {
        result(format!(r#"{{"UUID":"u","Name":"{name}","Args":{args}}}"#).as_bytes())
    }

    #[test]
    fn parameters_become_arguments_with_types() {
        let of = |params: &str| serde_json::to_string(&args(&Json::parse(params).unwrap())).unwrap();
        assert_eq!(
            of(r#"{"args":[1,"a",[1.5]],"other":true}"#),
            r#"[{"Type":"int64","Value":1},{"Type":"string","Value":"a"},{"Type":"[]float64","Value":[1.5]}]"#
        );
        assert_eq!(of(r#"{"args":[{"Type":"uint8","Value":7}]}"#), r#"[{"Type":"uint8","Value":7}]"#);
        assert_eq!(of(r#"{"size":1}"#), r#"[{"Type":"string","Value":"{\"size\":1}"}]"#);
        assert_eq!(of(r#"{"args":[]}"#), "[]");
    }

    #[test]
    fn what_follows_an_attempt_is_its_result() {
        let succeeded =
            read(SUCCEEDED, r#"[{"Type":"string","Value":"t"},{"Type":"int64","Value":9007199254740993}]"#);
        let succeeded = succeeded.unwrap();
        assert_eq!((succeeded.event, succeeded.token.as_deref()), (ResultEvent::Succeeded, Some("t")));
        assert_eq!(succeeded.parameters.unwrap().get(), r#"{"result":9007199254740993}"#);
        let none = read(SUCCEEDED, r#"[{"Type":"string","Value":"t"}]"#).unwrap();
        assert!(none.parameters.is_none());
        let failed =
            read(FAILED, r#"[{"Type":"string","Value":"no disk"},{"Type":"string","Value":"t"}]"#).unwrap();
        assert_eq!((failed.event, failed.message.as_deref()), (ResultEvent::Failed, Some("no disk")));
        assert_eq!(failed.token.as_deref(), Some("t"));
        assert!(read(SUCCEEDED, "[]").unwrap_err().contains("no argument with the token"));
        assert!(read(FAILED, r#"[{"Type":"string","Value":"no disk"}]"#).unwrap_err().contains("the token"));
        assert!(read("add", "[]").unwrap_err().contains("expected windlass.succeeded"));
    }
}
