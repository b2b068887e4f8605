//! Triggers: what starts tasks by itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Existing, Payload, Problem, Span};

/// A trigger as it is applied: the body of `PUT /v1/triggers/{name}` and of trigger files. It has one of `cron`, `every`,
/// `http`, `mqtt` and `intake`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TriggerDocument {
    /// Its name. In `PUT /v1/triggers/{name}` it may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// A cron expression of five fields, or of six that begin with seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone of `cron`, by its name in the IANA database; UTC when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// An interval of elapsed time, from 1 second up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// Delays each instant by up to this much, each by its own time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    /// What becomes of instants that no server could fire in time; `none` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<TriggerCatchUp>,
    /// With `catch_up`: missed instants that are older are not fired; 1 hour when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_window: Option<Span>,
    /// What becomes of an instant while tasks of an earlier one run; `allow` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<TriggerOverlap>,
    /// It is fired by `POST /v1/triggers/{name}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<TriggerHttp>,
    /// It is fired by messages on topics of the network of devices, on the servers that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mqtt: Option<TriggerMqtt>,
    /// It is fired by the messages of a queue: a section `[[intake]]` in the configuration of the servers names queue and
    /// trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intake: Option<bool>,
    /// With `http`: requests that started all tasks are answered with status 200 and the classic document of the platform
    /// for devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classic: Option<bool>,
    /// The flows that it starts, one task of each: 1 to 16.
    pub flows: Vec<TriggerFlow>,
}

/// A flow that a trigger starts.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TriggerFlow {
    /// The flow; its newest version.
    pub flow: String,
    /// Parameters of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub params: Option<serde_json::Map<String, serde_json::Value>>,
    /// Parameters that are computed, by expressions over `trigger` and, with `http` and `intake`, `body`, or, with `mqtt`,
    /// `topic`, `levels` and `payload`. They override `params`. When left out, the body overrides `params`, or a payload that
    /// is an object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub map: BTreeMap<String, String>,
    /// Labels of the task, besides `trigger` and `instant`: at most 14.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Priority of the task, from -10 to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -10, maximum = 10)]
    pub priority: Option<i64>,
}

/// How requests to a trigger prove where they come from: by `secret`, or not at all.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TriggerHttp {
    /// The common secret: `whsec_` and base64 as in Standard Webhooks, or 24 to 512 characters. Answers never contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The header with an HMAC-SHA256 of the body in hexadecimal, with or without `sha256=` before it. When left out,
    /// requests are signed as in Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Accept requests without a signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsigned: Option<bool>,
}

impl std::fmt::Debug for TriggerHttp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secret = self.secret.as_ref().map(|_| "…");
        f.debug_struct("TriggerHttp")
            .field("secret", &secret)
            .field("header", &self.header)
            .field("unsigned", &self.unsigned)
            .finish()
    }
}

/// The messages of the network of devices that fire a trigger.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TriggerMqtt {
    /// A topic filter: `+` matches one level, `#` at the end any number of levels.
    pub topic: String,
    /// An expression over `topic`, `levels` and `payload` that gives the id of a message, of at most 255 bytes. A message with
    /// the id of an earlier one starts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// What becomes of instants that no server could fire in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerCatchUp {
    /// They are counted, and not fired (the default).
    None,
    /// The newest one is fired.
    One,
    /// All are fired, one after the other.
    All,
}

/// What becomes of an instant while tasks of an earlier one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerOverlap {
    /// It is fired (the default).
    Allow,
    /// It is skipped.
    Skip,
    /// It is fired when those tasks have ended; at most 100 wait.
    Queue,
    /// Those tasks are cancelled, and it is fired.
    CancelOther,
}

/// A trigger.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Trigger {
    /// Its name.
    pub name: String,
    /// Its definition, without its secret.
    pub definition: TriggerDocument,
    /// Whether it is paused.
    pub paused: bool,
    /// Since when it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub paused_at: Option<Timestamp>,
    /// Who paused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_by: Option<String>,
    /// When it fires next by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_at: Option<Timestamp>,
    /// The last instant of its schedule that was fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_at: Option<Timestamp>,
    /// Instants that wait for the end of earlier tasks.
    pub waiting: usize,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When its definition was changed last.
    #[schema(value_type = String, format = DateTime)]
    pub changed_at: Timestamp,
    /// Possible mistakes in it, such as a flow that does not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The answer to an applied trigger.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TriggerApplied {
    /// The trigger as it is now.
    pub trigger: Trigger,
    /// What has changed.
    pub change: crate::FlowChange,
}

/// An operator fires a trigger.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FireTrigger {
    /// Parameters that override those of the trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub params: Option<Payload>,
}

/// What a fired trigger has started.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TriggerFired {
    /// The trigger.
    pub trigger: String,
    /// A task of each of its flows, in their order.
    pub tasks: Vec<TriggerTask>,
}

/// A task that a trigger started, or was to start.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TriggerTask {
    /// Its flow.
    pub flow: String,
    /// The id of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Why no new task was started: this one exists already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<Existing>,
    /// Why no task was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// What a trigger did.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TriggerEntry {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What fired it: `schedule`, `request`, `message` or `operator`.
    pub cause: String,
    /// The instant of its schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub instant: Option<Timestamp>,
    /// `fired`; `skipped` or `queued` because tasks of an earlier instant ran; `missed` because no server was there in time.
    pub outcome: String,
    /// The number of instants that were missed before this one, counted to 1,000.
    pub missed: u64,
    /// The tasks that it started, or was to start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TriggerEntryTask>,
    /// The operator who fired it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A task in the history of a trigger.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TriggerEntryTask {
    /// Its flow.
    pub flow: String,
    /// The id of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Why no task was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The classic answer to a request that started all its tasks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClassicJobStarted {
    /// 200.
    pub code: u16,
    /// 0.
    pub error: i32,
    /// `job started successfully`.
    pub msg: String,
    /// An empty object.
    #[schema(value_type = Object)]
    pub data: serde_json::Map<String, serde_json::Value>,
}

impl Default for ClassicJobStarted {
    fn default() -> Self {
        Self { code: 200, error: 0, msg: "job started successfully".to_owned(), data: serde_json::Map::new() }
    }
}
