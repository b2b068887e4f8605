//! Why a task does not move.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a task is where it is: the answer of `GET /v1/tasks/{id}/why`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// One sentence for people.
    pub sentence: String,
    /// The machine-readable reason: `no_worker`, `queued`, `running`, `retry`, `scheduled`, `task_paused`,
    /// `queue_paused`, `stuck`, `ending`, `ended`, `grace`.
    pub reason: String,
    /// The step it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// More about it, by reason.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
}
