//! The state of a task.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Act, ActKey, Actor, Direction, Flow, Json, Millis, Name, TaskId, Timestamp};

/// One run of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// The flow, in the version the task was started with.
    pub flow: Arc<Flow>,
    /// What was submitted; never changes.
    pub input: Arc<Input>,
    /// What changes.
    pub state: State,
}

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
    /// Who submitted it.
    pub by: Option<Actor>,
    /// W3C trace context of the submit.
    pub traceparent: Option<Box<str>>,
    /// When it was accepted.
    pub created_at: Timestamp,
}

/// What changes about a task: its head and its steps. Stored in a versioned encoding; payloads are kept apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Which way it goes.
    pub phase: Phase,
    /// Whether a person holds it.
    pub pause: Pause,
    /// Why it waits for a person.
    pub stuck: Option<Stuck>,
    /// Why it goes backward.
    pub cause: Option<Cause>,
    /// How many events it has had.
    pub events: u64,
    /// When its first step was handed out.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// One per step of the flow, in its order.
    pub steps: Vec<Step>,
}

/// Which way a task goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Not before its time.
    Scheduled,
    /// Steps are done.
    Forward,
    /// Touched steps are undone.
    Backward,
    /// Nothing happens any more.
    Ended(Ending),
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// All steps done.
    Succeeded,
    /// A step failed for good, at least one undo ran.
    RolledBack,
    /// A step failed for good, there was nothing to undo.
    Failed,
    /// Cancelled, and undone as far as it was touched.
    Cancelled,
}

/// Whether a person holds the task. `pausing` is a pause with attempts still in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pause {
    /// It goes on.
    None,
    /// Nothing new starts.
    Held,
}

/// Why a task waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// The kind of trouble.
    pub kind: StuckKind,
    /// The step it is about.
    pub step: Option<usize>,
    /// What happened.
    pub message: Box<str>,
}

/// The kinds of trouble a person has to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StuckKind {
    /// A step failed for good and the flow says to hold.
    Held,
    /// Attempts of a step killed their workers too often.
    Poisoned,
    /// An undo failed for good.
    RollbackFailed,
    /// A transition would have broken an invariant.
    EngineFault,
}

/// Why a task goes backward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A step failed for good.
    Failure {
        /// The step.
        step: usize,
    },
    /// A person gave up on a held step.
    GivenUp {
        /// The step.
        step: usize,
        /// Who.
        by: Option<Actor>,
    },
    /// A person cancelled it.
    Cancel {
        /// Who.
        by: Option<Actor>,
    },
}

/// One position in a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Whether an attempt of it became ready, so that it may have had effects.
    pub touched: bool,
    /// Doing it.
    pub forward: Act,
    /// Undoing it.
    pub undo: Act,
}

impl Task {
    /// A task of `flow` to which nothing has happened yet.
    #[must_use]
    pub fn new(id: TaskId, flow: Arc<Flow>, input: Arc<Input>) -> Self {
        let untouched = Step { touched: false, forward: Act::default(), undo: Act::default() };
        let steps = vec![untouched; flow.steps.len()];
        let phase = if input.at.is_some() { Phase::Scheduled } else { Phase::Forward };
        let state = State {
            phase,
            pause: Pause::None,
            stuck: None,
            cause: None,
            events: 0,
            started_at: None,
            ended_at: None,
            steps,
        };
        Self { id, flow, input, state }
    }

    /// The act with this key, if the task has such a step.
    #[must_use]
    pub fn act(&self, key: ActKey) -> Option<&Act> {
        let step = self.state.steps.get(key.step)?;
        if key.member != 0 {
            return None;
        }
        Some(match key.direction {
            Direction::Forward => &step.forward,
            Direction::Rollback => &step.undo,
        })
    }

    /// What the act with this key does, if the flow has such a step.
    #[must_use]
    pub fn action(&self, key: ActKey) -> Option<&crate::Action> {
        let step = self.flow.steps.get(key.step)?;
        match key.direction {
            Direction::Forward => Some(&step.run),
            Direction::Rollback => step.rollback.as_ref(),
        }
    }

    /// All acts with their keys, forward before undo, in definition order.
    pub fn acts(&self) -> impl Iterator<Item = (ActKey, &Act)> {
        self.state.steps.iter().enumerate().flat_map(|(index, step)| {
            [(ActKey::forward(index), &step.forward), (ActKey::rollback(index), &step.undo)]
        })
    }

    /// Whether nothing will happen to it any more.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state.phase, Phase::Ended(_))
    }

    /// Index of the furthest touched step; 0 before any is touched.
    #[must_use]
    pub fn cursor(&self) -> usize {
        self.state.steps.iter().rposition(|step| step.touched).unwrap_or(0)
    }

    /// The parameters handed to an act: the flow's, the caller's, then results in definition order: those of
    /// the step's ancestors on the way forward, everything so far on the way back.
    #[must_use]
    pub fn params_for(&self, key: ActKey) -> Json {
        let ancestors = match key.direction {
            Direction::Forward => Some(self.flow.ancestors(key.step)),
            Direction::Rollback => None,
        };
        self.merged(|step| ancestors.as_ref().is_none_or(|ancestors| ancestors[step]))
    }

    /// All parameters and results merged.
    #[must_use]
    pub fn outcome(&self) -> Json {
        self.merged(|_| true)
    }

    fn merged(&self, wanted: impl Fn(usize) -> bool) -> Json {
        let common = self.flow.params.as_deref().map(Json::from_stored);
        let steps = || self.state.steps.iter().enumerate().filter(|(index, _)| wanted(*index));
        let forward = steps().filter_map(|(_, step)| step.forward.result.as_ref());
        // Undos run in reverse order, so their results are merged in that order.
        let undos = steps().rev().filter_map(|(_, step)| step.undo.result.as_ref());
        Json::merge(common.iter().chain([&self.input.params]).chain(forward).chain(undos))
    }

    /// The place of an act in its queue: smaller goes first. Fixed when it becomes ready, so nothing starves.
    #[must_use]
    pub fn rank(&self, ready_at: Timestamp) -> i64 {
        ready_at.0 - i64::from(self.input.priority) * PRIORITY_STEP_MS
    }

    /// The failure or trouble to show for the task.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        if let Some(stuck) = &self.state.stuck {
            return Some(stuck.message.to_string());
        }
        let failure = |step: usize| {
            let act = &self.state.steps.get(step)?.forward;
            let message = act.failure.as_ref()?.message.clone();
            Some(format!("step {} failed: {message}", self.flow.steps[step].name))
        };
        match self.state.cause.as_ref()? {
            Cause::Failure { step } | Cause::GivenUp { step, .. } => failure(*step),
            Cause::Cancel { by: Some(by) } => Some(format!("cancelled by {by}")),
            Cause::Cancel { by: None } => Some("cancelled".to_owned()),
        }
    }
}

/// How much earlier one step of priority more counts.
pub const PRIORITY_STEP_MS: i64 = 60_000;

/// Priorities go from minus this to this.
pub const PRIORITY_MAX: i8 = 10;

/// Lost attempts of one act before it is held as poisoned.
pub const DEATHS_MAX: u32 = 3;

/// How often an attempt may ask to be tried later.
pub const POSTPONEMENTS_MAX: u32 = 100;

/// How long an attempt that asks to be tried later waits where it does not say.
pub const POSTPONE_DEFAULT: Millis = Millis::from_secs(10);

/// The name of a step, for messages.
#[must_use]
pub fn step_name(task: &Task, step: usize) -> &Name {
    &task.flow.steps[step].name
}
