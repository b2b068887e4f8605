//! What is submitted with a task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ActKey, Actor, Json, Millis, TaskId, Timestamp};

/// What was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// The caller's parameters.
    pub params: Json,
    /// Free words to find the task by.
    pub labels: BTreeMap<String, String>,
    /// From -10 to 10.
    pub priority: i8,
    /// Not before this time.
    pub at: Option<Timestamp>,
    /// How long it may take from its start before it is turned around; the flow says where this does not.
    pub deadline: Option<Millis>,
    /// The step of another task that waits for it.
    pub parent: Option<Parent>,
    /// The task of which it is a new run.
    pub rerun_of: Option<TaskId>,
    /// Tasks of its flow with the same value here are the same.
    pub unique: Option<Box<str>>,
    /// Who submitted it.
    pub by: Option<Actor>,
    /// W3C trace context of the submit.
    pub traceparent: Option<Box<str>>,
    /// When it was accepted.
    pub created_at: Timestamp,
}

impl Input {
    /// Parameters without anything that is said beside them.
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
    /// The act that waits.
    pub key: ActKey,
    /// Number of its attempt.
    pub attempt: u32,
    /// How many tasks stand above: 1 where that task is the topmost.
    pub depth: u32,
    /// The topmost of them.
    pub top: TaskId,
}
