//! Alarms: problems that need an operator.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something that an operator must see.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Alarm {
    /// Its id.
    pub id: String,
    /// `rollback_failed`, `poisoned`, `held`, `engine_fault`; `refused` where a task that was started by SQL could not be;
    /// `broker_away` and `message_refused` about brokers; `clock_set_back` about the date of the server's machine;
    /// `damaged_row` where rows of the task are damaged;
    /// `trigger_failed` where a trigger did not start a task that it should have;
    /// `device_locked_too_long` and `device_flapping` about devices; `rollout_aborted` where a threshold aborted a rollout;
    /// `store_went_back` where the store lost what it had confirmed.
    pub kind: String,
    /// The task it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The step it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What happened and what to do.
    pub message: String,
    /// When it was raised last.
    #[schema(value_type = String, format = DateTime)]
    pub raised_at: Timestamp,
    /// How far people are with it.
    pub state: AlarmState,
    /// Who acknowledged or resolved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// How far people are with an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlarmState {
    /// No operator has acknowledged it.
    Raised,
    /// An operator has acknowledged it.
    Acknowledged,
    /// The problem is over.
    Resolved,
}
