//! Items: a step with `each` runs once for each element of a list.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Payload, Progress, StepRollback, StepStatus};

/// The number of items of a step in each state; all but `rolled_back` add up to `total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberCounts {
    /// Elements of the list.
    pub total: u32,
    /// Have not begun yet, or are to begin again.
    pub pending: u32,
    /// Wait for a worker, or for a retry's time.
    pub ready: u32,
    /// A worker has them.
    pub running: u32,
    /// Done.
    pub succeeded: u32,
    /// Failed for good.
    pub failed: u32,
    /// It will not run: the step was settled, or the task started rolling back before.
    pub skipped: u32,
    /// Rolled back. They also count under the result of their forward execution.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rolled_back: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// One item of a step with `each`, as in `GET /v1/tasks/{id}/steps/{step}/members`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Place of its element in the list, from 0.
    pub index: u32,
    /// What doing it came to so far: `pending`, `ready`, `running`, `succeeded`, `failed` or `skipped`.
    pub status: StepStatus,
    /// Why it failed last, until it is done.
    pub message: Option<String>,
    /// Exit code of the last failure, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Attempts made so far. An attempt that waits for a worker, a lock or a signal does not count yet.
    pub attempts: u32,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Payload>,
    /// When its first attempt was handed out.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it was settled.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// When the next attempt is due, while it waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due_at: Option<Timestamp>,
    /// What it waits for beside workers and times: `task ID` or `lock NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The task that does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// The worker that has it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Progress of the running attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Its rollback, if the flow has one and it may be needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<StepRollback>,
}
