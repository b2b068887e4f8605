//! Limits on concurrency and rates.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Direction, Span};

/// A limit as it is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetLimit {
    /// The queue, which is a module.
    pub queue: String,
    /// Only attempts of this command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether attempts of each key are counted for themselves; those without a key are not then.
    #[serde(default)]
    pub per_key: bool,
    /// The number of attempts that may run concurrently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub running: Option<u32>,
    /// The number of attempts that may begin in a span of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<LimitStarts>,
}

/// How many attempts may begin in a span of time, wherever the span begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitStarts {
    /// The number of starts.
    #[schema(minimum = 1, maximum = 100_000)]
    pub count: u32,
    /// The span of time in which they may begin.
    pub per: Span,
}

/// A limit and what counts under it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// The queue, which is a module.
    pub queue: String,
    /// Only attempts of this command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether attempts of each key are counted for themselves.
    pub per_key: bool,
    /// The number of attempts that may run concurrently.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// The number of attempts that may begin in a span of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<LimitStarts>,
    /// What counts under it, of all keys together.
    pub usage: LimitUsage,
    /// Who has running attempts, oldest first, at most 100.
    pub holders: Vec<LimitHolder>,
    /// What is odd about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What counts under a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitUsage {
    /// Running attempts.
    pub running: u64,
    /// Attempts that began within the last span.
    pub started: u64,
    /// When the next may begin, where the starts are used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub next_start_at: Option<Timestamp>,
}

/// A running attempt that counts under a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitHolder {
    /// Id of the task.
    pub task: String,
    /// Name of the step; missing if the task is damaged and cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Which item of the step, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u32>,
    /// Forward, or rolling back.
    pub direction: Direction,
    /// Number of the attempt.
    pub attempt: u32,
    /// The key it counts under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Name of the worker.
    pub worker: String,
}
