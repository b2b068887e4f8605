//! Tasks: submits, views, and the actions of operators.

mod batch;
mod bulk;
mod event;
mod list;
mod member;
mod pause;
mod rerun;
mod signal;
mod status;
mod why;

pub use batch::*;
pub use bulk::*;
pub use event::*;
pub use list::*;
pub use member::*;
pub use pause::*;
pub use rerun::*;
pub use signal::*;
pub use status::*;
pub use why::*;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ActionDocument, OnFailure, Payload, RetryBy, Span, StepDocument, UniqueDocument};

/// A task to start: the body of `POST /v1/tasks`. It has `flow`, or `steps` of its own.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitTask {
    /// Name of the flow to run, `NAME` or `NAME@VERSION`; without a version the newest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub flow: String,
    /// What to do instead of a flow of the catalogue: 1 to 256 steps as in a flow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepDocument>,
    /// With `steps`: what is done once the task has failed, before anything is rolled back; it gets all errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<ActionDocument>,
    /// With `steps`: what a final failure does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// With `steps`: who makes the retries of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_by: Option<RetryBy>,
    /// With `steps`: which tasks with the same steps are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<UniqueDocument>,
    /// Parameters shared by all steps: a JSON object of at most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub params: Option<Payload>,
    /// Idempotency key, the same thing as the header `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Not before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Timestamp>,
    /// From -10 to 10; a step of one priority more goes before others that were ready up to 60 s earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i8>,
    /// How long it may take from its start before it starts rolling back. If it is missing, the flow's deadline applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub deadline: Option<Span>,
    /// Free words to find the task by: at most 16, names and values of at most 128 bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The W3C trace context that the task belongs to, the same thing as the header `traceparent`. An invalid one is
    /// ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// One run of a flow.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// UUID; ids made later sort after earlier ones.
    pub id: String,
    /// Name of its flow.
    pub flow: String,
    /// Version of its flow; it keeps this one.
    pub version: u32,
    /// What it is doing.
    pub status: TaskStatus,
    /// Why it failed, is held or was cancelled.
    pub message: Option<String>,
    /// What it waits for an operator to do, while it is stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<Stuck>,
    /// Index of the furthest step that may have had effects, in definition order; 0 before there is one.
    pub cursor: usize,
    /// The parameters as submitted.
    #[schema(value_type = Object)]
    pub params: Payload,
    /// Parameters and results merged in definition order; present once the task has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Payload>,
    /// As submitted.
    pub labels: BTreeMap<String, String>,
    /// As submitted.
    pub priority: i8,
    /// The time before which it does not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Timestamp>,
    /// When it starts rolling back unless it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline_at: Option<Timestamp>,
    /// The step of another task that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentStep>,
    /// Id of the task of which it is a new run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<String>,
    /// Its flow has one task with the same value here at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<String>,
    /// Its exclusive queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<TaskQueue>,
    /// In the answer to a submit or a rerun that started nothing: why it returns a task that exists already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<Existing>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When its first step was handed out.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Its steps in definition order. Left out of lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// In lists: the steps that run, wait or are rolled back, at most 16; of a failed task the step that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub current: Vec<CurrentStep>,
}

/// Why a submit or a rerun returns a task that exists already and starts nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// The same submit was accepted before with this idempotency key.
    IdempotencyKey,
    /// The task has the same unique key.
    Unique,
}

impl Existing {
    /// The value in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IdempotencyKey => "idempotency_key",
            Self::Unique => "unique",
        }
    }
}

/// What a stuck task waits for an operator to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stuck {
    /// `rollback_failed`, `poisoned`, `held`, `engine_fault`.
    pub kind: String,
    /// The step to settle; with `engine_fault` there is none, and the task is resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What may be decided of the step.
    pub choices: Vec<ResolveAction>,
}

/// The step of a task that waits for another task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParentStep {
    /// Id of the task that waits.
    pub task: String,
    /// Index of its step, from 0.
    pub step: usize,
    /// Which of the step's items it is, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u32>,
}

/// One position in a task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Step {
    /// As in the flow.
    pub name: String,
    /// What it is doing.
    pub status: StepStatus,
    /// `MODULE.COMMAND` of the forward action.
    pub run: String,
    /// Why it failed last, until it is done.
    pub message: Option<String>,
    /// Exit code of the last failure, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Attempts made so far. An attempt that waits for a worker, a lock or a signal does not count yet.
    pub attempts: u32,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Payload>,
    /// When its first attempt was handed out.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it was settled.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// When the next attempt is due, while it waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due_at: Option<Timestamp>,
    /// What it waits for beside workers and times: `signal NAME`, `task ID` or `lock NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The task that does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// The states of its items, once it runs for each element of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<MemberCounts>,
    /// The worker that has it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Progress of the running attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Its rollback, if the flow has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback: Option<StepRollback>,
}

/// The rollback of a step.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StepRollback {
    /// `pending`, `ready`, `running`, `succeeded`, `failed` or `skipped`.
    pub status: StepStatus,
    /// `MODULE.COMMAND` of the rollback.
    pub run: String,
    /// Why it failed last, until it is done.
    pub message: Option<String>,
    /// Attempts made so far. An attempt that waits for a worker, a lock or a signal does not count yet.
    pub attempts: u32,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Payload>,
    /// When its first attempt was handed out.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it was settled.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// When the next attempt is due, while it waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due_at: Option<Timestamp>,
    /// What it waits for beside workers and times: `task ID` or `lock NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The worker that has it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// How far a running attempt says it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// From 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// A line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How an operator settles a stuck or held step: the body of `POST /v1/tasks/{id}/steps/{step}/resolve`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveStep {
    /// What to do with it.
    pub action: ResolveAction,
    /// With `done`: what the step would have returned. With `retry`: parameters that override those of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub params: Option<Payload>,
}

/// What to do with a stuck or held step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolveAction {
    /// Retry it, with all its retries again.
    Retry,
    /// Skip it and continue.
    Skip,
    /// An operator has done its work.
    Done,
    /// Give up and roll back the task.
    Rollback,
}

impl ResolveAction {
    /// The value in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Skip => "skip",
            Self::Done => "done",
            Self::Rollback => "rollback",
        }
    }
}

/// The exclusive queue of a task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TaskQueue {
    /// Its name.
    pub queue: String,
    /// Whether the task has it.
    pub state: TaskQueueState,
    /// The fencing token under which the task has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
}

/// Whether a task has its exclusive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskQueueState {
    /// It has the queue.
    Granted,
    /// It waits for the queue: `GET /v1/tasks/{id}/why` shows its position and the holder.
    Waiting,
    /// It is not in the queue: it has not started, has ended, or the queue was moved past it.
    Out,
}
