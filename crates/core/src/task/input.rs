//! The input of a task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ActKey, Actor, Json, LockName, Millis, TaskId, Timestamp};

/// The input with which a task was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The caller's parameters.
    pub params: Json,
    /// Free labels to find the task by.
    pub labels: BTreeMap<String, String>,
    /// From -10 to 10.
    pub priority: i8,
    /// Not before this time.
    pub at: Option<Timestamp>,
    /// The maximum time from its start until it starts rolling back; `None` = the flow's deadline.
    pub deadline: Option<Millis>,
    /// The step of another task that waits for it.
    pub parent: Option<Parent>,
    /// The original task, if this one is a rerun.
    pub rerun_of: Option<TaskId>,
    /// The unique key: tasks of a flow with the same value are duplicates.
    pub unique: Option<Box<str>>,
    /// Its exclusive queue: at most one task of the queue is under way at any time.
    pub exclusive: Option<LockName>,
    /// Who submitted it.
    pub by: Option<Actor>,
    /// W3C trace context of the submit.
    pub traceparent: Option<Box<str>>,
    /// When it was accepted.
    pub created_at: Timestamp,
}

impl Input {
    /// An input with only parameters.
    #[must_use]
    pub fn new(params: Json, created_at: Timestamp) -> Self {
        Self {
            params,
            labels: BTreeMap::new(),
            priority: 0,
            at: None,
            deadline: None,
            parent: None,
            rerun_of: None,
            unique: None,
            exclusive: None,
            by: None,
            traceparent: None,
            created_at,
        }
    }
}

/// A step of another task that waits for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// That task.
    pub task: TaskId,
    /// The waiting execution.
    pub key: ActKey,
    /// The attempt number.
    pub attempt: u32,
    /// The nesting depth: 1 if that task is the topmost one.
    pub depth: u32,
    /// The topmost task.
    pub top: TaskId,
}
