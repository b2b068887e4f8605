//! A signature as a task, and a task as its state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_api::Span;
use windlass_brokers::ResultDocument;
use windlass_core::{ActKey, Ending, Name, Task};

use super::{
    result,
    settings::MachinerySettings,
    signature::{Signature, bounded},
    value::TypedValue,
};
use crate::http::{LABEL_BYTES_MAX, view};

/// The label with the UUID of the signature that started a task.
pub(super) const LABEL: &str = "machinery";

/// The label with the UUID of its group.
pub(super) const GROUP_LABEL: &str = "machinery-group";

/// The highest priority of a task; signatures have up to 255.
const PRIORITY_MAX: u8 = 10;

/// The longest pause before a retry, where the library would wait ever longer.
const RETRY_CAP: Span = Span::from_ms(3_600_000);

/// The document of `POST /v1/tasks`.
#[derive(Serialize)]
struct Document<'a> {
    steps: [Step<'a>; 1],
    params: Params<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<jiff::Timestamp>,
    priority: u8,
    labels: BTreeMap<&'static str, &'a str>,
}

#[derive(Serialize)]
struct Step<'a> {
    name: &'static str,
    run: &'a str,
    timeout: Span,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Retry>,
}

#[derive(Serialize)]
struct Retry {
    max: u32,
    base: Span,
    cap: Span,
}

/// What workers get.
#[derive(Serialize)]
struct Params<'a> {
    /// The values of the arguments.
    args: Vec<Box<RawValue>>,
    uuid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a RawValue>,
    /// The whole signature, if something follows the task. It is text because signatures may be nested deeper than parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<&'a str>,
}

/// The parts of a task's parameters that identify its signature.
#[derive(Deserialize)]
pub(super) struct Origin {
    uuid: String,
    signature: Option<String>,
}

impl Origin {
    /// `None` if no signature started the task.
    pub(super) fn of(task: &Task) -> Option<Self> {
        let origin: Self = serde_json::from_str(task.input.params.as_str()).ok()?;
        (task.input.labels.get(LABEL) == Some(&origin.uuid)).then_some(origin)
    }

    /// The signature, if something follows the task.
    pub(super) fn signature(&self) -> Option<Signature> {
        Signature::parse(self.signature.as_deref()?).ok()
    }
}

/// Selects whether the parameters of a task contain the text of the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptText {
    /// Only if other signatures follow the task.
    IfFollowed,
    /// Always, as in earlier versions. The store recognizes a signature that an earlier version accepted only by the same document.
    Always,
}

/// The document of the task that a signature asks for. `text` is its text.
///
/// # Errors
/// Says what in the signature is invalid.
pub(super) fn document(
    signature: &Signature,
    text: &str,
    kept: KeptText,
    settings: &MachinerySettings,
) -> Result<String, String> {
    write(signature, text, kept, settings).map_err(bounded)
}

fn write(
    signature: &Signature,
    text: &str,
    kept: KeptText,
    settings: &MachinerySettings,
) -> Result<String, String> {
    let (uuid, name, group) = (signature.uuid()?, signature.name()?, signature.group()?);
    for (field, id) in [("UUID", &uuid), ("GroupUUID", &group)] {
        if id.len() > LABEL_BYTES_MAX {
            return Err(format!("`{field}` has {} bytes, and may have {LABEL_BYTES_MAX}", id.len()));
        }
    }
    if uuid.is_empty() {
        return Err("`UUID` is missing".to_owned());
    }
    Name::new(&name).map_err(|error| format!("`Name`: {error}"))?;
    let mut args = Vec::new();
    for (index, arg) in signature.args()?.iter().enumerate() {
        args.push(arg.checked().map_err(|error| format!("`Args[{index}]`: {error}"))?);
    }
    let keeps_text = check_follow_ups(signature)? || kept == KeptText::Always;
    signature.group_count()?;
    signature.is_immutable()?;
    let retries = signature.retries()?;
    let base = Span::from_ms(u64::from(above_in_fibonacci(signature.retry_timeout()?)) * 1000);
    let retry = (retries > 0).then_some(Retry { max: retries, base, cap: RETRY_CAP.max(base) });
    let mut labels = BTreeMap::from([(LABEL, uuid.as_str())]);
    if !group.is_empty() {
        labels.insert(GROUP_LABEL, &group);
    }
    let run = format!("{}.{name}", settings.module);
    let document = Document {
        steps: [Step { name: "run", run: &run, timeout: settings.timeout, retry }],
        params: Params {
            args,
            uuid: &uuid,
            headers: signature.headers(),
            signature: keeps_text.then_some(text),
        },
        at: signature.eta()?,
        priority: signature.priority()?.min(PRIORITY_MAX),
        labels,
    };
    serde_json::to_string(&document).map_err(|error| error.to_string())
}

/// Checks the signatures that follow this one, so that a mistake in them is found before anything runs. Returns whether there are any.
fn check_follow_ups(signature: &Signature) -> Result<bool, String> {
    let callback = signature.chord_callback()?.into_iter().collect();
    let fields = [
        ("OnSuccess", signature.on_success()?),
        ("OnError", signature.on_error()?),
        ("ChordCallback", callback),
    ];
    for (field, signatures) in &fields {
        for follows in signatures {
            let read = follows.args().and(follows.routing_key()).and(follows.eta());
            read.map_err(|error| format!("`{field}`: {error}"))?;
        }
    }
    Ok(fields.iter().any(|(_, signatures)| !signatures.is_empty()))
}

/// The smallest Fibonacci number above this one: the next pause before a retry, in seconds.
fn above_in_fibonacci(seconds: u32) -> u32 {
    let (mut one, mut next) = (1u32, 2u32);
    while one <= seconds && one < u32::MAX {
        (one, next) = (next, one.saturating_add(next));
    }
    one
}

/// The idempotency key of the task of a signature.
pub(super) fn key(uuid: &str) -> String {
    format!("machinery/{uuid}")
}

/// The states of a task in the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum StateName {
    Pending,
    Received,
    Started,
    Retry,
    Success,
    Failure,
}

impl StateName {
    /// The word of the library.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Received => "RECEIVED",
            Self::Started => "STARTED",
            Self::Retry => "RETRY",
            Self::Success => "SUCCESS",
            Self::Failure => "FAILURE",
        }
    }
}

/// The state of a task, as the library keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TaskState {
    #[serde(rename = "TaskUUID")]
    pub(super) task_uuid: String,
    pub(super) task_name: String,
    pub(super) state: StateName,
    #[serde(default)]
    pub(super) results: Option<Vec<TypedValue>>,
    #[serde(default)]
    pub(super) error: String,
    pub(super) created_at: jiff::Timestamp,
    #[serde(rename = "TTL", default)]
    ttl: i64,
}

impl TaskState {
    pub(super) fn new(uuid: &str, name: &str, state: StateName, created_at: jiff::Timestamp) -> Self {
        Self {
            task_uuid: uuid.to_owned(),
            task_name: name.to_owned(),
            state,
            results: None,
            error: String::new(),
            created_at,
            ttl: 0,
        }
    }

    /// The state of a task that has not ended.
    pub(super) fn of_task(task: &Task, state: StateName) -> Self {
        let uuid = task.input.labels.get(LABEL).map_or("", String::as_str);
        Self::new(uuid, name_of(task), state, view::time(task.input.created_at))
    }

    /// The state of a task that has ended.
    pub(super) fn of_ended(task: &Task, ending: Ending) -> Self {
        let act = task.act(ActKey::forward(0));
        if ending == Ending::Succeeded {
            let returned = act.and_then(|act| act.result.as_ref()).map(|result| result.as_str());
            let state = Self::of_task(task, StateName::Success);
            return Self { results: Some(result::results(returned)), ..state };
        }
        let failure = act.and_then(|act| act.failure.as_ref()).map(|failure| failure.message.to_string());
        let error = match ending {
            Ending::Cancelled => "the task was cancelled".to_owned(),
            _ => failure.unwrap_or_else(|| "the task failed".to_owned()),
        };
        Self { error, ..Self::of_task(task, StateName::Failure) }
    }

    /// The same with this error.
    pub(super) fn because(self, error: String) -> Self {
        Self { error, ..self }
    }

    /// The document to write.
    pub(super) fn document(&self, keep: Option<std::time::Duration>) -> ResultDocument {
        // Serialization of this type cannot fail.
        let text = serde_json::to_string(self).unwrap_or_default();
        ResultDocument { id: self.task_uuid.clone(), text, keep }
    }
}

/// The name in the signature: the command of the only step.
fn name_of(task: &Task) -> &str {
    task.flow.steps.first().and_then(|step| step.run.worker()).map_or("", |(_, command)| command.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the task parameters of a signature with these additional fields.
    fn params(fields: &str) -> serde_json::Value {
        let text = format!(r#"{{"UUID":"u","Name":"add","Args":[{{"Type":"int64","Value":1}}]{fields}}}"#);
        let section = serde_json::from_str(r#"{"broker":"redis://127.0.0.1"}"#).unwrap();
        let settings = MachinerySettings::read(section).unwrap();
        let document =
            document(&Signature::parse(&text).unwrap(), &text, KeptText::IfFollowed, &settings).unwrap();
        let mut params = serde_json::from_str::<serde_json::Value>(&document).unwrap()["params"].take();
        assert_eq!(params["args"].take().to_string(), "[1]");
        if let Some(signature) = params.get("signature") {
            assert_eq!(signature.as_str(), Some(&*text));
        }
        params
    }

    #[test]
    fn only_what_something_follows_keeps_its_signature() {
        for plain in ["", r#","OnSuccess":null,"OnError":[],"ChordCallback":null,"GroupUUID":"g""#] {
            assert!(params(plain).get("signature").is_none(), "{plain}");
        }
        for follows in ["OnSuccess", "OnError"] {
            let fields = format!(r#","{follows}":[{{"UUID":"v","Name":"n"}}]"#);
            assert!(params(&fields).get("signature").is_some(), "{follows}");
        }
        assert!(params(r#","ChordCallback":{"UUID":"v","Name":"n"}"#).get("signature").is_some());
    }

    #[test]
    fn pauses_are_fibonacci_numbers() {
        let pauses: Vec<u32> = [0, 1, 2, 3, 4, 5].into_iter().map(above_in_fibonacci).collect();
        assert_eq!(pauses, [1, 2, 3, 5, 5, 8]);
        assert_eq!([u32::MAX - 1, u32::MAX].map(above_in_fibonacci), [u32::MAX; 2]);
    }
}
