//! Signals, which steps can wait for instead of a worker.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Payload;

/// A signal to a task: the body of `POST /v1/tasks/{id}/signals/{name}`. All of it may be left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    /// What the step that waits for the signal returns: a JSON object of at most 256 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub params: Option<Payload>,
    /// Whether the signal is kept for its step when none waits for it yet; `true` when left out. With `false` it is
    /// refused then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
}
