//! Pauses of tasks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a task is paused: the body of `POST /v1/tasks/{id}/pause`. It may be left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseTask {
    /// Also stop what runs: workers stop the attempts that they have. Each of these is made again after the resume, under
    /// a new number, and counts neither as a failure nor as a lost worker. The status is `pausing` until all have ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop: bool,
}
