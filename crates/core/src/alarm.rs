//! Alarms: what a person must see. Raised by a message of a task, then acknowledged and resolved.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Actor, Name, StuckKind, TaskId, Timestamp};

/// Identifies an alarm: the same trouble of the same step is the same alarm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AlarmId(pub Arc<str>);

impl AlarmId {
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

/// What an alarm is about: the kinds of trouble with a task that is there, and one with a task that could not be.
///
/// Written down by their places in this list: a new one comes last.
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
    /// A task that an application enqueued in a transaction of its own was not accepted.
    Refused,
    /// A broker takes nothing; it is about no task: [`TaskId::NONE`].
    BrokerAway,
    /// A message that was to start a task did not; it is about no task: [`TaskId::NONE`].
    MessageRefused,
    /// The date of the server's machine was set back; it is about no task: [`TaskId::NONE`].
    ClockSetBack,
    /// Rows of the task in the store are damaged, and it is left out of all work.
    DamagedRow,
    /// The store lost changes that it had confirmed; it is about no task: [`TaskId::NONE`].
    StoreWentBack,
}

impl From<StuckKind> for AlarmKind {
    fn from(kind: StuckKind) -> Self {
        match kind {
            StuckKind::Held => Self::Held,
            StuckKind::Poisoned => Self::Poisoned,
            StuckKind::RollbackFailed => Self::RollbackFailed,
            StuckKind::EngineFault => Self::EngineFault,
        }
    }
}

impl AlarmKind {
    /// The word for it.
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
        }
    }
}

impl StuckKind {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Poisoned => "poisoned",
            Self::RollbackFailed => "rollback_failed",
            Self::EngineFault => "engine_fault",
        }
    }
}

/// Something a person must see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Its id.
    pub id: AlarmId,
    /// The kind of trouble.
    pub kind: AlarmKind,
    /// The task it is about.
    pub task: TaskId,
    /// The step it is about.
    pub step: Option<Name>,
    /// What happened.
    pub message: Box<str>,
    /// When it was raised last.
    pub raised_at: Timestamp,
    /// How often it was raised.
    pub raised: u32,
    /// How far people are with it.
    pub state: AlarmState,
    /// Who acknowledged or resolved it.
    pub by: Option<Actor>,
}

/// How far people are with an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlarmState {
    /// Nobody has seen it.
    Raised,
    /// Somebody has.
    Acknowledged,
    /// It is over.
    Resolved,
}

/// Something told to an alarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AlarmCommand {
    /// It happened, or happened again.
    Raise {
        /// The kind of trouble.
        kind: AlarmKind,
        /// The task it is about.
        task: TaskId,
        /// The step it is about.
        step: Option<Name>,
        /// What happened.
        message: Box<str>,
    },
    /// A person has seen it.
    Acknowledge {
        /// Who.
        by: Option<Actor>,
    },
    /// It is over.
    Resolve {
        /// Who settled it.
        by: Option<Actor>,
    },
}

/// Why an alarm does not change.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AlarmRejection {
    /// It was never raised.
    #[error("there is no such alarm")]
    Unknown,
    /// It is over.
    #[error("the alarm is resolved already")]
    Resolved,
}

impl Alarm {
    /// What `command` makes of the alarm with this id, if there is one yet. `None` inside: nothing changes.
    ///
    /// # Errors
    /// When the alarm is not there, or is over and a person acknowledges it.
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
