//! The state of a task.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    Act, ActKey, Actor, CHILD_RESULT_BYTES_MAX, Direction, Failure, Flow, Input, Members, Millis, Name,
    PRIORITY_STEP_MS, QueuePlace, Role, TaskId, Timestamp,
};

/// One run of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// The flow, in the version the task was started with.
    pub flow: Arc<Flow>,
    /// The input; never changes.
    pub input: Arc<Input>,
    /// The changing part.
    pub state: State,
}

/// The changing part of a task: its head and its steps. Stored in a versioned encoding; payloads are stored separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its direction.
    pub phase: Phase,
    /// Whether an operator has paused it.
    pub pause: Pause,
    /// Why it waits for an operator.
    pub stuck: Option<Stuck>,
    /// Why it rolls back.
    pub cause: Option<Cause>,
    /// The number of its events.
    pub events: u64,
    /// When its first step was handed out.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Signals that arrived before a step waited for them, in their order.
    pub signals: Vec<KeptSignal>,
    /// Its place in its exclusive queue, if its input names one.
    pub queue: QueuePlace,
    /// One per step of the flow, in its order. A transition shares the unchanged ones.
    #[serde(deserialize_with = "shared")]
    pub steps: Vec<Arc<Step>>,
}

fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<Step>>, D::Error> {
    Ok(Vec::<Step>::deserialize(deserializer)?.into_iter().map(Arc::new).collect())
}

impl State {
    /// A step, for a change.
    pub fn step_mut(&mut self, index: usize) -> &mut Step {
        Arc::make_mut(&mut self.steps[index])
    }
}

/// A signal that arrived before a step waited for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSignal {
    /// Its name.
    pub name: Name,
    /// Its parameters, as the text of a JSON object.
    pub params: Option<Box<str>>,
    /// Who sent it.
    pub by: Option<Actor>,
}

/// The direction of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Before its start time.
    Scheduled,
    /// Steps are executed.
    Forward,
    /// Steps that may have had effects are rolled back.
    Backward,
    /// The task has ended.
    Ended(Ending),
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// All steps are completed.
    Succeeded,
    /// A step failed without a further retry, and at least one rollback ran.
    RolledBack,
    /// A step failed without a further retry, and there was nothing to roll back.
    Failed,
    /// Cancelled, and rolled back as far as necessary.
    Cancelled,
}

/// Whether the task is paused, and by whom. `pausing` is a pause with attempts still in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pause {
    /// Not paused.
    None,
    /// Paused: nothing new starts.
    Held,
    /// Paused, and workers must stop the attempts that they have. It stays so until the resume.
    Stopping,
    /// The same, by the server, which may not run the task for a time. The server ends it; an operator's pause replaces it.
    Suspended,
}

/// Why a task waits for an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// The kind of trouble.
    pub kind: StuckKind,
    /// The step it concerns.
    pub step: Option<usize>,
    /// The error message.
    pub message: Box<str>,
}

/// The kinds of trouble that an operator has to resolve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StuckKind {
    /// A step failed without a further retry, and the `on_failure` of its flow is to hold the task.
    Held,
    /// Attempts of a step killed their workers too often.
    Poisoned,
    /// A rollback failed without a further retry.
    RollbackFailed,
    /// A transition would have broken an invariant.
    EngineFault,
    /// The task is paused and keeps its exclusive queue, so that no other task of the queue can start.
    QueueBlocked,
}

/// Why a task rolls back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A step failed without a further retry.
    Failure {
        /// The step.
        step: usize,
    },
    /// An operator gave up on a held step.
    GivenUp {
        /// The step.
        step: usize,
        /// The operator.
        by: Option<Actor>,
    },
    /// An operator cancelled it.
    Cancel {
        /// The operator.
        by: Option<Actor>,
    },
    /// Its deadline passed.
    Deadline,
    /// Its parent task started rolling back.
    Parent,
    /// The results of its steps are larger than the parent task accepts.
    ResultTooLarge {
        /// The size in bytes.
        bytes: u64,
    },
    /// It had succeeded, and the rollout that started it was aborted.
    Rollout {
        /// The rollout.
        rollout: Name,
    },
}

/// One step of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Whether an attempt of it became ready, so that it may have had effects and needs a rollback.
    pub touched: bool,
    /// The forward execution.
    pub forward: Act,
    /// The rollback.
    pub undo: Act,
    /// Its items, once it was fanned out.
    pub members: Option<Box<Members>>,
    /// Parameters that an operator gave it after it failed, as the text of a JSON object.
    pub amended: Option<Box<str>>,
}

impl Step {
    /// One of its two executions as a whole.
    #[must_use]
    pub fn act(&self, direction: Direction) -> &Act {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Rollback => &self.undo,
        }
    }
}

impl Task {
    /// A task of `flow` without any events.
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
            queue: QueuePlace::default(),
            steps,
        };
        Self { id, flow, input, state }
    }

    /// The execution with this key, if the task has such a step, and the step such an item.
    #[must_use]
    pub fn act(&self, key: ActKey) -> Option<&Act> {
        let step = self.state.steps.get(key.step)?;
        if key.is_member() {
            return Some(step.members.as_ref()?.get(key.member)?.act(key.direction));
        }
        Some(step.act(key.direction))
    }

    /// The action of this execution, if the flow has such a step.
    #[must_use]
    pub fn action(&self, key: ActKey) -> Option<&crate::Action> {
        let step = self.flow.steps.get(key.step)?;
        match (step.role, key.direction) {
            (Role::Plain, Direction::Forward) | (Role::OnError, Direction::Rollback) => Some(&step.run),
            (Role::Plain, Direction::Rollback) => step.rollback.as_ref(),
            (Role::OnError, Direction::Forward) => None,
        }
    }

    /// The maximum duration of the current attempt from its claim: its timeout, but at most the deadline of all
    /// attempts if that starts with this claim. A deadline that runs already ends the attempt separately.
    #[must_use]
    pub fn time_allowed(&self, key: ActKey) -> Option<Millis> {
        let action = self.action(key)?;
        let begins = action.deadline.filter(|_| self.act(key).is_none_or(|act| act.deadline_at.is_none()));
        let timeout = action.attempt_timeout();
        Some(begins.map_or(timeout, |deadline| deadline.min(timeout)))
    }

    /// When the deadline of an execution's attempts ends, if it runs: `claimed_at` is the time of the current attempt's
    /// claim, if it is claimed.
    #[must_use]
    pub fn running_deadline(&self, key: ActKey, claimed_at: Option<Timestamp>) -> Option<Timestamp> {
        let act = self.act(key).filter(|act| act.is_open())?;
        let begins = || Some(claimed_at? + self.action(key)?.deadline?);
        act.deadline_at.or_else(begins)
    }

    /// The executions of whole steps with their keys, forward before rollback, in definition order.
    pub fn step_acts(&self) -> impl Iterator<Item = (ActKey, &Act)> {
        self.state.steps.iter().enumerate().flat_map(|(index, step)| {
            [(ActKey::forward(index), &step.forward), (ActKey::rollback(index), &step.undo)]
        })
    }

    /// All executions with their keys, including those of started items. The cost grows with the number of items.
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

    /// Open executions.
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

    /// Whether any execution is open. The cost grows with the number of steps, not of items.
    #[must_use]
    pub fn has_open_act(&self) -> bool {
        self.has_open(Direction::Forward) || self.has_open(Direction::Rollback)
    }

    /// Whether any execution of one direction is open. The cost grows with the number of steps, not of items.
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

    /// Whether it has ended. Nothing can happen to it any more, except that a completed child task can be rolled back
    /// with its parent.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state.phase, Phase::Ended(_))
    }

    /// Index of the last step that may have had effects; 0 before there is one.
    #[must_use]
    pub fn cursor(&self) -> usize {
        self.flow.plain_steps().filter(|step| self.state.steps[*step].touched).last().unwrap_or(0)
    }

    /// The rank of an execution in its queue: smaller goes first. Fixed when it becomes ready, so that nothing starves.
    #[must_use]
    pub fn rank(&self, ready_at: Timestamp) -> i64 {
        ready_at.0 - i64::from(self.input.priority) * PRIORITY_STEP_MS
    }

    /// The failure of the step that made the task roll back, if there is one.
    #[must_use]
    pub fn failed_step(&self) -> Option<&Failure> {
        match self.state.cause.as_ref()? {
            Cause::Failure { step } | Cause::GivenUp { step, .. } => {
                self.state.steps.get(*step)?.forward.failure.as_ref()
            }
            // No step of it failed.
            _ => None,
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
            Cause::Rollout { rollout } => Some(format!("the rollout {rollout} was aborted")),
            Cause::Parent => Some("its parent task started rolling back".to_owned()),
            Cause::ResultTooLarge { bytes } => Some(format!(
                "its results are {bytes} bytes together, and a step takes at most {CHILD_RESULT_BYTES_MAX}: return \
                 less, or a reference"
            )),
        }
    }
}

/// The name of a step, for messages.
#[must_use]
pub fn step_name(task: &Task, step: usize) -> &Name {
    &task.flow.steps[step].name
}
