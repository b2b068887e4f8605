//! Steps in the format of users, as parts of flows.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Span;

/// One step of a flow. It has `run`, `wait` or `device`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDocument {
    /// Its name, unlike the other steps' names.
    pub name: String,
    /// `MODULE.COMMAND`, or `flow.NAME` for a task of another flow that the step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The signal that it waits for instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// The device that executes it, instead of `run`: its name, or an object with an expression that makes the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<LockDocument>,
    /// For a job of a device: the topic to publish to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<LockDocument>,
    /// For a job of a device: its arguments, or `{expression: TEXT}` that computes them; none when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub args: Option<serde_json::Map<String, serde_json::Value>>,
    /// For a job of a device: the topic of the answer; any topic that ends in `done` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// For a job of a device: what happens while the device is offline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<WhileOffline>,
    /// For a job of a device: how long after a timeout the device stays locked for a late answer; 5 s when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<Span>,
    /// An expression: the step is skipped unless this is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The parameter with a list: it is done once for each element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<String>,
    /// With `each`: how many items run concurrently; 100 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    /// What the failure of an item, or of a step that it joins, means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_partial: Option<OnPartialDocument>,
    /// How long it waits once the steps before it are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// How long an attempt may wait for a worker that takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_within: Option<Span>,
    /// How long one attempt may take; 5 minutes when left out. Of a step that waits for a signal or a task: how long
    /// it waits, without end when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How long all attempts together may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// How often a failure is tried again; not at all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryDocument>,
    /// An expression: what its attempts are counted under where a limit is by key; the flow's when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The locks it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks: Option<Vec<LockDocument>>,
    /// How it is rolled back. A step without a rollback is skipped while the task rolls back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<ActionDocument>,
    /// The steps that must be done before it; the one before it when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<String>>,
}

impl StepDocument {
    /// A step with this name and action, and defaults otherwise.
    #[must_use]
    pub fn new(name: impl Into<String>, run: impl Into<String>) -> Self {
        Self { name: name.into(), run: Some(run.into()), ..Self::default() }
    }
}

/// What the failure of a part means: `fail`, `continue`, or how many must succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum OnPartialDocument {
    /// The step fails as well, or goes on with what succeeded.
    Word(OnPartial),
    /// It goes on if at least this many succeeded.
    AtLeast(u32),
}

/// What the failure of a part means for the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnPartial {
    /// The step fails too (the default).
    Fail,
    /// The task continues with the successful ones.
    Continue,
}

/// A lock that a step needs: its name, or an object with an expression that makes the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum LockDocument {
    /// Always this one.
    Name(String),
    /// The one that the parameters name.
    Expression(LockExpression),
}

/// What happens to a job while its device is offline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhileOffline {
    /// It waits, at most for the step's `start_within` (the default).
    Wait,
    /// It fails.
    Fail,
}

/// A lock whose name is made of parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LockExpression {
    /// The expression that makes its name.
    pub expression: String,
}

/// What rolls a step back, or runs after errors: `MODULE.COMMAND`, or an object.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ActionDocument {
    /// `MODULE.COMMAND` with the defaults.
    Short(String),
    /// With settings of its own.
    Full(Box<ActionSettings>),
}

/// An action with settings of its own.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActionSettings {
    /// `MODULE.COMMAND`. The rollback of a step with `device` may have `topic` instead: a job of the same device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// For a job of a device: the topic to publish to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<LockDocument>,
    /// For a job of a device: its arguments, or `{expression: TEXT}` that computes them; none when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub args: Option<serde_json::Map<String, serde_json::Value>>,
    /// For a job of a device: the topic of the answer; any topic that ends in `done` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// For a job of a device: what happens while the device is offline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<WhileOffline>,
    /// For a job of a device: how long after a timeout the device stays locked for a late answer; 5 s when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<Span>,
    /// How long an attempt may wait for a worker that takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_within: Option<Span>,
    /// How long one attempt may take; 5 minutes when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How long all attempts together may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// How often a failure is tried again; not at all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryDocument>,
}

/// How often a failed attempt is tried again: a number, or an object.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum RetryDocument {
    /// This often, with exponential back-off from 1 s to 1 minute.
    Short(u32),
    /// With settings of its own.
    Full(RetrySettings),
}

/// How often and how fast a failed attempt is tried again.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySettings {
    /// This often: 3 means at most 4 attempts.
    pub max: u32,
    /// How the delay grows; exponential when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffKind>,
    /// The first delay; 1 s when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Span>,
    /// The longest delay; 1 minute when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<Span>,
}

/// How the delay between attempts grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackoffKind {
    /// Doubles each time, with jitter.
    Exponential,
    /// Constant, with jitter.
    Fixed,
    /// No delay.
    None,
}
