//! Submits with many tasks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Existing, Payload, Problem, SubmitTask};

/// Many tasks at once: the body of `POST /v1/tasks/batch`, at most 8 MiB and 10,000 tasks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitBatch {
    /// Each is accepted or refused for itself.
    #[schema(value_type = Vec<SubmitTask>)]
    pub tasks: Vec<Payload>,
}

/// What became of each task of a batch, in its order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SubmitBatchAnswer {
    /// One per task of the batch.
    pub results: Vec<BatchResult>,
}

/// What became of one task of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchResult {
    /// The HTTP status the task would have got by itself.
    pub status: u16,
    /// Its id, when it was accepted, or that of the task that exists already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// With status 200: why no task was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<Existing>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}
