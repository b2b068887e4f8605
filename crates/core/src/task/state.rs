//! The state of a task.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    Act, ActKey, Actor, CHILD_RESULT_BYTES_MAX, Direction, Failure, Flow, Input, Members, Millis, Name, Role,
    TaskId, Timestamp,
};

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
    /// Signals that came before a step waited for them, in their order.
    pub signals: Vec<KeptSignal>,
    /// One per step of the flow, in its order. A transition shares those that it does not change.
    #[serde(deserialize_with = "shared")]
    pub steps: Vec<Arc<Step>>,
}

fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<Step>>, D::Error> {
    Ok(Vec::<Step>::deserialize(deserializer)?.into_iter().map(Arc::new).collect())
}

impl State {
    /// A step that is to be changed.
    pub fn step_mut(&mut self, index: usize) -> &mut Step {
        Arc::make_mut(&mut self.steps[index])
    }
}

/// A signal that came before a step waited for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSignal {
    /// Its name.
    pub name: Name,
    /// What came with it, as the text of a JSON object.
    pub params: Option<Box<str>>,
    /// Who sent it.
    pub by: Option<Actor>,
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
    /// Its deadline passed.
    Deadline,
    /// The task whose step it is was turned around.
    Parent,
    /// What its steps returned is more than the task that waits for it takes.
    ResultTooLarge {
        /// How many bytes.
        bytes: u64,
    },
}

/// One position in a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Whether an attempt of it became ready, so that it may have had effects.
    pub touched: bool,
    /// Doing it.
    pub forward: Act,
    /// Undoing it.
    pub undo: Act,
    /// Its members, once it was fanned out.
    pub members: Option<Box<Members>>,
    /// Parameters that a person gave it after it failed, as the text of a JSON object.
    pub amended: Option<Box<str>>,
}

impl Step {
    /// One of its two acts as a whole.
    #[must_use]
    pub fn act(&self, direction: Direction) -> &Act {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Rollback => &self.undo,
        }
    }
}

impl Task {
    /// A task of `flow` to which nothing has happened yet.
    #[must_use]
    pub fn new(id: TaskId, flow: Arc<Flow>, input: Arc<Input>) -> Self {
        let steps = vec![Arc::default(); flow.steps.len()];
        let phase = if input.at.is_some() { Phase::Scheduled } else { Phase::Forward };
        let state = State {
            phase,
            pause: Pause::None,
            stuck: None,
            cause: None,
            events: 0,
            started_at: None,
            ended_at: None,
            signals: Vec::new(),
            steps,
        };
        Self { id, flow, input, state }
    }

    /// The act with this key, if the task has such a step, and the step such a member.
    #[must_use]
    pub fn act(&self, key: ActKey) -> Option<&Act> {
        let step = self.state.steps.get(key.step)?;
        if key.is_member() {
            return Some(step.members.as_ref()?.get(key.member)?.act(key.direction));
        }
        Some(step.act(key.direction))
    }

    /// What the act with this key does, if the flow has such a step.
    #[must_use]
    pub fn action(&self, key: ActKey) -> Option<&crate::Action> {
        let step = self.flow.steps.get(key.step)?;
        match (step.role, key.direction) {
            (Role::Plain, Direction::Forward) | (Role::OnError, Direction::Rollback) => Some(&step.run),
            (Role::Plain, Direction::Rollback) => step.rollback.as_ref(),
            (Role::OnError, Direction::Forward) => None,
        }
    }

    /// How long the current attempt of an act may take from its claim: its timeout, and no longer than the deadline
    /// of all attempts where that begins with this claim. A deadline that runs already ends the attempt by itself.
    #[must_use]
    pub fn time_allowed(&self, key: ActKey) -> Option<Millis> {
        let action = self.action(key)?;
        let begins = action.deadline.filter(|_| self.act(key).is_none_or(|act| act.deadline_at.is_none()));
        Some(begins.map_or(action.timeout, |deadline| deadline.min(action.timeout)))
    }

    /// When the deadline of an act's attempts ends, if it runs: `claimed_at` is when the current attempt was
    /// claimed, if it is.
    #[must_use]
    pub fn running_deadline(&self, key: ActKey, claimed_at: Option<Timestamp>) -> Option<Timestamp> {
        let act = self.act(key).filter(|act| act.is_open())?;
        let begins = || Some(claimed_at? + self.action(key)?.deadline?);
        act.deadline_at.or_else(begins)
    }

    /// The acts of steps as a whole with their keys, forward before undo, in definition order.
    pub fn step_acts(&self) -> impl Iterator<Item = (ActKey, &Act)> {
        self.state.steps.iter().enumerate().flat_map(|(index, step)| {
            [(ActKey::forward(index), &step.forward), (ActKey::rollback(index), &step.undo)]
        })
    }

    /// All acts with their keys, those of members that have begun as well. It takes as long as there are members.
    pub fn acts(&self) -> impl Iterator<Item = (ActKey, &Act)> {
        let members = self.fans().flat_map(|(index, members)| {
            members.iter().flat_map(move |(number, member)| {
                [
                    (ActKey::forward(index).of_member(number), &member.forward),
                    (ActKey::rollback(index).of_member(number), &member.undo),
                ]
            })
        });
        self.step_acts().chain(members)
    }

    /// Acts that are under way.
    pub fn open_acts(&self) -> impl Iterator<Item = (ActKey, &Act)> {
        let members = self.fans().flat_map(move |(index, members)| {
            [ActKey::forward(index), ActKey::rollback(index)].into_iter().flat_map(move |key| {
                let open = &members.side(key.direction).open;
                open.iter().map(move |number| key.of_member(*number))
            })
        });
        let members = members.filter_map(|key| Some((key, self.act(key)?)));
        self.step_acts().filter(|(_, act)| act.is_open()).chain(members)
    }

    /// Whether anything is under way. However many members are, it takes as long as there are steps.
    #[must_use]
    pub fn has_open_act(&self) -> bool {
        self.has_open(Direction::Forward) || self.has_open(Direction::Rollback)
    }

    /// Whether anything of one direction is under way. However many members are, it takes as long as there are steps.
    #[must_use]
    pub fn has_open(&self, direction: Direction) -> bool {
        self.state.steps.iter().any(|step| {
            let members = step.members.as_ref().map(|members| members.side(direction));
            step.act(direction).is_open() || members.is_some_and(|side| !side.open.is_empty())
        })
    }

    /// The steps that were fanned out, with their indices.
    pub fn fans(&self) -> impl Iterator<Item = (usize, &Members)> {
        let steps = self.state.steps.iter().enumerate();
        steps.filter_map(|(index, step)| Some((index, step.members.as_deref()?)))
    }

    /// When its deadline is, if it has one.
    #[must_use]
    pub fn deadline_at(&self) -> Option<Timestamp> {
        let span = self.input.deadline.or(self.flow.deadline)?;
        Some(self.input.at.unwrap_or(self.input.created_at).max(self.input.created_at) + span)
    }

    /// Whether nothing will happen to it any more, but that one that succeeded is undone with the task whose step it
    /// did.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state.phase, Phase::Ended(_))
    }

    /// Index of the furthest touched step; 0 before any is touched.
    #[must_use]
    pub fn cursor(&self) -> usize {
        self.flow.plain_steps().filter(|step| self.state.steps[*step].touched).last().unwrap_or(0)
    }

    /// The place of an act in its queue: smaller goes first. Fixed when it becomes ready, so nothing starves.
    #[must_use]
    pub fn rank(&self, ready_at: Timestamp) -> i64 {
        ready_at.0 - i64::from(self.input.priority) * PRIORITY_STEP_MS
    }

    /// Why the step failed that turned the task around, if one did.
    #[must_use]
    pub fn failed_step(&self) -> Option<&Failure> {
        match self.state.cause.as_ref()? {
            Cause::Failure { step } | Cause::GivenUp { step, .. } => {
                self.state.steps.get(*step)?.forward.failure.as_ref()
            }
            Cause::Cancel { .. } | Cause::Deadline | Cause::Parent | Cause::ResultTooLarge { .. } => None,
        }
    }

    /// The failure or trouble to show for the task.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        if let Some(stuck) = &self.state.stuck {
            return Some(stuck.message.to_string());
        }
        let failure = |step: usize| {
            let message = &self.failed_step()?.message;
            Some(format!("step {} failed: {message}", self.flow.steps[step].name))
        };
        match self.state.cause.as_ref()? {
            Cause::Failure { step } | Cause::GivenUp { step, .. } => failure(*step),
            Cause::Cancel { by: Some(by) } => Some(format!("cancelled by {by}")),
            Cause::Cancel { by: None } => Some("cancelled".to_owned()),
            Cause::Deadline => Some("the task's deadline passed".to_owned()),
            Cause::Parent => Some("the task that waits for it was turned around".to_owned()),
            Cause::ResultTooLarge { bytes } => Some(format!(
                "its results are {bytes} bytes together, and a step takes at most {CHILD_RESULT_BYTES_MAX}: return \
                 less, or a reference"
            )),
        }
    }
}

/// How much earlier one step of priority more counts.
pub const PRIORITY_STEP_MS: i64 = 60_000;

/// Priorities go from minus this to this.
pub const PRIORITY_MAX: i8 = 10;

/// Lost attempts of one act before it is held as poisoned, where the flow does not say.
pub const DEATHS_MAX: u32 = 3;

/// The most deaths that a flow may allow: each of them may have taken a worker with it.
pub const DEATHS_LIMIT: u32 = 1000;

/// How many signals are kept until their steps wait for them.
pub const SIGNALS_MAX: usize = 100;

/// How often an attempt may ask to be tried later.
pub const POSTPONEMENTS_MAX: u32 = 100;

/// How long an attempt that asks to be tried later waits where it does not say.
pub const POSTPONE_DEFAULT: Millis = Millis::from_secs(10);

/// The name of a step, for messages.
#[must_use]
pub fn step_name(task: &Task, step: usize) -> &Name {
    &task.flow.steps[step].name
}
