//! Triggers: what starts tasks by itself, on a schedule or when a request or a message arrives.
//!
//! A trigger with a schedule has *instants*. Each instant is decided once, in their order:
//!
//! ```text
//!             Instants (from outside)
//!                   │
//! Trigger ──decide──┴─▶ wait · pass (missed) · skip · queue · fire ──▶ the engine submits ──apply──▶ the next Trigger
//! ```
//!
//! Deciding an instant advances [`Trigger::decided`], and no instant up to that time is ever decided again. A server that
//! fires an instant and ends before it has recorded that leaves the instant to the next server: the tasks are found by
//! their idempotency keys, which are made of trigger, instant and flow.
//!
//! Requests and messages that fire a trigger change nothing of it.

mod apply;
mod decide;
mod definition;
#[cfg(test)]
mod stories;
mod topic;

use serde::{Deserialize, Serialize};

pub use apply::*;
pub use decide::*;
pub use definition::*;
pub use topic::*;

use crate::{Actor, Millis, Name, TaskId, Timestamp, values::mix::mix};

/// A trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// Its name.
    pub name: Name,
    /// Grows with every change. It begins at the time of its creation in milliseconds, so that a trigger that was
    /// removed and created again never has a version for a second time.
    pub version: u64,
    /// What it starts, and when.
    pub definition: TriggerDefinition,
    /// Since when it is paused, and by whom.
    pub paused: Option<TriggerPause>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its definition was changed last.
    pub changed_at: Timestamp,
    /// Since when it has its schedule: intervals are counted from this time.
    pub since: Timestamp,
    /// All instants up to this time are decided.
    pub decided: Timestamp,
    /// Instants that wait until the tasks of an earlier one have ended, oldest first ([`Overlap::Queue`]).
    pub waiting: Vec<Timestamp>,
    /// The tasks that its schedule started last. Which of them have ended is not known here.
    pub started: Vec<TaskId>,
    /// The last instant that was fired.
    pub fired: Option<Timestamp>,
}

/// An operator paused a trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriggerPause {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Option<Actor>,
}

impl Trigger {
    /// A new trigger. Its schedule begins now.
    #[must_use]
    pub fn new(name: Name, definition: TriggerDefinition, now: Timestamp) -> Self {
        Self {
            name,
            version: u64::try_from(now.0).unwrap_or(0).max(1),
            definition,
            paused: None,
            created_at: now,
            changed_at: now,
            since: now,
            decided: now,
            waiting: Vec::new(),
            started: Vec::new(),
            fired: None,
        }
    }

    /// The delay of an instant: the same on every server, and spread over the triggers.
    #[must_use]
    pub fn jitter(&self, instant: Timestamp) -> Millis {
        let Some(most) =
            self.definition.schedule().map(|schedule| schedule.jitter.0).filter(|most| *most > 0)
        else {
            return Millis(0);
        };
        let name = self.name.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        Millis(mix(name ^ instant.0.unsigned_abs()) % (most + 1))
    }
}
