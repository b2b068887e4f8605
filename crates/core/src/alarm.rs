//! Alarms: conditions that an operator must see. Raised by a message of a task, then acknowledged and resolved.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Actor, Name, StuckKind, TaskId, Timestamp};

/// Identifies an alarm: the same trouble with the same step is the same alarm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AlarmId(pub Arc<str>);

impl AlarmId {
    /// The alarm about `kind` of trouble with a device.
    #[must_use]
    pub fn of_device(kind: AlarmKind, device: &Name) -> Self {
        Self(format!("{}.{device}", kind.as_str()).into())
    }

    /// The device of an alarm of this kind, if it is one about a device.
    #[must_use]
    pub fn device(&self, kind: AlarmKind) -> Option<Name> {
        Name::new(self.0.strip_prefix(kind.as_str())?.strip_prefix('.')?).ok()
    }

    /// The alarm about `kind` of trouble with a step of a task.
    #[must_use]
    pub fn new(kind: impl Into<AlarmKind>, task: TaskId, step: Option<&Name>) -> Self {
        let kind = kind.into();
        match step {
            Some(step) => Self(format!("{}.{task}.{step}", kind.as_str()).into()),
            None => Self(format!("{}.{task}", kind.as_str()).into()),
        }
    }
}

impl fmt::Display for AlarmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of an alarm: trouble with a task, or with a task that could not be accepted, or with the server.
///
/// Stored by the position in this list: append new kinds at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AlarmKind {
    /// [`StuckKind::Held`].
    Held,
    /// [`StuckKind::Poisoned`].
    Poisoned,
    /// [`StuckKind::RollbackFailed`].
    RollbackFailed,
    /// [`StuckKind::EngineFault`].
    EngineFault,
    /// A task that an application enqueued in its own transaction was not accepted.
    Refused,
    /// A broker accepts no messages; concerns no task: [`TaskId::NONE`].
    BrokerAway,
    /// A message that should have started a task did not; concerns no task: [`TaskId::NONE`].
    MessageRefused,
    /// The date of the server's machine was set back; concerns no task: [`TaskId::NONE`].
    ClockSetBack,
    /// Rows of the task in the store are damaged, and the task is skipped in all work.
    DamagedRow,
    /// The store lost changes that it had confirmed; concerns no task: [`TaskId::NONE`].
    StoreWentBack,
    /// [`StuckKind::QueueBlocked`].
    QueueBlocked,
    /// A trigger did not start a task that it should have; concerns no task: [`TaskId::NONE`].
    TriggerFailed,
    /// A task has a device for too long.
    DeviceLockedTooLong,
    /// A device becomes online and offline again and again; concerns no task: [`TaskId::NONE`].
    DeviceFlapping,
    /// A threshold aborted a rollout; concerns no task: [`TaskId::NONE`].
    RolloutAborted,
}

impl From<StuckKind> for AlarmKind {
    fn from(kind: StuckKind) -> Self {
        match kind {
            StuckKind::Held => Self::Held,
            StuckKind::Poisoned => Self::Poisoned,
            StuckKind::RollbackFailed => Self::RollbackFailed,
            StuckKind::EngineFault => Self::EngineFault,
            StuckKind::QueueBlocked => Self::QueueBlocked,
        }
    }
}

impl AlarmKind {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Held,
        Self::Poisoned,
        Self::RollbackFailed,
        Self::EngineFault,
        Self::Refused,
        Self::BrokerAway,
        Self::MessageRefused,
        Self::ClockSetBack,
        Self::DamagedRow,
        Self::StoreWentBack,
        Self::QueueBlocked,
        Self::TriggerFailed,
        Self::DeviceLockedTooLong,
        Self::DeviceFlapping,
        Self::RolloutAborted,
    ];

    /// The kind with this stable code.
    #[must_use]
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == code)
    }

    /// The stable code of the kind.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => StuckKind::Held.as_str(),
            Self::Poisoned => StuckKind::Poisoned.as_str(),
            Self::RollbackFailed => StuckKind::RollbackFailed.as_str(),
            Self::EngineFault => StuckKind::EngineFault.as_str(),
            Self::Refused => "refused",
            Self::BrokerAway => "broker_away",
            Self::MessageRefused => "message_refused",
            Self::ClockSetBack => "clock_set_back",
            Self::DamagedRow => "damaged_row",
            Self::StoreWentBack => "store_went_back",
            Self::QueueBlocked => StuckKind::QueueBlocked.as_str(),
            Self::TriggerFailed => "trigger_failed",
            Self::DeviceLockedTooLong => "device_locked_too_long",
            Self::DeviceFlapping => "device_flapping",
            Self::RolloutAborted => "rollout_aborted",
        }
    }
}

impl StuckKind {
    /// The stable code of the kind.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Poisoned => "poisoned",
            Self::RollbackFailed => "rollback_failed",
            Self::EngineFault => "engine_fault",
            Self::QueueBlocked => "queue_blocked",
        }
    }
}

/// A condition that an operator must see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Its id.
    pub id: AlarmId,
    /// The kind of trouble.
    pub kind: AlarmKind,
    /// The task it concerns.
    pub task: TaskId,
    /// The step it concerns.
    pub step: Option<Name>,
    /// The message for operators.
    pub message: Box<str>,
    /// When it was raised last.
    pub raised_at: Timestamp,
    /// How often it was raised.
    pub raised: u32,
    /// Its progress.
    pub state: AlarmState,
    /// Who acknowledged or resolved it.
    pub by: Option<Actor>,
}

/// The progress of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlarmState {
    /// No operator has acknowledged it.
    Raised,
    /// An operator has acknowledged it.
    Acknowledged,
    /// The trouble is over.
    Resolved,
}

/// A command to an alarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlarmCommand {
    /// The trouble happened, or happened again.
    Raise {
        /// The kind of trouble.
        kind: AlarmKind,
        /// The task it concerns.
        task: TaskId,
        /// The step it concerns.
        step: Option<Name>,
        /// The message for operators.
        message: Box<str>,
    },
    /// An operator acknowledges it.
    Acknowledge {
        /// The operator.
        by: Option<Actor>,
    },
    /// The trouble is over.
    Resolve {
        /// Who resolved it.
        by: Option<Actor>,
    },
}

/// Why an alarm does not change.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AlarmRejection {
    /// It was never raised.
    #[error("there is no such alarm")]
    Unknown,
    /// It is already resolved.
    #[error("the alarm is resolved already")]
    Resolved,
}

impl Alarm {
    /// The result of `command` on the alarm with this id, if it exists. `Ok(None)`: nothing changes.
    ///
    /// # Errors
    /// When the alarm does not exist, or is resolved and an operator acknowledges it.
    pub fn apply(
        alarm: Option<&Self>,
        id: &AlarmId,
        command: &AlarmCommand,
        now: Timestamp,
    ) -> Result<Option<Self>, AlarmRejection> {
        match (alarm, command) {
            (before, AlarmCommand::Raise { kind, task, step, message }) => Ok(Some(Self {
                id: id.clone(),
                kind: *kind,
                task: *task,
                step: step.clone(),
                message: message.clone(),
                raised_at: now,
                raised: before.map_or(0, |alarm| alarm.raised).saturating_add(1),
                state: AlarmState::Raised,
                by: None,
            })),
            (None, _) => Err(AlarmRejection::Unknown),
            (Some(alarm), AlarmCommand::Acknowledge { by }) => match alarm.state {
                AlarmState::Raised => {
                    Ok(Some(Self { state: AlarmState::Acknowledged, by: by.clone(), ..alarm.clone() }))
                }
                AlarmState::Acknowledged => Ok(None),
                AlarmState::Resolved => Err(AlarmRejection::Resolved),
            },
            (Some(alarm), AlarmCommand::Resolve { by }) => match alarm.state {
                AlarmState::Raised | AlarmState::Acknowledged => {
                    Ok(Some(Self { state: AlarmState::Resolved, by: by.clone(), ..alarm.clone() }))
                }
                AlarmState::Resolved => Ok(None),
            },
        }
    }
}
