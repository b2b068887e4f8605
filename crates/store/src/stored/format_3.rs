//! Flows, states and inputs as formats 2 and 3 wrote them, when no flow had an exclusive queue.

use std::sync::Arc;

use serde::Deserialize;
use windlass_core::{
    Actor, Cause, Flow, KeptSignal, Millis, Name, OnFailure, Parent, Pause, Phase, QueuePlace, RetryBy,
    RollbackParams, State, Step, StepDefinition, Stuck, TaskId, Timestamp, Unique,
};

use super::InputHead;

#[derive(Deserialize)]
pub(super) struct Flow3 {
    name: Name,
    version: u32,
    params: Option<Box<str>>,
    retry_by: RetryBy,
    on_failure: OnFailure,
    deadline: Option<Millis>,
    unique: Option<Unique>,
    retention: Option<Millis>,
    rollback_params: RollbackParams,
    deaths_max: u32,
    steps: Vec<StepDefinition>,
}

#[derive(Deserialize)]
pub(super) struct State3 {
    phase: Phase,
    pause: Pause,
    stuck: Option<Stuck>,
    cause: Option<Cause>,
    events: u64,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    signals: Vec<KeptSignal>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
pub(super) struct InputHead3 {
    labels: Vec<(String, String)>,
    priority: i8,
    at: Option<Timestamp>,
    by: Option<Actor>,
    traceparent: Option<Box<str>>,
    created_at: Timestamp,
    deadline: Option<Millis>,
    parent: Option<Parent>,
    rerun_of: Option<TaskId>,
    unique: Option<Box<str>>,
}

impl From<Flow3> for Flow {
    fn from(flow: Flow3) -> Self {
        let Flow3 {
            name,
            version,
            params,
            retry_by,
            on_failure,
            deadline,
            unique,
            retention,
            rollback_params,
            deaths_max,
            steps,
        } = flow;
        Self {
            version,
            params,
            retry_by,
            on_failure,
            deadline,
            unique,
            retention,
            rollback_params,
            deaths_max,
            ..Self::new(name, steps)
        }
    }
}

impl From<State3> for State {
    fn from(state: State3) -> Self {
        let State3 { phase, pause, stuck, cause, events, started_at, ended_at, signals, steps } = state;
        let (queue, steps) = (QueuePlace::default(), steps.into_iter().map(Arc::new).collect());
        Self { phase, pause, stuck, cause, events, started_at, ended_at, signals, queue, steps }
    }
}

impl From<InputHead3> for InputHead {
    fn from(head: InputHead3) -> Self {
        let InputHead3 {
            labels,
            priority,
            at,
            by,
            traceparent,
            created_at,
            deadline,
            parent,
            rerun_of,
            unique,
        } = head;
        Self {
            labels,
            priority,
            at,
            by,
            traceparent,
            created_at,
            deadline,
            parent,
            rerun_of,
            unique,
            exclusive: None,
        }
    }
}
