//! Writes an event of a task as a CloudEvent 1.0 in JSON (structured mode).

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value, json};
use windlass_api as api;
use windlass_brokers::{Announcement, Message};
use windlass_core::{Event, Task};
use windlass_engine::services::WriteEvent;

use crate::http::event_document;

/// The media type of the messages.
const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

/// Digits of a sequence number: those of the largest `u64`, so that sequence numbers sort as text too.
const SEQUENCE_DIGITS: usize = 20;

/// The most changed parameters that an event names.
const NAMES_MAX: usize = 100;

/// Writes events as CloudEvents.
#[derive(Debug)]
pub(super) struct Writer {
    source: String,
}

impl Writer {
    pub(super) fn new(source: String) -> Self {
        Self { source }
    }
}

/// The attributes, in the order in which an operator reads them.
#[derive(Debug, Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    /// The task and the number of the event: the same when the event is sent again.
    id: &'a str,
    source: &'a str,
    /// Its kind, such as `windlass.task.accepted`.
    #[serde(rename = "type")]
    kind: String,
    /// The id of the task.
    subject: &'a str,
    time: jiff::Timestamp,
    datacontenttype: &'static str,
    /// Extension *partitioning*: keeps the events of a task in order.
    partitionkey: &'a str,
    /// Extension *sequence*: the number of the event in its task.
    sequence: String,
    data: Data<'a>,
}

/// The event as `GET /v1/tasks/{id}/events` shows it, and the flow of its task.
#[derive(Debug, Serialize)]
struct Data<'a> {
    flow: &'a str,
    version: u32,
    #[serde(flatten)]
    event: &'a api::Event,
}

impl WriteEvent for Writer {
    fn announcement(&self, task: &Task, n: u64, event: &Event) -> Announcement {
        let mut event = event_document(task, n, event);
        if event.kind == "step.amended" {
            event.data = amended_names(&event.data);
        }
        let id = format!("{}/{n}", event.task);
        let document = CloudEvent {
            specversion: "1.0",
            id: &id,
            source: &self.source,
            kind: format!("windlass.{}", event.kind),
            subject: &event.task,
            time: event.at,
            datacontenttype: "application/json",
            partitionkey: &event.task,
            sequence: format!("{n:0SEQUENCE_DIGITS$}"),
            data: Data { flow: &task.flow.name, version: task.flow.version, event: &event },
        };
        // Serialization of this type cannot fail.
        let body = escaped(serde_json::to_string(&document).unwrap_or_default());
        let message = Message::new(&id, &event.task, body).with_header("content-type", CONTENT_TYPE);
        Announcement { subject: event.kind, message }
    }
}

/// The names of the parameters that an operator has changed. Their values are only shown to clients of the
/// server.
fn amended_names(data: &Value) -> Value {
    let none = Map::new();
    let side = |name: &str| data[name].as_object().unwrap_or(&none);
    let (before, after) = (side("before"), side("after"));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    json!({ "changed": changed.take(NAMES_MAX).collect::<Vec<_>>() })
}

/// Escapes two characters that some brokers refuse in text. They can only be inside of JSON strings.
fn escaped(document: String) -> String {
    if !document.contains(['\u{fffe}', '\u{ffff}']) {
        return document;
    }
    document.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_named_and_not_told() {
        let data = json!({ "before": { "password": "old", "size": 1 }, "after": { "password": "new", "size": 1, "x": 2 } });
        assert_eq!(amended_names(&data), json!({ "changed": ["password", "x"] }));
    }

    #[test]
    fn a_document_has_no_characters_that_brokers_refuse() {
        let text = "a\u{fffe}b\u{ffff}";
        let document = escaped(serde_json::to_string(text).unwrap());
        assert_eq!(document, r#""a\ufffeb\uffff""#);
        assert_eq!(serde_json::from_str::<String>(&document).unwrap(), text);
    }
}
