//! Locks: their holders and waiters.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Direction;

/// A named resource that one step, task or leading process at a time has. One that nobody has or waits for is not kept.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Lock {
    /// Its name.
    pub name: String,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<LockHolder>,
    /// How many wait for it.
    pub waiting: u64,
    /// Those who wait, first come first served: the first 100 of them; none in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiters: Vec<LockWaiter>,
}

/// Who has a lock.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LockHolder {
    /// Which step.
    #[serde(flatten)]
    pub step: LockStep,
    /// The fencing token under which it has it.
    pub fence: u64,
    /// The leading process that has it, in place of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<LockLeader>,
}

/// A process that leads, as the holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LockLeader {
    /// What it campaigned for.
    pub name: String,
    /// Its id.
    pub id: String,
}

/// Who waits for a lock.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LockWaiter {
    /// Which step.
    #[serde(flatten)]
    pub step: LockStep,
}

/// A step that has a lock or waits for it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LockStep {
    /// Id of the task; empty while the lock is closed because its row in the store was damaged, and if a process leads.
    pub task: String,
    /// Name of the step; empty if the task as a whole has the lock, and when its task is not there any more.
    pub step: String,
    /// Whether the task as a whole has the lock or waits for it, as its exclusive queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Which of its items, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Forward or rollback.
    pub direction: Direction,
    /// Since when it has the lock, or waits for it.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// Takes a lock from its holder.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseLock {
    /// The reason, for the history of the task that had it; for the server's log, if a process that leads had it.
    pub reason: String,
}

/// Moves an exclusive queue past the task that has it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SkipQueue {
    /// The reason, for the history of the task that has the queue: 1 to 1000 characters.
    pub reason: String,
}

/// A lock that was taken from its holder.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReleasedLock {
    /// The lock as it is now.
    pub lock: Lock,
    /// Who had it. What it does goes on: whatever checks fencing tokens refuses it from now on.
    pub former: LockHolder,
}

/// A lock, or the exclusive queue of its task, that an attempt has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptLock {
    /// Its name.
    pub name: String,
    /// Its fencing token: grows each time the lock changes hands. Hand it to what the lock is for.
    pub fence: u64,
}
