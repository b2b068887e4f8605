//! Rollouts: a flow for each device of a fleet, a few at a time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A rollout as it is started: the body of `PUT /v1/rollouts/{name}` and of rollout files.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutDocument {
    /// Its name. In `PUT /v1/rollouts/{name}` it may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    /// The flow that is started for each device, in the version that is the newest at the start.
    pub flow: String,
    /// Parameters of all tasks, at most 16 KiB. Each task also has `device`, the name of its device, and `device_labels`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub params: Option<serde_json::Map<String, serde_json::Value>>,
    /// Priority of all tasks, from -10 to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -10, maximum = 10)]
    pub priority: Option<i64>,
    /// The devices: those that have all of these labels, at most 8. `{}` = all devices.
    pub select: BTreeMap<String, String>,
    /// How many devices are started per minute; 60 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RolloutRate>,
    /// The maximum number of tasks that run at the same time: 1 to 1000; 100 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// The rollout is aborted when one of these thresholds is reached: at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub abort: Vec<RolloutThreshold>,
    /// What happens to tasks that succeeded when it is aborted; `stop` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_abort: Option<RolloutOnAbort>,
    /// A label of devices, by whose values progress is counted: the first 64 values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
}

/// How many devices are started per minute: always `per_minute`, or more and more, from `base` on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutRate {
    /// Always this many: 1 to 60,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
    /// At first this many: 1 to 60,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u32>,
    /// With `base`: the factor by which the rate grows, from 1.01 to 10, with two decimals at most; 2 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// With `base`: the highest rate, 1 to 60,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_minute_max: Option<u32>,
    /// With `base`: the rate grows each time this many devices have succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
}

/// A number of bad ends that aborts a rollout: `percent` or `count`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutThreshold {
    /// Which ends are counted; `any` when left out.
    #[serde(default)]
    pub of: RolloutAbortOf,
    /// This part of the devices that have ended, in percent: 1 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// This many devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The threshold holds once this many devices have ended; 1 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<u32>,
}

/// Which ends are counted for a threshold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutAbortOf {
    /// Tasks that failed, and those that were refused.
    Failed,
    /// Tasks whose timeout, deadline or `start_within` passed.
    TimedOut,
    /// All that did not succeed.
    #[default]
    Any,
}

/// What happens to tasks that succeeded when a rollout is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutOnAbort {
    /// Nothing (the default).
    Stop,
    /// They are rolled back.
    Rollback,
}

/// A rollout.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Rollout {
    /// Its name.
    pub name: String,
    /// Its definition.
    pub definition: RolloutDocument,
    /// The version of the flow.
    pub flow_version: u32,
    /// What it does.
    pub status: RolloutStatus,
    /// Who started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// When it was started.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Who paused it, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<RolloutNote>,
    /// Who or what aborted it, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<RolloutNote>,
    /// The rate now, in devices per minute.
    pub per_minute: u32,
    /// The number of its running tasks that wait for an operator; 0 in lists.
    pub waiting: u64,
    /// Progress of all devices.
    pub total: RolloutCounts,
    /// Progress by the values of `group_by`; none without `group_by`, and none in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<RolloutGroup>,
}

/// What a rollout does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RolloutStatus {
    /// It starts tasks.
    Running,
    /// It starts none; the tasks that run go on.
    Paused,
    /// It was aborted, and its tasks that run are cancelled.
    Cancelling,
    /// It was aborted, and its tasks that succeeded are rolled back.
    RollingBack,
    /// The tasks of all devices have ended.
    Completed,
    /// It was aborted, and nothing of it runs any more.
    Aborted,
}

/// Something that was done to a rollout.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RolloutNote {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The operator; absent if a threshold aborted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The threshold that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<RolloutThreshold>,
}

/// The devices of a group.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RolloutGroup {
    /// The value of the label; absent for devices without it and for those of groups beyond the first 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Their progress.
    #[serde(flatten)]
    pub counts: RolloutCounts,
}

/// Numbers of devices. Each started one is running, or has ended in one way from `succeeded` to `gone`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutCounts {
    /// Devices that had the labels at the start. More may be declared since.
    pub matched: u64,
    /// Devices whose tasks were started.
    pub started: u64,
    /// Tasks that run, or are about to start.
    pub running: u64,
    /// Tasks that succeeded, also those that were rolled back later.
    pub succeeded: u64,
    /// Tasks that failed.
    pub failed: u64,
    /// Tasks whose timeout, deadline or `start_within` passed.
    pub timed_out: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Devices whose tasks were refused; the history says why.
    pub refused: u64,
    /// Tasks that the abort cancelled, and whose rollback waits for an operator.
    pub stuck: u64,
    /// Tasks that were deleted before their end was counted.
    pub gone: u64,
    /// Tasks that are being rolled back after they succeeded.
    pub rolling_back: u64,
    /// Tasks that were rolled back after they succeeded.
    pub rolled_back: u64,
    /// Tasks that succeeded and have nothing to roll back, or were deleted before.
    pub kept: u64,
    /// Tasks that succeeded, and whose rollback waits for an operator.
    pub rollback_stuck: u64,
}

/// An operator pauses or aborts a rollout.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRollout {
    /// Why, at most 1,024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What happened to a rollout.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RolloutEntry {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// `started`, `paused`, `resumed`, `aborted`, `rolling_back`, `ended`, `removed`; `refused` if the task of a device was not
    /// accepted.
    pub event: String,
    /// The operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The device that was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The reason of the operator, or what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
