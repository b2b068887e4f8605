//! What a rollout starts, on which devices, and how fast.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Doer, Expression, Flow, JobArgs, JobTopic, Json, LockRef, Name, values::json::as_text};

/// The maximum number of tasks of a rollout that run at the same time.
pub const ROLLOUT_RUNNING_MAX: u32 = 1_000;

/// The highest rate, in devices per minute.
pub const PER_MINUTE_MAX: u32 = 60_000;

/// The maximum number of abort thresholds.
pub const THRESHOLDS_MAX: usize = 8;

/// The maximum number of labels in a selector.
pub const SELECTOR_LABELS_MAX: usize = 8;

/// The longest parameters of a rollout, in bytes: each change of the rollout writes them again.
pub const ROLLOUT_PARAMS_BYTES_MAX: usize = 16 << 10;

/// The factors of an exponential rate, in percent.
pub const FACTOR_PERCENT: std::ops::RangeInclusive<u32> = 101..=1_000;

/// What a rollout starts, on which devices, and how fast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutDefinition {
    /// The flow that is started for each device.
    pub flow: Name,
    /// Parameters of all tasks.
    #[serde(with = "as_text")]
    pub params: Json,
    /// Priority of all tasks.
    pub priority: i8,
    /// The devices: those that have all of these labels.
    pub selector: BTreeMap<String, String>,
    /// How many devices are started per minute.
    pub rate: RolloutRate,
    /// The maximum number of tasks that run at the same time.
    pub max_running: u32,
    /// It is aborted when one of these is reached.
    pub abort: Vec<AbortThreshold>,
    /// What happens to tasks that succeeded when it is aborted.
    pub on_abort: OnAbort,
    /// Progress is counted by the values of this label.
    pub group_by: Option<Box<str>>,
}

/// How many devices are started per minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RolloutRate {
    /// Always this many.
    Constant {
        /// The number.
        per_minute: u32,
    },
    /// More and more.
    Exponential {
        /// The first number.
        base: u32,
        /// The factor by which it grows, in percent: 150 = by half.
        factor_percent: u32,
        /// The highest number.
        per_minute_max: u32,
        /// It grows each time this many devices have succeeded.
        after: u32,
    },
}

/// A number of bad ends that aborts a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortThreshold {
    /// Which ends are counted.
    pub of: AbortOf,
    /// How many are too many.
    pub limit: AbortLimit,
    /// It holds once this many devices have ended.
    pub at_least: u32,
}

/// Which ends are counted for a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AbortOf {
    /// Tasks that failed, and those that were refused.
    Failed,
    /// Tasks whose timeout, deadline or `start_within` passed.
    TimedOut,
    /// All that did not succeed, also those that operators cancelled.
    Any,
}

/// How many bad ends are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AbortLimit {
    /// This many.
    Count(u32),
    /// This part of all devices that have ended, in percent.
    Percent(u32),
}

/// What happens to tasks that succeeded when a rollout is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnAbort {
    /// Nothing.
    Stop,
    /// They are rolled back.
    RollBack,
}

/// Why a definition cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RolloutFault {
    /// A rate is 0 or too high.
    #[error("`{key}` of the rate is {value}: use 1 to {PER_MINUTE_MAX}")]
    PerMinute {
        /// Its key.
        key: &'static str,
        /// Its value.
        value: u32,
    },
    /// The rate begins above its maximum.
    #[error(
        "the rate begins with {base} per minute, and `per_minute_max` is {max}: use a `base` of at most {max}"
    )]
    BaseAboveMax {
        /// The first rate.
        base: u32,
        /// The maximum.
        max: u32,
    },
    /// A rate that does not grow, or too fast.
    #[error(
        "`factor` of the rate must be from 1.01 to 10: use `rate: {{ per_minute: N }}` for a constant rate"
    )]
    Factor,
    /// The rate grows after nothing.
    #[error("`after` of the rate is 0: write after how many succeeded devices the rate grows")]
    After,
    /// Nothing may run, or too much.
    #[error("`max_running` is {0}: use 1 to {ROLLOUT_RUNNING_MAX}")]
    MaxRunning(u32),
    /// Too many thresholds.
    #[error("there are {0} abort thresholds: the limit is {THRESHOLDS_MAX}")]
    TooManyThresholds(usize),
    /// A percentage of 0 or above 100.
    #[error("the abort threshold {0} has `percent: {1}`: use 1 to 100")]
    Percent(usize, u32),
    /// A threshold that holds from the beginning.
    #[error("the abort threshold {0} has `count: 0`, so the rollout would never begin: use 1 or more")]
    Count(usize),
    /// Too many labels.
    #[error("`select` has {0} labels: the limit is {SELECTOR_LABELS_MAX}")]
    TooManyLabels(usize),
    /// The parameters are too long.
    #[error("`params` have {0} bytes: the limit is {ROLLOUT_PARAMS_BYTES_MAX}; pass a reference")]
    Params(usize),
}

impl RolloutDefinition {
    /// Checks what its types do not say.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), RolloutFault> {
        self.rate.check()?;
        if !(1..=ROLLOUT_RUNNING_MAX).contains(&self.max_running) {
            return Err(RolloutFault::MaxRunning(self.max_running));
        }
        if self.abort.len() > THRESHOLDS_MAX {
            return Err(RolloutFault::TooManyThresholds(self.abort.len()));
        }
        for (index, threshold) in self.abort.iter().enumerate() {
            match threshold.limit {
                AbortLimit::Percent(percent) if !(1..=100).contains(&percent) => {
                    return Err(RolloutFault::Percent(index + 1, percent));
                }
                AbortLimit::Count(0) => return Err(RolloutFault::Count(index + 1)),
                AbortLimit::Percent(_) | AbortLimit::Count(_) => {}
            }
        }
        if self.selector.len() > SELECTOR_LABELS_MAX {
            return Err(RolloutFault::TooManyLabels(self.selector.len()));
        }
        match self.params.as_str().len() {
            bytes if bytes > ROLLOUT_PARAMS_BYTES_MAX => Err(RolloutFault::Params(bytes)),
            _ => Ok(()),
        }
    }
}

impl RolloutRate {
    fn check(self) -> Result<(), RolloutFault> {
        let per_minute = |key, value| match (1..=PER_MINUTE_MAX).contains(&value) {
            true => Ok(()),
            false => Err(RolloutFault::PerMinute { key, value }),
        };
        match self {
            Self::Constant { per_minute: value } => per_minute("per_minute", value),
            Self::Exponential { base, factor_percent, per_minute_max, after } => {
                per_minute("base", base)?;
                per_minute("per_minute_max", per_minute_max)?;
                match () {
                    () if base > per_minute_max => {
                        Err(RolloutFault::BaseAboveMax { base, max: per_minute_max })
                    }
                    () if !FACTOR_PERCENT.contains(&factor_percent) => Err(RolloutFault::Factor),
                    () if after == 0 => Err(RolloutFault::After),
                    () => Ok(()),
                }
            }
        }
    }
}

/// The parameter with the name of the device.
pub const DEVICE_PARAM: &str = "device";

/// The parameter with the labels of the device.
pub const DEVICE_LABELS_PARAM: &str = "device_labels";

/// Whether a flow does something different for each device. Workers and child tasks get all parameters; jobs of devices and
/// signals depend on what their expressions read.
#[must_use]
pub fn uses_device(flow: &Flow) -> bool {
    let reads = |expression: &Expression| {
        [DEVICE_PARAM, DEVICE_LABELS_PARAM].iter().any(|param| expression.looks_at(param))
    };
    flow.steps.iter().any(|step| {
        let job = step.run.device_job();
        let topic = job.and_then(|job| match &job.topic {
            JobTopic::Expression(topic) => Some(topic),
            JobTopic::Fixed(_) => None,
        });
        let args = job.and_then(|job| match &job.args {
            JobArgs::Expression(args) => Some(args),
            JobArgs::Fixed(_) => None,
        });
        let locks = step.locks.iter().filter_map(|lock| match lock {
            LockRef::Expression(lock) => Some(lock),
            LockRef::Name(_) => None,
        });
        matches!(step.run.doer, Doer::Worker { .. } | Doer::Flow { .. })
            || step.when.iter().chain(topic).chain(args).chain(locks).any(reads)
    })
}
