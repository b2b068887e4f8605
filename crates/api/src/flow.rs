//! Flows as users write and read them: the body of `PUT /v1/flows/{name}` and of flow files.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Payload, Span};

/// A definition in the catalogue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowDocument {
    /// Its name. In `PUT /v1/flows/{name}` it may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// Parameters common to all its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub params: Option<serde_json::Map<String, serde_json::Value>>,
    /// Who makes the retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_by: Option<RetryBy>,
    /// What a final failure does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// 1 to 256 steps; each runs after the one before it unless `after` says otherwise.
    pub steps: Vec<StepDocument>,
}

/// One step of a flow.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDocument {
    /// Its name, unlike the other steps' names.
    pub name: String,
    /// `MODULE.COMMAND`.
    pub run: String,
    /// How long one attempt may take; 5 minutes when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How long all attempts together may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// How often a failure is tried again; not at all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryDocument>,
    /// How it is undone; a step without is passed over on the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<RollbackDocument>,
    /// The steps that must be done before it; the one before it when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<String>>,
}

/// The undo of a step: `MODULE.COMMAND`, or an object.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum RollbackDocument {
    /// `MODULE.COMMAND` with the defaults.
    Short(String),
    /// With settings of its own.
    Full(RollbackSettings),
}

/// The undo of a step with settings of its own.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackSettings {
    /// `MODULE.COMMAND`.
    pub run: String,
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
    /// Twice as long each time, with jitter.
    Exponential,
    /// The same each time, with jitter.
    Fixed,
    /// None: at once.
    None,
}

/// Who makes the retries of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryBy {
    /// Windlass (the default).
    Engine,
    /// The module loops by itself.
    Module,
}

/// What a final failure does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Undo every touched step in reverse order (the default).
    Rollback,
    /// Hold the task until a person decides.
    Hold,
}

/// A stored flow.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// Its version, from 1.
    pub version: u32,
    /// When this version was applied.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// What it does, with the defaults left out.
    #[schema(value_type = FlowDocument)]
    pub definition: Payload,
}

/// What applying or checking a flow did.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FlowApplied {
    /// Its name.
    pub name: String,
    /// Its version now.
    pub version: u32,
    /// Whether there was none before, a new version was made, or nothing changed.
    pub change: FlowChange,
}

/// What applying a flow did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowChange {
    /// The first version.
    Created,
    /// A new version.
    Updated,
    /// The same as the version before: nothing was done.
    Unchanged,
}
