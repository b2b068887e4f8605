//! Flows: what the steps of a task are and how each is done and undone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{LockName, Millis, Name};

/// The most steps a flow may have.
pub const STEPS_MAX: usize = 256;

/// How long one attempt may take where the flow does not say.
pub const TIMEOUT_DEFAULT: Millis = Millis::from_secs(5 * 60);

/// The longest timeout, deadline or delay a flow may name: 366 days, so that sums of a few never overflow.
pub const SPAN_MAX: Millis = Millis::from_secs(366 * 24 * 3600);

/// The most retries a flow may ask for.
pub const RETRIES_MAX: u32 = 1_000_000;

/// The module whose commands are flows; no worker may serve it.
pub const FLOW_MODULE: &str = "flow";

/// A definition in the catalogue. [`Flow::check`] says whether it can run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Its name.
    pub name: Name,
    /// Its version, from 1. A running task keeps the version it was started with.
    pub version: u32,
    /// Parameters common to all its tasks, as the text of a JSON object.
    pub params: Option<Box<str>>,
    /// Who makes the retries.
    pub retry_by: RetryBy,
    /// What a final failure does.
    pub on_failure: OnFailure,
    /// Its steps, in definition order.
    pub steps: Vec<StepDefinition>,
}

/// One step of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDefinition {
    /// Unlike the other steps' names.
    pub name: Name,
    /// What does it.
    pub run: Action,
    /// What undoes it; a step without is passed over on the way back.
    pub rollback: Option<Action>,
    /// Indices of the steps that must be done before it, in ascending order.
    pub after: Vec<usize>,
    /// Names of the locks it needs, in name order.
    pub locks: Vec<LockName>,
}

/// What a step does, forward or back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The queue it goes to.
    pub module: Name,
    /// What the module is asked to do.
    pub command: Name,
    /// How long one attempt may take.
    pub timeout: Millis,
    /// How long all attempts together may take.
    pub deadline: Option<Millis>,
    /// How often and how fast a failure is tried again.
    pub retry: Retry,
}

/// How often and how fast a failure is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// This often: 3 means at most 4 attempts.
    pub max: u32,
    /// How the delay grows.
    pub backoff: Backoff,
    /// The first delay.
    pub base: Millis,
    /// The longest delay.
    pub cap: Millis,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max: 0, backoff: Backoff::Exponential, base: Millis::from_secs(1), cap: Millis::from_secs(60) }
    }
}

/// How the delay between attempts grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backoff {
    /// Twice as long each time, with jitter.
    Exponential,
    /// The same each time, with jitter.
    Fixed,
    /// No delay, as in classic flows.
    None,
}

/// Who makes the retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryBy {
    /// The engine: the message's Retry is 0.
    Engine,
    /// The module loops by itself; the engine must not multiply its attempts.
    Module,
}

/// What a final failure does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFailure {
    /// Undo every touched step in reverse order.
    Rollback,
    /// Hold the task until a person decides.
    Hold,
}

/// Why a flow cannot run. `step` is the index of the step at fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct FlowFault {
    /// The step at fault, where one is.
    pub step: Option<usize>,
    /// What is wrong and what to do.
    pub message: String,
}

impl Flow {
    /// Checks what the types do not say: names unlike one another, no cycles, limits.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), FlowFault> {
        let fault = |step: Option<usize>, message: String| Err(FlowFault { step, message });
        if self.steps.is_empty() {
            return fault(None, "a flow needs at least one step".to_owned());
        }
        if self.steps.len() > STEPS_MAX {
            return fault(None, format!("the flow has {} steps; the most is {STEPS_MAX}", self.steps.len()));
        }
        let mut names = BTreeMap::new();
        for (index, step) in self.steps.iter().enumerate() {
            if let Some(first) = names.insert(step.name.as_str(), index) {
                return fault(
                    Some(index),
                    format!(
                        "step \"{}\" is there twice, as step {} and step {}: give each a name of its own",
                        step.name,
                        first + 1,
                        index + 1
                    ),
                );
            }
            if let Some(unknown) = step.after.iter().find(|after| **after >= self.steps.len()) {
                return fault(
                    Some(index),
                    format!("step \"{}\" is after step {unknown}, which is not there", step.name),
                );
            }
            for action in [Some(&step.run), step.rollback.as_ref()].into_iter().flatten() {
                if let Err(message) = action.check() {
                    return fault(Some(index), format!("step \"{}\": {message}", step.name));
                }
            }
        }
        if let Some(index) = self.cycle() {
            return fault(
                Some(index),
                format!(
                    "step \"{}\" waits for itself through its `after`: break the cycle",
                    self.steps[index].name
                ),
            );
        }
        Ok(())
    }

    /// A step that is on a cycle, if there is one.
    fn cycle(&self) -> Option<usize> {
        let mut done = vec![false; self.steps.len()];
        for _ in 0..self.steps.len() {
            let next = (0..self.steps.len())
                .find(|index| !done[*index] && self.steps[*index].after.iter().all(|after| done[*after]));
            match next {
                Some(index) => done[index] = true,
                None => return done.iter().position(|done| !done),
            }
        }
        None
    }

    /// The index of the step with this name.
    #[must_use]
    pub fn step_index(&self, name: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.name.as_str() == name)
    }

    /// Indices of the steps that wait for `step` directly, in ascending order.
    pub fn successors(&self, step: usize) -> impl Iterator<Item = usize> + '_ {
        self.steps
            .iter()
            .enumerate()
            .filter(move |(_, candidate)| candidate.after.contains(&step))
            .map(|(index, _)| index)
    }

    /// Which steps must be done before `step`, directly or through others.
    #[must_use]
    pub fn ancestors(&self, step: usize) -> Vec<bool> {
        let mut found = vec![false; self.steps.len()];
        let mut open = self.steps[step].after.clone();
        while let Some(index) = open.pop() {
            if !found[index] {
                found[index] = true;
                open.extend(&self.steps[index].after);
            }
        }
        found
    }
}

impl Action {
    fn check(&self) -> Result<(), String> {
        if self.module.as_str() == FLOW_MODULE {
            return Err(format!(
                "`run: {FLOW_MODULE}.{}` starts a child task, which this version cannot do yet",
                self.command
            ));
        }
        if self.timeout == Millis(0) {
            return Err(
                "a timeout of 0 would fail every attempt: give it a length, or leave it out".to_owned()
            );
        }
        let spans = [
            ("timeout", Some(self.timeout)),
            ("deadline", self.deadline),
            ("retry.base", Some(self.retry.base)),
            ("retry.cap", Some(self.retry.cap)),
        ];
        for (name, span) in spans {
            if span.is_some_and(|span| span > SPAN_MAX) {
                return Err(format!("`{name}` is longer than 366 days"));
            }
        }
        if self.deadline == Some(Millis(0)) {
            return Err("a deadline of 0 would fail every step: give it a length, or leave it out".to_owned());
        }
        if self.retry.max > RETRIES_MAX {
            return Err(format!("`retry` is more than {RETRIES_MAX}"));
        }
        Ok(())
    }
}
