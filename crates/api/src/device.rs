//! Devices: how they are declared, whether they are online, and who has them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Payload, Span};

/// A device as it is declared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceDocument {
    /// Its name: 1 to 120 of A-Z a-z 0-9 _ . -. It may be absent where the path has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What selects it, such as a site or a model: at most 64, with keys and values of at most 128 bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How the server knows whether it is online. Absent = it does not, and the device counts as online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence: Option<DevicePresence>,
    /// Whether the device returns the `attempt` of the job in its answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub echoes_attempt: bool,
}

/// How the server knows whether a device is online: `topic`, `online` and `offline`, or `keep_alive`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DevicePresence {
    /// The topic on which the device, or the broker by its last will, publishes the status of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The payload that means online; `online` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<String>,
    /// The payload that means offline; `offline` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline: Option<String>,
    /// The device is offline if it was silent for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Span>,
}

/// Many devices: the body of `POST /v1/devices`, at most 8 MiB and 10,000 devices.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyDevices {
    /// The devices, each with its name. None is stored if one of them cannot be used.
    pub devices: Vec<DeviceDocument>,
}

/// The result of applying devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DevicesApplied {
    /// The number of new devices.
    pub created: u64,
    /// The number of devices that were declared differently before.
    pub updated: u64,
    /// The number of devices that were declared like that already.
    pub unchanged: u64,
}

/// A device, whether it is online, and who has it or waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How the server knows whether it is online; absent if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence: Option<DevicePresence>,
    /// Whether the device returns the `attempt` of the job in its answers.
    pub echoes_attempt: bool,
    /// Whether nobody declared it: it was learned from its status.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learned: bool,
    /// Whether it counts as online. A device with `presence` that was never heard does not.
    pub online: bool,
    /// When it became online or offline; absent if it was never heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub online_changed_at: Option<Timestamp>,
    /// How often it became online or offline within the minute before that.
    #[serde(default)]
    pub online_changes: u32,
    /// Name of its lock, for `/v1/locks`.
    pub lock: String,
    /// Whether somebody has it.
    pub locked: bool,
    /// The time since which somebody has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub locked_since: Option<Timestamp>,
    /// Id of the task that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The number of steps that wait for it.
    pub waiting: u64,
    /// Ids of the tasks that wait for it, first come first served: the first 100; none in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<String>,
}

/// A device as classic callers read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassicDevice {
    /// Whether it counts as online.
    pub online: bool,
    /// Whether a task has it.
    pub locked: bool,
    /// Ids of the tasks that wait for it, first come first served: the first 100.
    pub pending_queue: Vec<String>,
}

/// An entry in the log of a device.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeviceLogEntry {
    /// Its number. Numbers only grow, with gaps.
    pub number: u64,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What it is about.
    pub kind: DeviceLogKind,
    /// What happened.
    #[schema(value_type = Object)]
    pub data: Payload,
}

/// A message of a device, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceMessage {
    /// Its number. Numbers only grow, with gaps.
    pub number: u64,
    /// When it came.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The device for which it is kept; `unknown` if it names none.
    pub device: String,
    /// Its topic.
    pub topic: String,
    /// Its first 16 KiB as text. Bytes that are not UTF-8 are replaced.
    pub payload: String,
    /// The number of bytes that it had.
    pub bytes: u64,
    /// Whether the broker had kept it, so it was sent earlier.
    pub retained: bool,
}

/// What an entry in the log of a device is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceLogKind {
    /// A job of the device.
    Job,
    /// A message from the device; kept for a day.
    Message,
}
