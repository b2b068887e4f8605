//! Runs tasks again, from one of their steps.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Payload;

/// How a task is run again: the body of `POST /v1/tasks/{id}/rerun`. All of it may be left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RerunTask {
    /// The step to begin at; when left out, the first that was not done or was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Parameters that override those of the old task: a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub params: Option<Payload>,
    /// Start although a task with the same unique key exists. The history records who asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub override_unique: bool,
    /// Idempotency key, the same thing as the header `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}
