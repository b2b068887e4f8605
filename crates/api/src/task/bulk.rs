//! Changes of many tasks at once: the filter, the action and the result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::TaskStatus;

/// What to do with all tasks that meet a filter: the body of `POST /v1/tasks/bulk`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkChange {
    /// What to do with each.
    pub action: BulkAction,
    /// Which tasks; at least one field must be given.
    pub filter: BulkFilter,
    /// How many tasks are expected to meet it: without it they are only counted. When the count of now is more than a
    /// tenth away from it, nothing is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u64>,
}

/// What to do with many tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BulkAction {
    /// No step starts; steps that may have had effects are rolled back.
    Cancel,
    /// No step starts.
    Pause,
    /// No step starts, and workers stop the attempts that they have.
    Stop,
    /// Paused tasks continue.
    Resume,
}

impl BulkAction {
    /// The value in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Stop => "stop",
            Self::Resume => "resume",
        }
    }
}

/// Which tasks: those that meet all that is given, and of which the action would change something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkFilter {
    /// Only with one of these statuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<TaskStatus>,
    /// Only of this flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// Only with all of these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Only accepted at or after this time: RFC 3339, or how long ago (`15m`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Only accepted before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// What came of a [`BulkChange`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkAnswer {
    /// How many tasks met the filter.
    pub matched: u64,
    /// With how many it was done.
    pub done: u64,
    /// How many did not take it any more: they went on meanwhile.
    pub refused: u64,
    /// How many are left: one call acts on at most 10,000. Call again with `expect` set to this.
    pub left: u64,
}
