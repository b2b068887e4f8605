//! What happened to a task as a CloudEvent 1.0, in JSON (structured mode).

use serde::Serialize;
use windlass_api as api;
use windlass_brokers::{Announcement, Message};
use windlass_core::{Event, Task};
use windlass_engine::services::WriteEvent;

use crate::http::event_document;

/// The media type of the messages.
const CONTENT_TYPE: &str = "application/cloudevents+json; charset=utf-8";

/// Digits of a sequence number: as many as the greatest has, so that they are in order as texts too.
const SEQUENCE_DIGITS: usize = 20;

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

/// The attributes, in the order in which people read them.
#[derive(Debug, Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    /// The task and the number of the event: the same when it is sent again.
    id: &'a str,
    source: &'a str,
    /// Its kind, such as `windlass.task.accepted`.
    #[serde(rename = "type")]
    kind: String,
    /// The task.
    subject: &'a str,
    time: jiff::Timestamp,
    datacontenttype: &'static str,
    /// Extension *partitioning*: events of a task are in order.
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
        let event = event_document(task, n, event);
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
        // Documents of this kind can always be written.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let message = Message::new(&id, &event.task, body).with_header("content-type", CONTENT_TYPE);
        Announcement { subject: event.kind, message }
    }
}
