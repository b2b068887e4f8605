//! Lists of tasks.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::StepStatus;

/// A step that a task in a list is at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CurrentStep {
    /// As in the flow.
    pub name: String,
    /// What it is doing.
    pub status: StepStatus,
    /// Why its rollback, or else the step itself, failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Attempts made so far, of the rollback where that runs.
    #[serde(default)]
    pub attempts: u32,
    /// When the next attempt is due, while the step waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due_at: Option<Timestamp>,
    /// What it waits for beside workers and times: `signal NAME`, `task ID` or `lock NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// How many tasks meet filters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskCounts {
    /// All of them.
    pub total: u64,
    /// By the word of their status; a status that no task has is left out.
    pub by_status: BTreeMap<String, u64>,
    /// Send this as `cursor` to count the remaining tasks, and add the counts up; null at the end.
    pub next: Option<String>,
}
