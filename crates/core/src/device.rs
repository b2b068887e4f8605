//! Devices: what is known of one, the lock that it is, and the jobs that steps give it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{LockName, Millis, Name, SPAN_MAX};

/// The module of the jobs of devices. The server itself sends them, so no worker may serve it. No flow file can name it,
/// because `run` is split at the first dot.
pub const DEVICE_MODULE: &str = "windlass.devices";

/// The command of the jobs of devices.
pub const DEVICE_COMMAND: &str = "job";

/// The names of the locks of devices begin with this; nothing else does.
pub const DEVICE_LOCKS: &str = "device..";

/// The longest topic, in bytes.
pub const TOPIC_BYTES_MAX: usize = 1024;

/// The maximum number of labels of a device.
pub const DEVICE_LABELS_MAX: usize = 64;

/// The longest label key, and the longest value of a label, in bytes.
pub const DEVICE_LABEL_BYTES_MAX: usize = 128;

/// The longest part of a text that an error quotes, in characters.
const QUOTED_MAX: usize = 100;

/// The lock that a device is: a step that has it has the device. `None` if the name is longer than 120 bytes.
#[must_use]
pub fn device_lock(device: &Name) -> Option<LockName> {
    Name::new(&format!("{DEVICE_LOCKS}{device}")).ok()
}

/// The expression of the lock of the device that `device`, the text of an expression, names.
#[must_use]
pub fn device_lock_expression(device: &str) -> String {
    format!("{LOCK_OF}{device})")
}

/// The text of the expression that names the device, of an expression that names its lock.
#[must_use]
pub fn device_in_expression(lock: &str) -> Option<&str> {
    lock.strip_prefix(LOCK_OF)?.strip_suffix(')')
}

/// The beginning of an expression that names the lock of a device.
const LOCK_OF: &str = "'device..' + string(";

/// The device of a lock, if the lock is one of a device.
#[must_use]
pub fn device_of_lock(lock: &LockName) -> Option<Name> {
    Name::new(lock.as_str().strip_prefix(DEVICE_LOCKS)?).ok()
}

/// A device, as it was declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name, which is the `device` of its answers and the `connectionName` of classic documents.
    pub name: Name,
    /// What selects it for jobs of a fleet, such as a site or a model.
    pub labels: BTreeMap<String, String>,
    /// How the server knows whether it is online.
    pub presence: PresenceRule,
    /// Whether its answers have the `attempt` of the job: see [`check_answered`] and [`Device::needs_settle`].
    pub echoes_attempt: bool,
}

/// How the server knows whether a device is online.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PresenceRule {
    /// It does not: the device counts as online.
    Always,
    /// By a topic on which the device, or the broker by its last will, publishes its status. The last message counts.
    Topic {
        /// The topic.
        topic: Box<str>,
        /// The payload that means online.
        online: Box<str>,
        /// The payload that means offline.
        offline: Box<str>,
    },
    /// By its messages on any topic that names it: it is offline if it was silent for this long.
    KeepAlive(Millis),
    /// As [`PresenceRule::Topic`], of a device that nobody declared: it was learned from its first message on the topic
    /// ([`LearnRule`](crate::LearnRule)).
    Learned {
        /// The topic.
        topic: Box<str>,
        /// The payload that means online.
        online: Box<str>,
        /// The payload that means offline.
        offline: Box<str>,
    },
}

/// The topic of the status of a device, and the payloads that mean online and offline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusTopic<'r> {
    /// The topic.
    pub topic: &'r str,
    /// The payload that means online.
    pub online: &'r str,
    /// The payload that means offline.
    pub offline: &'r str,
}

impl PresenceRule {
    /// The topic of its status, if it has one.
    #[must_use]
    pub fn status(&self) -> Option<StatusTopic<'_>> {
        match self {
            Self::Topic { topic, online, offline } | Self::Learned { topic, online, offline } => {
                Some(StatusTopic { topic, online, offline })
            }
            Self::Always | Self::KeepAlive(_) => None,
        }
    }
}

impl StatusTopic<'_> {
    /// Whether this payload means online; `None` = neither online nor offline.
    #[must_use]
    pub fn is_online(&self, payload: &str) -> Option<bool> {
        match payload.trim() {
            payload if payload == self.online => Some(true),
            payload if payload == self.offline => Some(false),
            _ => None,
        }
    }
}

/// Whether a device is online, as it was last heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Whether it is.
    pub online: bool,
    /// Since when, in milliseconds since 1970.
    pub since: crate::Timestamp,
    /// How often it has changed within the last minute before that: a device that flaps has a high number.
    pub changes: u32,
}

impl Device {
    /// Whether it counts as online, as it was last heard. One whose presence is not watched does; one that was never heard does
    /// not.
    #[must_use]
    pub fn is_online(&self, presence: Option<Presence>) -> bool {
        self.presence == PresenceRule::Always || presence.is_some_and(|presence| presence.online)
    }

    /// Whether an answer still counts, and the device stays locked, for the `settle` of the flow after a timeout. A late answer of
    /// a device that returns the `attempt` is recognised without that. The declaration counts as it is when the timeout has
    /// passed.
    #[must_use]
    pub fn needs_settle(&self) -> bool {
        !self.echoes_attempt
    }

    /// Checks what the types do not ensure.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        if device_lock(&self.name).is_none() {
            return Err(format!("the name {} is too long: write at most 120 characters", self.name));
        }
        if self.labels.len() > DEVICE_LABELS_MAX {
            return Err(format!(
                "it has {} labels, and may have {DEVICE_LABELS_MAX}: remove some",
                self.labels.len()
            ));
        }
        for (key, value) in &self.labels {
            if key.is_empty() || key.len() > DEVICE_LABEL_BYTES_MAX || value.len() > DEVICE_LABEL_BYTES_MAX {
                let key: String = key.chars().take(QUOTED_MAX).collect();
                return Err(format!(
                    "the label {key:?} is empty or too long: key and value have at most {DEVICE_LABEL_BYTES_MAX} bytes"
                ));
            }
        }
        match &self.presence {
            PresenceRule::Always => Ok(()),
            PresenceRule::Topic { topic, online, offline }
            | PresenceRule::Learned { topic, online, offline } => {
                check_topic(topic).map_err(|message| format!("`presence.topic`: {message}"))?;
                if online == offline {
                    return Err(
                        "`presence.online` and `presence.offline` are the same payload: write two".to_owned()
                    );
                }
                Ok(())
            }
            PresenceRule::KeepAlive(span) if *span == Millis(0) || *span > SPAN_MAX => {
                Err("`presence.keep_alive` must be longer than 0 and at most 366 days".to_owned())
            }
            PresenceRule::KeepAlive(_) => Ok(()),
        }
    }
}

/// Checks that an answer with this `attempt` is about the attempt that runs. The declaration counts as it is when the answer
/// comes; it is absent if the device was removed while it worked.
///
/// # Errors
/// Why the answer has no effect.
pub fn check_answered(
    device: Option<&Device>,
    answered: Option<u64>,
    running: u64,
) -> Result<(), &'static str> {
    match answered {
        Some(attempt) if attempt != running => Err("it is about another attempt"),
        None if device.is_some_and(|device| device.echoes_attempt) => {
            Err("it has no `attempt`, which the device returns by its declaration (`echoes_attempt`)")
        }
        _ => Ok(()),
    }
}

/// Checks a topic to which something is published.
///
/// # Errors
/// What is wrong, and what to do.
pub fn check_topic(topic: &str) -> Result<(), String> {
    if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX {
        return Err(format!("a topic has 1 to {TOPIC_BYTES_MAX} bytes, and this one has {}", topic.len()));
    }
    if topic.contains(['+', '#']) {
        let topic: String = topic.chars().take(QUOTED_MAX).collect();
        return Err(format!("the topic {topic:?} has a wildcard (+ or #): write the topic of one device"));
    }
    if topic.contains('\0') {
        return Err("a topic must not contain the character NUL".to_owned());
    }
    Ok(())
}
