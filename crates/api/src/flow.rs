//! Flows in the format of users: the body of `PUT /v1/flows/{name}` and of flow files.

mod step;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use step::*;

use crate::{Payload, Span};

/// A definition in the catalogue.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
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
    /// How long a task of it may take before it starts rolling back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// Which of its tasks are the same, so that a second one is not started beside the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<UniqueDocument>,
    /// The exclusive queue of its tasks: at most one task of the queue is under way at any time, the others wait in
    /// order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<LockDocument>,
    /// How long its ended tasks are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Span>,
    /// Which parameters rollbacks are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_params: Option<RollbackParams>,
    /// How many attempts of a step may be lost with their workers before it is held as poisoned: 1 to 1000, 3 when
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub deaths_max: Option<u32>,
    /// Names of parameters, and of values of results at any depth, that may only be references to secrets,
    /// `secret://NAME`: at most 64. Workers replace the references by the values; Windlass never has these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub secret: Vec<String>,
    /// An expression: what the attempts of its steps are counted under where a limit is by key. Steps may have one
    /// of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its steps, with `on_error` at most 256; each runs after the one before it unless `after` says otherwise.
    pub steps: Vec<StepDocument>,
    /// What is done once a task has failed, beside its rollback; it gets all errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<ActionDocument>,
}

/// Which tasks of a flow are the same: an expression, or an object.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum UniqueDocument {
    /// Those with the same value of this expression, while the first of them runs.
    Short(String),
    /// With settings of its own.
    Full(UniqueSettings),
}

/// Which tasks of a flow are the same, and for how long.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UniqueSettings {
    /// An expression over what is submitted: those with the same value are the same.
    pub key: String,
    /// For how long others are deduplicated to the first one; while it runs if it is missing.
    #[serde(default, rename = "while", skip_serializing_if = "Option::is_none")]
    pub during: Option<UniqueWhile>,
    /// With `while: finished`: for how long after its end.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub period: Option<Span>,
    /// What a submit gets whose key another task has; that task when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
}

/// What a submit gets while another task has its unique key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// The existing task, with status 200 (the default).
    Return,
    /// A refusal with status 409 that names the existing task.
    Fail,
}

/// For how long others like it are deduplicated to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UniqueWhile {
    /// Until its first step is handed out.
    Pending,
    /// Until it ends (the default).
    Running,
    /// Until a time after it ended.
    Finished,
}

/// Who makes the retries of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryBy {
    /// The engine (the default).
    Engine,
    /// The module itself.
    Module,
}

/// What a final failure does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Roll back, in reverse order, all steps that may have had effects (the default).
    Rollback,
    /// Hold the task until an operator decides.
    Hold,
}

/// Which parameters a rollback is given. The step's own result and the error are beside them in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RollbackParams {
    /// The parameters of its step or item (the default).
    Step,
    /// The same, overridden by the result of its step or item.
    StepAndResult,
    /// All parameters and results so far, as in the classic catalogue.
    Shared,
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
    /// Equal to the current version: nothing was changed.
    Unchanged,
}
