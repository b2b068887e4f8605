//! Rollouts: a flow for each device of a fleet, a few at a time.
//!
//! ```text
//! Running ⇄ Paused                            each device: recorded as open ─▶ its task is started ─▶ counted
//!    │        │
//!    │ all    │ abort, threshold
//!    ▼        ▼
//!  Ended ◀─ Cancelling ─▶ RollingBack ─▶ Ended
//!            open tasks     tasks that succeeded
//! ```
//!
//! A device is recorded in [`Rollout::open`], with the id of its task, before the task is started. So a server that ends in
//! between leaves the next one a list of what to start, and an abort knows all tasks that may exist. Devices are visited in the
//! order of their names, and [`Rollout::cursor`] is the last one that was looked at: a rollout over 100,000 devices has a
//! record of a few kilobytes.

mod apply;
mod decide;
mod definition;
mod progress;
mod rate;
#[cfg(test)]
mod stories;

use serde::{Deserialize, Serialize};

pub use apply::*;
pub use decide::*;
pub use definition::*;
pub use progress::*;

use crate::{Actor, Name, TaskId, Timestamp};

/// The maximum number of groups whose progress is counted. Devices of further groups are counted together.
pub const ROLLOUT_GROUPS_MAX: usize = 64;

/// A flow that is started for each device of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// Its name.
    pub name: Name,
    /// Grows with every change. It begins at the time of its creation in milliseconds, so that a rollout that was removed
    /// and created again never has a version for a second time.
    pub version: u64,
    /// What it starts, where, and how fast.
    pub definition: RolloutDefinition,
    /// The version of the flow: the newest one at the start.
    pub flow_version: u32,
    /// Who started it.
    pub by: Option<Actor>,
    /// When it was started.
    pub created_at: Timestamp,
    /// What it does.
    pub stage: RolloutStage,
    /// Who paused it, and when; `None` = it is not paused.
    pub paused: Option<RolloutNote>,
    /// Why it was aborted; `None` = it was not.
    pub abort: Option<RolloutAbort>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The last device that was looked at.
    pub cursor: Option<Name>,
    /// No device may be started before this time.
    pub next_at: Timestamp,
    /// Devices whose tasks have not been counted: they were started, are about to be, or are rolled back.
    pub open: Vec<OpenDevice>,
    /// While it rolls back: only older tasks than this one have not been looked at.
    pub before: Option<TaskId>,
    /// While it rolls back: all tasks have been looked at.
    pub is_listed: bool,
    /// Progress by group. The first one has the devices without the label, and those of groups beyond the maximum.
    pub groups: Vec<RolloutGroup>,
}

/// What a rollout does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RolloutStage {
    /// It starts tasks.
    Running,
    /// An operator paused it: it starts none, and the tasks that run go on.
    Paused,
    /// It was aborted, and its tasks that run are cancelled.
    Cancelling,
    /// It was aborted, and its tasks that succeeded are rolled back.
    RollingBack,
    /// It has ended.
    Ended,
}

/// Something that an operator asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutNote {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Option<Actor>,
    /// Why.
    pub reason: Option<Box<str>>,
}

/// Why a rollout was aborted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutAbort {
    /// When.
    pub at: Timestamp,
    /// What aborted it.
    pub cause: AbortCause,
}

/// What aborted a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AbortCause {
    /// A threshold of its definition.
    Threshold(AbortThreshold),
    /// An operator.
    Operator {
        /// Who.
        by: Option<Actor>,
        /// Why.
        reason: Option<Box<str>>,
    },
}

/// A device whose task has not been counted: its name, its task, and the index of its group. It is a tuple because a record
/// may have 1,000 of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDevice(pub Name, pub TaskId, pub u16);

impl Rollout {
    /// A new rollout. `matched`: the number of devices that it has now, by the value of the label for groups.
    #[must_use]
    pub fn new(
        name: Name,
        (definition, flow_version): (RolloutDefinition, u32),
        matched: impl IntoIterator<Item = (Option<Box<str>>, u64)>,
        by: Option<Actor>,
        now: Timestamp,
    ) -> Self {
        let mut rollout = Self {
            name,
            version: u64::try_from(now.0).unwrap_or(0).max(1),
            definition,
            flow_version,
            by,
            created_at: now,
            stage: RolloutStage::Running,
            paused: None,
            abort: None,
            ended_at: None,
            cursor: None,
            next_at: now,
            open: Vec::new(),
            before: None,
            is_listed: false,
            groups: vec![RolloutGroup::default()],
        };
        for (group, devices) in matched {
            let index = rollout.group(group.as_deref());
            rollout.groups[usize::from(index)].counts.matched += devices;
        }
        rollout
    }

    /// The progress of all groups together.
    #[must_use]
    pub fn total(&self) -> RolloutCounts {
        self.groups.iter().fold(RolloutCounts::default(), |total, group| total.and(&group.counts))
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.stage == RolloutStage::Ended
    }

    /// The index of the group with this value of the label. A new group is added as long as there is room.
    fn group(&mut self, value: Option<&str>) -> u16 {
        let Some(value) = value else { return 0 };
        let found = self.groups.iter().position(|group| group.value.as_deref() == Some(value));
        let index = found.unwrap_or_else(|| match self.groups.len() {
            ROLLOUT_GROUPS_MAX.. => 0,
            index => {
                let value = Some(value.into());
                self.groups.push(RolloutGroup { value, counts: RolloutCounts::default() });
                index
            }
        });
        u16::try_from(index).unwrap_or(0)
    }
}
