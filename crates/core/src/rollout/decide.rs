//! What is to be done next.

use super::{
    AbortLimit, AbortOf, AbortThreshold, DeviceProgress, OnAbort, Rollout, RolloutCounts, RolloutStage, rate,
};
use crate::{
    Timestamp,
    planted::{Bug, is_planted},
};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutDecision {
    /// Nothing before this time; `None` = nothing until a task ends or an operator does something.
    Wait(Option<Timestamp>),
    /// Start at most this many devices. When there is none any more and no device is open, the rollout has ended.
    Start(usize),
    /// Abort: this threshold is reached.
    Abort(AbortThreshold),
    /// Roll back at most this many of the tasks that succeeded.
    RollBack(usize),
    /// Everything is done.
    Finish,
}

impl Rollout {
    /// What is to be done now. `failing`: how open devices will end that are known to end badly, as [`Rollout::settle`]
    /// has returned it.
    #[must_use]
    pub fn decide(&self, failing: &RolloutCounts, now: Timestamp) -> RolloutDecision {
        if matches!(self.stage, RolloutStage::Running | RolloutStage::Paused)
            && let Some(reached) = self.reached(failing)
            && !is_planted(Bug::ThresholdIgnored)
        {
            return RolloutDecision::Abort(reached);
        }
        let most = usize::try_from(self.definition.max_running).unwrap_or(usize::MAX);
        let open = if is_planted(Bug::RolloutWindowIgnored) { 0 } else { self.open.len() };
        let room = most.saturating_sub(open);
        match self.stage_to_act_on() {
            RolloutStage::Ended | RolloutStage::Paused => RolloutDecision::Wait(None),
            RolloutStage::Running if room == 0 => RolloutDecision::Wait(None),
            RolloutStage::Running if self.next_at > now => RolloutDecision::Wait(Some(self.next_at)),
            RolloutStage::Running => {
                let portion = usize::try_from(rate::portion(self.per_minute())).unwrap_or(usize::MAX);
                RolloutDecision::Start(room.min(portion))
            }
            RolloutStage::Cancelling if !self.open.is_empty() => RolloutDecision::Wait(None),
            RolloutStage::Cancelling => RolloutDecision::Finish,
            RolloutStage::RollingBack if !self.is_listed && room > 0 => RolloutDecision::RollBack(room),
            RolloutStage::RollingBack if !self.open.is_empty() => RolloutDecision::Wait(None),
            RolloutStage::RollingBack => RolloutDecision::Finish,
        }
    }

    /// The stage that decides what is done next.
    pub(super) fn stage_to_act_on(&self) -> RolloutStage {
        match self.stage {
            RolloutStage::Paused if is_planted(Bug::RolloutPauseIgnored) => RolloutStage::Running,
            stage => stage,
        }
    }

    /// The number of devices that are started per minute now.
    #[must_use]
    pub fn per_minute(&self) -> u32 {
        self.definition.rate.per_minute(self.total().succeeded)
    }

    /// The threshold that is reached, if there is one.
    fn reached(&self, failing: &RolloutCounts) -> Option<AbortThreshold> {
        let counts = self.total().and(failing);
        let ended = counts.ended();
        self.definition.abort.iter().copied().find(|threshold| {
            let bad = match threshold.of {
                AbortOf::Failed => counts.failed + counts.refused,
                AbortOf::TimedOut => counts.timed_out,
                AbortOf::Any => ended - counts.succeeded - counts.gone,
            };
            let is_reached = match threshold.limit {
                AbortLimit::Count(count) => bad >= count.into(),
                AbortLimit::Percent(percent) => bad > 0 && bad * 100 >= ended * u64::from(percent),
            };
            is_reached && ended >= threshold.at_least.into()
        })
    }

    /// What follows when the tasks that ran at an abort have ended.
    pub(super) fn after_cancelling(&self) -> RolloutStage {
        match self.definition.on_abort {
            OnAbort::RollBack if self.total().succeeded > 0 => RolloutStage::RollingBack,
            OnAbort::RollBack | OnAbort::Stop => RolloutStage::Ended,
        }
    }

    /// The rollout after the ends of open devices were counted, and how those end that are known to end badly. `progress` has
    /// one entry for each open device. The same version = nothing has ended.
    #[must_use]
    pub fn settle(&self, progress: &[DeviceProgress]) -> (Self, RolloutCounts) {
        let (mut next, mut failing) = (Self { open: Vec::new(), ..self.clone() }, RolloutCounts::default());
        for (device, progress) in self.open.iter().zip(progress) {
            match progress {
                DeviceProgress::Ended(end) => {
                    if let Some(group) = next.groups.get_mut(usize::from(device.2)) {
                        group.counts.count(*end);
                        if is_planted(Bug::ProgressCountedTwice) && self.stage == RolloutStage::Paused {
                            group.counts.count(*end);
                        }
                    }
                    continue;
                }
                DeviceProgress::Failing(end) => failing.count(*end),
                DeviceProgress::Running => {}
            }
            next.open.push(device.clone());
        }
        if next.open.len() < self.open.len() {
            next.version += 1;
        }
        (next, failing)
    }
}
