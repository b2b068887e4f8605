//! Statuses of tasks and steps.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a task is doing, as its users see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Waits for its start time.
    Scheduled,
    /// Accepted; none of its steps was handed out yet.
    Pending,
    /// Steps run.
    Running,
    /// No step starts; attempts in flight finish.
    Pausing,
    /// Paused by an operator.
    Paused,
    /// Steps that may have had effects are rolled back in reverse order.
    RollingBack,
    /// All steps succeeded.
    Succeeded,
    /// A step finally failed, and all steps that may have had effects are rolled back.
    RolledBack,
    /// A step finally failed, and no step had to be rolled back.
    Failed,
    /// Cancelled by an operator; all steps that may have had effects are rolled back.
    Cancelled,
    /// Waits for an operator: see the alarms.
    Stuck,
}

impl TaskStatus {
    /// Every status.
    pub const ALL: [Self; 11] = [
        Self::Scheduled,
        Self::Pending,
        Self::Running,
        Self::Pausing,
        Self::Paused,
        Self::RollingBack,
        Self::Succeeded,
        Self::RolledBack,
        Self::Failed,
        Self::Cancelled,
        Self::Stuck,
    ];

    /// Whether the task has ended and will not change any more.
    #[must_use]
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::RolledBack | Self::Failed | Self::Cancelled)
    }

    /// The value in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::RollingBack => "rolling_back",
            Self::Succeeded => "succeeded",
            Self::RolledBack => "rolled_back",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Stuck => "stuck",
        }
    }
}

impl FromStr for TaskStatus {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|status| status.as_str() == word).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            format!("unknown status {word:?}: write one of {known}")
        })
    }
}

/// What a step is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Waits for its predecessors.
    Pending,
    /// Waits for a worker, or for the time of a retry.
    Ready,
    /// A worker has claimed it.
    Running,
    /// Succeeded.
    Succeeded,
    /// Finally failed.
    Failed,
    /// Skipped.
    Skipped,
    /// Its rollback waits or runs.
    RollingBack,
    /// Rolled back.
    RolledBack,
    /// Its rollback finally failed and needs an operator.
    RollbackFailed,
}

impl StepStatus {
    /// The value in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::RollingBack => "rolling_back",
            Self::RolledBack => "rolled_back",
            Self::RollbackFailed => "rollback_failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_known_by_its_word() {
        for status in TaskStatus::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        assert!("done".parse::<TaskStatus>().unwrap_err().contains("rolled_back"));
    }
}
