//! Explains why a task does not move.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use jiff::Timestamp;

use crate::Direction;

/// Why a task is where it is: the answer of `GET /v1/tasks/{id}/why`.
///
/// A task can wait for several things at once. `sentence`, `reason`, `step` and `data` are about the first: what holds
/// the task as a whole, or its first step in definition order; `reasons` has them all.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// One sentence for people.
    pub sentence: String,
    /// The machine-readable reason: `no_worker`, `queued`, `running`, `retry`, `postponed`, `deadline`, `delayed`,
    /// `signal`, `child`, `lock`, `members`, `scheduled`, `task_paused`, `queue_paused`, `limit`, `offered`, `stuck`, `ending`, `ended`;
    /// `grace` for 300 ms after a start of the server, in which a worker may report that it already runs the attempt; `moving` while
    /// its state changes.
    pub reason: String,
    /// The step it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// More about it, by reason.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
    /// Everything it waits for, at most 20.
    #[serde(default)]
    pub reasons: Vec<WhyReason>,
    /// How many more there are.
    #[serde(default)]
    pub more: usize,
    /// When the task's own deadline ends, as long as its end starts the rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline_at: Option<Timestamp>,
}

/// One thing that a task waits for.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WhyReason {
    /// The machine-readable reason.
    pub reason: String,
    /// One sentence for people.
    pub sentence: String,
    /// The step it is about; left out where it is about the task as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The item of a step with `each`: its place in the list, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u32>,
    /// Forward or rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// When the deadline of the step's attempts ends, once it runs: from the claim of the first attempt on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline_at: Option<Timestamp>,
    /// More about it, by reason.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
}
