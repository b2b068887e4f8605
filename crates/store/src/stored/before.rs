//! Types of formats before today's, as they were written, and how they are read as those of today.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_core::{
    Act, ActExtras, ActState, Action, Actor, Cause, Doer, Failure, Flow, LockName, Millis, Name, OnFailure,
    Pause, Phase, QueuePlace, Retry, RetryBy, State, Step, StepDefinition, Stuck, Timestamp,
};

use super::{InputHead, format_2::rollback_params};

/// A flow of a line or a graph of plain steps.
#[derive(Serialize, Deserialize)]
pub(super) struct FlowBefore {
    name: Name,
    version: u32,
    params: Option<Box<str>>,
    retry_by: RetryBy,
    on_failure: OnFailure,
    steps: Vec<StepDefinitionBefore>,
}

#[derive(Serialize, Deserialize)]
struct StepDefinitionBefore {
    name: Name,
    run: ActionBefore,
    rollback: Option<ActionBefore>,
    after: Vec<usize>,
    locks: Vec<LockName>,
}

#[derive(Serialize, Deserialize)]
struct ActionBefore {
    module: Name,
    command: Name,
    timeout: Millis,
    deadline: Option<Millis>,
    retry: Retry,
}

/// The state of a task of plain steps.
#[derive(Serialize, Deserialize)]
pub(super) struct StateBefore {
    phase: Phase,
    pause: Pause,
    stuck: Option<Stuck>,
    cause: Option<Cause>,
    events: u64,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    steps: Vec<StepBefore>,
}

#[derive(Serialize, Deserialize)]
struct StepBefore {
    touched: bool,
    forward: ActBefore,
    undo: ActBefore,
}

#[derive(Serialize, Deserialize)]
struct ActBefore {
    state: ActState,
    attempt: u32,
    failures: u32,
    deaths: u32,
    postponements: u32,
    ready_at: Option<Timestamp>,
    deadline_at: Option<Timestamp>,
    overdue: bool,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    failure: Option<Failure>,
}

/// What was submitted, but for its parameters.
#[derive(Serialize, Deserialize)]
pub(super) struct InputHeadBefore {
    labels: Vec<(String, String)>,
    priority: i8,
    at: Option<Timestamp>,
    by: Option<Actor>,
    traceparent: Option<Box<str>>,
    created_at: Timestamp,
}

impl From<FlowBefore> for Flow {
    fn from(flow: FlowBefore) -> Self {
        let FlowBefore { name, version, params, retry_by, on_failure, steps } = flow;
        let steps = steps.into_iter().map(StepDefinition::from).collect();
        let flow = Self { params, retry_by, on_failure, version, ..Self::new(name, steps) };
        let rollback_params = rollback_params(&flow);
        Self { rollback_params, ..flow }
    }
}

impl From<StepDefinitionBefore> for StepDefinition {
    fn from(step: StepDefinitionBefore) -> Self {
        let rollback = step.rollback.map(Action::from);
        // No version that wrote this format let a flow name locks.
        Self { rollback, ..Self::new(step.name, step.run.into(), step.after) }
    }
}

impl From<ActionBefore> for Action {
    fn from(action: ActionBefore) -> Self {
        let ActionBefore { module, command, timeout, deadline, retry } = action;
        Self { doer: Doer::Worker { module, command }, timeout, deadline, start_within: None, retry }
    }
}

impl From<StateBefore> for State {
    fn from(state: StateBefore) -> Self {
        let StateBefore { phase, pause, stuck, cause, events, started_at, ended_at, steps } = state;
        let (queue, steps) =
            (QueuePlace::default(), steps.into_iter().map(|step| Arc::new(step.into())).collect());
        Self { phase, pause, stuck, cause, events, started_at, ended_at, signals: Vec::new(), queue, steps }
    }
}

impl From<StepBefore> for Step {
    fn from(step: StepBefore) -> Self {
        Self {
            touched: step.touched,
            forward: step.forward.into(),
            undo: step.undo.into(),
            ..Self::default()
        }
    }
}

impl From<ActBefore> for Act {
    fn from(act: ActBefore) -> Self {
        let ActBefore {
            state,
            attempt,
            failures,
            deaths,
            postponements,
            ready_at,
            deadline_at,
            overdue,
            started_at,
            ended_at,
            failure,
        } = act;
        Self {
            state,
            attempt,
            failures,
            deaths,
            ready_at,
            deadline_at,
            overdue,
            started_at,
            ended_at,
            failure,
            extras: (postponements > 0)
                .then(|| Box::new(ActExtras { postponements, ..ActExtras::default() })),
            result: None,
        }
    }
}

impl From<InputHeadBefore> for InputHead {
    fn from(head: InputHeadBefore) -> Self {
        let InputHeadBefore { labels, priority, at, by, traceparent, created_at } = head;
        Self {
            labels,
            priority,
            at,
            by,
            traceparent,
            created_at,
            deadline: None,
            parent: None,
            rerun_of: None,
            unique: None,
            exclusive: None,
        }
    }
}
