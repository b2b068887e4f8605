//! How far the devices of a rollout are.

use serde::{Deserialize, Serialize};

use super::{Rollout, RolloutStage};
use crate::{Cause, DEADLINE_CODE, Ending, Phase, START_CODE, TIMEOUT_CODE, Task};

/// The progress of the devices of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutGroup {
    /// The value of the label; `None` = devices without it, and those of groups beyond the maximum.
    pub value: Option<Box<str>>,
    /// Its devices.
    pub counts: RolloutCounts,
}

/// Numbers of devices. Each started one is open, or in one of the ends that follow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutCounts {
    /// Devices that the selector had at the start.
    pub matched: u64,
    /// Devices whose tasks were started, or are about to be.
    pub started: u64,
    /// Tasks that succeeded, also those that were rolled back later.
    pub succeeded: u64,
    /// Tasks that failed.
    pub failed: u64,
    /// Tasks whose timeout, deadline or `start_within` passed.
    pub timed_out: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Devices whose tasks were refused.
    pub refused: u64,
    /// Tasks that were cancelled by the abort, and whose rollback waits for an operator.
    pub stuck: u64,
    /// Tasks that were deleted before their end was counted.
    pub gone: u64,
    /// Tasks that succeeded and were rolled back.
    pub rolled_back: u64,
    /// Tasks that succeeded and have nothing to roll back, or were deleted before that.
    pub kept: u64,
    /// Tasks that succeeded, and whose rollback waits for an operator.
    pub rollback_stuck: u64,
}

/// How the task of an open device ended, or why it is not looked at any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEnd {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// It was too late.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// It was refused.
    Refused,
    /// The rollout was aborted, and its rollback waits for an operator.
    Stuck,
    /// It was deleted before its end was seen.
    Gone,
    /// The rollout was aborted before it was started.
    NotStarted,
    /// It had succeeded, and was rolled back.
    RolledBack,
    /// It had succeeded, and cannot be rolled back.
    Kept,
    /// It had succeeded, and its rollback waits for an operator.
    RollbackStuck,
}

/// How far the task of an open device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceProgress {
    /// It has not ended.
    Running,
    /// It has not ended, and will not succeed: it rolls back, or waits for an operator. It counts for thresholds.
    Failing(DeviceEnd),
    /// It is not looked at any more.
    Ended(DeviceEnd),
}

impl RolloutCounts {
    /// Both together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            matched: self.matched + other.matched,
            started: self.started + other.started,
            succeeded: self.succeeded + other.succeeded,
            failed: self.failed + other.failed,
            timed_out: self.timed_out + other.timed_out,
            cancelled: self.cancelled + other.cancelled,
            refused: self.refused + other.refused,
            stuck: self.stuck + other.stuck,
            gone: self.gone + other.gone,
            rolled_back: self.rolled_back + other.rolled_back,
            kept: self.kept + other.kept,
            rollback_stuck: self.rollback_stuck + other.rollback_stuck,
        }
    }

    /// The number of devices whose tasks have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        let bad = self.failed + self.timed_out + self.cancelled + self.refused;
        self.succeeded + bad + self.stuck + self.gone
    }

    /// Counts the end of a device.
    pub fn count(&mut self, end: DeviceEnd) {
        match end {
            DeviceEnd::Succeeded => self.succeeded += 1,
            DeviceEnd::Failed => self.failed += 1,
            DeviceEnd::TimedOut => self.timed_out += 1,
            DeviceEnd::Cancelled => self.cancelled += 1,
            DeviceEnd::Refused => self.refused += 1,
            DeviceEnd::Stuck => self.stuck += 1,
            DeviceEnd::Gone => self.gone += 1,
            DeviceEnd::NotStarted => self.started = self.started.saturating_sub(1),
            DeviceEnd::RolledBack => self.rolled_back += 1,
            DeviceEnd::Kept => self.kept += 1,
            DeviceEnd::RollbackStuck => self.rollback_stuck += 1,
        }
    }
}

impl Rollout {
    /// How far the task of an open device is for this stage.
    #[must_use]
    pub fn progress_of(&self, task: &Task) -> DeviceProgress {
        let is_stuck = task.state.stuck.is_some();
        match (self.stage, task.state.phase) {
            (RolloutStage::RollingBack, Phase::Ended(Ending::Succeeded)) => DeviceProgress::Running,
            (RolloutStage::RollingBack, Phase::Ended(_)) => DeviceProgress::Ended(DeviceEnd::RolledBack),
            (RolloutStage::RollingBack, Phase::Backward) if is_stuck => {
                DeviceProgress::Ended(DeviceEnd::RollbackStuck)
            }
            (RolloutStage::RollingBack, _) => DeviceProgress::Running,
            (RolloutStage::Cancelling, Phase::Backward) if is_stuck => {
                DeviceProgress::Ended(DeviceEnd::Stuck)
            }
            (_, Phase::Ended(Ending::Succeeded)) => DeviceProgress::Ended(DeviceEnd::Succeeded),
            (_, Phase::Ended(_)) => DeviceProgress::Ended(bad_end(task)),
            (_, Phase::Backward) => DeviceProgress::Failing(bad_end(task)),
            _ if is_stuck => DeviceProgress::Failing(DeviceEnd::Failed),
            _ => DeviceProgress::Running,
        }
    }
}

/// How a task ends that rolls back, or how it has ended.
fn bad_end(task: &Task) -> DeviceEnd {
    let late = [TIMEOUT_CODE, DEADLINE_CODE, START_CODE];
    match &task.state.cause {
        Some(Cause::Cancel { .. }) => DeviceEnd::Cancelled,
        Some(Cause::Deadline) => DeviceEnd::TimedOut,
        _ if task.failed_step().is_some_and(|failure| late.contains(&failure.code)) => DeviceEnd::TimedOut,
        _ => DeviceEnd::Failed,
    }
}
