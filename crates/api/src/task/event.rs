//! Events of tasks, and log lines of their attempts.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Direction;

/// One thing that happened to a task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number in the task, from 1. Missing on live notices that are not part of the history
    /// (`step.started` and `step.progress` while the attempt runs, `step.log` where lines are asked for).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// Id of the task.
    pub task: String,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// `task.accepted`, `step.failed`, …
    pub kind: String,
    /// The step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The item of a step with `each`: its place in the list, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u32>,
    /// Number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Forward or rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Who did it, if an operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// More about it, by kind.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
}

/// A line an attempt wrote.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Its number: it grows within a task, with gaps, and stays the same when older lines are deleted.
    pub number: u64,
    /// When the server got it.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The step.
    pub step: String,
    /// The item of a step with `each`: its place in the list, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u32>,
    /// Forward or rollback.
    pub direction: Direction,
    /// Number of the attempt.
    pub attempt: u32,
    /// The line.
    pub line: String,
}
