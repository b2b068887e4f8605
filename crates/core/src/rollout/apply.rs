//! Changes of a rollout.

use thiserror::Error;

use super::{AbortCause, AbortThreshold, OpenDevice, Rollout, RolloutAbort, RolloutNote, RolloutStage, rate};
use crate::{
    Actor, Name, TaskId, Timestamp,
    planted::{Bug, is_planted},
};

/// A change of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutCommand {
    /// It starts nothing more until it is resumed.
    Pause {
        /// Who asked for it.
        by: Option<Actor>,
        /// Why.
        reason: Option<Box<str>>,
    },
    /// It goes on.
    Resume,
    /// It starts nothing more, and cancels what runs.
    Abort {
        /// Who asked for it.
        by: Option<Actor>,
        /// Why.
        reason: Option<Box<str>>,
    },
    /// A threshold is reached: as [`RolloutCommand::Abort`].
    Trip(AbortThreshold),
    /// Devices up to `cursor` were looked at, and the tasks of these are to be started.
    Start {
        /// Each with the id of its task, and its value of the label for groups.
        devices: Vec<(Name, TaskId, Option<Box<str>>)>,
        /// The last device that was looked at.
        cursor: Name,
    },
    /// Tasks were looked at, and these are to be rolled back.
    RollBack {
        /// Each with its device, and its value of the label for groups.
        devices: Vec<(Name, TaskId, Option<Box<str>>)>,
        /// Only older tasks have not been looked at; `None` = there is none.
        before: Option<TaskId>,
    },
    /// Everything of this stage is done.
    Finish,
}

/// Why a change of a rollout is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RolloutRejection {
    /// It has ended.
    #[error("it has ended")]
    Ended,
    /// It is being aborted.
    #[error("it is being aborted")]
    Aborting,
    /// It is paused already.
    #[error("it is paused already")]
    Paused,
    /// It is not paused.
    #[error("it is not paused")]
    NotPaused,
    /// It has not ended.
    #[error("it has not ended: abort it first, or wait for its end")]
    NotEnded,
    /// The command does not fit its stage.
    #[error("it is in another stage")]
    OtherStage,
}

impl Rollout {
    /// The rollout after `command`.
    ///
    /// # Errors
    /// When the command does not fit the state; nothing has changed then.
    pub fn apply(&self, command: RolloutCommand, now: Timestamp) -> Result<Self, RolloutRejection> {
        let mut next = Self { version: self.version + 1, ..self.clone() };
        match command {
            RolloutCommand::Pause { by, reason } => {
                self.may_change()?;
                if self.stage == RolloutStage::Paused {
                    return Err(RolloutRejection::Paused);
                }
                next.stage = RolloutStage::Paused;
                next.paused = Some(RolloutNote { at: now, by, reason });
            }
            RolloutCommand::Resume => {
                self.may_change()?;
                if self.stage != RolloutStage::Paused {
                    return Err(RolloutRejection::NotPaused);
                }
                (next.stage, next.paused) = (RolloutStage::Running, None);
                if is_planted(Bug::DeviceVisitedAgain) {
                    next.cursor = None;
                }
                if is_planted(Bug::RolloutRateForgotten) {
                    next.next_at = now;
                }
            }
            RolloutCommand::Abort { by, reason } => {
                self.may_change()?;
                next.abort(AbortCause::Operator { by, reason }, now);
            }
            RolloutCommand::Trip(threshold) => {
                self.may_change()?;
                next.abort(AbortCause::Threshold(threshold), now);
            }
            RolloutCommand::Start { devices, cursor } => {
                if self.stage_to_act_on() != RolloutStage::Running || self.next_at > now {
                    return Err(RolloutRejection::OtherStage);
                }
                let started = u32::try_from(devices.len()).unwrap_or(u32::MAX);
                if started > 0 {
                    next.next_at = now + rate::pause_after(started, self.per_minute());
                }
                next.cursor = Some(cursor);
                next.add(devices, true);
            }
            RolloutCommand::RollBack { devices, before } => {
                if self.stage != RolloutStage::RollingBack {
                    return Err(RolloutRejection::OtherStage);
                }
                let is_listed = before.is_none() || is_planted(Bug::RollbackListCut);
                (next.before, next.is_listed) = (before.or(self.before), is_listed);
                next.add(devices, false);
            }
            RolloutCommand::Finish => {
                if !self.open.is_empty() {
                    return Err(RolloutRejection::OtherStage);
                }
                next.stage = match self.stage {
                    RolloutStage::Cancelling => self.after_cancelling(),
                    RolloutStage::Running | RolloutStage::RollingBack => RolloutStage::Ended,
                    RolloutStage::Paused | RolloutStage::Ended => return Err(RolloutRejection::OtherStage),
                };
                next.ended_at = next.is_ended().then_some(now);
            }
        }
        Ok(next)
    }

    /// Whether operators may change it.
    fn may_change(&self) -> Result<(), RolloutRejection> {
        match self.stage {
            RolloutStage::Running | RolloutStage::Paused => Ok(()),
            RolloutStage::Cancelling | RolloutStage::RollingBack => Err(RolloutRejection::Aborting),
            RolloutStage::Ended => Err(RolloutRejection::Ended),
        }
    }

    fn abort(&mut self, cause: AbortCause, now: Timestamp) {
        (self.stage, self.paused) = (RolloutStage::Cancelling, None);
        self.abort = Some(RolloutAbort { at: now, cause });
    }

    fn add(&mut self, devices: Vec<(Name, TaskId, Option<Box<str>>)>, starts: bool) {
        for (device, task, group) in devices {
            let group = self.group(group.as_deref());
            if starts {
                self.groups[usize::from(group)].counts.started += 1;
            }
            self.open.push(OpenDevice(device, task, group));
        }
    }
}
