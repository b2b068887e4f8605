//! Flows: the steps of a task, and how each is executed and rolled back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    DEATHS_LIMIT, DEATHS_MAX, Expression, Json, Millis, Name, RESULTS, Rejection, SECRET_PARAMS_MAX,
};

mod action;
mod adhoc;
mod device_job;
mod step;
mod unique;

pub use action::*;
pub use adhoc::*;
pub use device_job::*;
pub use step::*;
pub use unique::*;

/// The maximum number of steps in a flow.
pub const STEPS_MAX: usize = 256;

/// The longest timeout, deadline or delay in a flow: 366 days, so that sums of a few never overflow.
pub const SPAN_MAX: Millis = Millis::from_secs(366 * 24 * 3600);

/// A definition in the catalogue. [`Flow::check`] checks whether it can run.
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
    /// The reaction to a final failure.
    pub on_failure: OnFailure,
    /// The maximum duration of a task until it starts rolling back.
    pub deadline: Option<Millis>,
    /// Which of its tasks are duplicates, so that the second one is not started.
    pub unique: Option<Unique>,
    /// The exclusive queue of its tasks: at most one task of the queue is under way at any time.
    pub exclusive: Option<LockRef>,
    /// How long its ended tasks are kept; `None` = the server's retention.
    pub retention: Option<Millis>,
    /// The parameters of its rollbacks.
    pub rollback_params: RollbackParams,
    /// How many attempts of one execution may be lost with their workers before the step is held as poisoned; at
    /// least 1.
    pub deaths_max: u32,
    /// The names of the parameters and members of results, at any depth, that may only be references to secrets. Not
    /// part of this encoding: stores write them behind it.
    #[serde(skip)]
    pub secret: Vec<Name>,
    /// Its steps, in definition order.
    pub steps: Vec<StepDefinition>,
}

/// The parameters of a rollback. Its step's own result and the error are passed separately in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RollbackParams {
    /// Those of the forward execution of its step or item: later results cannot change what is rolled back.
    Step,
    /// The same, overridden by its own result. Flows that were stored in format 2 have it, because their rollbacks may
    /// expect their result there.
    StepAndResult,
    /// All parameters and all results so far, the later ones over the earlier ones, as in the classic catalogue.
    Shared,
}

/// Who makes the retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryBy {
    /// The engine: the message's Retry is 0.
    Engine,
    /// The module retries by itself; the engine must not multiply its attempts.
    Module,
}

/// The reaction to a final failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFailure {
    /// Roll back every step that may have had effects, in reverse order.
    Rollback,
    /// Hold the task until an operator decides.
    Hold,
}

/// Why a flow cannot run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct FlowFault {
    /// The index of the step at fault, if there is one.
    pub step: Option<usize>,
    /// The problem and its fix.
    pub message: String,
}

impl Flow {
    /// The first version of a flow with the defaults of flow files.
    #[must_use]
    pub fn new(name: Name, steps: Vec<StepDefinition>) -> Self {
        Self {
            name,
            version: 1,
            params: None,
            retry_by: RetryBy::Engine,
            on_failure: OnFailure::Rollback,
            deadline: None,
            unique: None,
            exclusive: None,
            retention: None,
            rollback_params: RollbackParams::Step,
            deaths_max: DEATHS_MAX,
            secret: Vec::new(),
            steps,
        }
    }

    /// Checks properties that the types do not guarantee: distinct names, no cycles, limits.
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
            let late = step.after.iter().find(|after| self.steps[**after].role == Role::OnError);
            if let Some(late) = late {
                let message = format!(
                    "step \"{}\" is after \"{}\", the step for errors: nothing comes after that",
                    step.name, self.steps[*late].name
                );
                return fault(Some(index), message);
            }
            if step.role == Role::OnError && self.steps[..index].iter().any(|step| step.role == Role::OnError)
            {
                return fault(
                    Some(index),
                    format!("step \"{}\": there is another step for errors: do it in one", step.name),
                );
            }
            let checked =
                step.check().and_then(|()| self.check_results(index)).and_then(|()| match step.role {
                    Role::Plain => Ok(()),
                    Role::OnError => step.check_role(),
                });
            if let Err(message) = checked {
                return fault(Some(index), format!("step \"{}\": {message}", step.name));
            }
        }
        if self.plain_steps().next().is_none() {
            return fault(None, "a flow needs a step beside `on_error`".to_owned());
        }
        for (key, span) in [("deadline", self.deadline), ("retention", self.retention)] {
            if span.is_some_and(|span| span > SPAN_MAX || span == Millis(0)) {
                let message = format!("the flow's `{key}` must be longer than 0 and at most 366 days");
                return fault(None, message);
            }
        }
        if !(1..=DEATHS_LIMIT).contains(&self.deaths_max) {
            return fault(None, format!("the flow's `deaths_max` must be from 1 to {DEATHS_LIMIT}"));
        }
        self.check_secret().or_else(|message| fault(None, message))?;
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

    /// Checks that parameters of its tasks have references where they are secret.
    ///
    /// # Errors
    /// The first one that is not a reference, as [`Rejection::PlainSecret`].
    pub fn check_secret_params(&self, params: &Json) -> Result<(), Rejection> {
        match params.plain_secret(&self.secret) {
            Some(param) => Err(Rejection::PlainSecret(param.to_string())),
            None => Ok(()),
        }
    }

    fn check_secret(&self) -> Result<(), String> {
        if self.secret.len() > SECRET_PARAMS_MAX {
            return Err(format!(
                "`secret` has {} names; the limit is {SECRET_PARAMS_MAX}",
                self.secret.len()
            ));
        }
        let mut names = self.secret.iter().enumerate();
        if let Some((_, twice)) = names.find(|(index, name)| self.secret[..*index].contains(name)) {
            return Err(format!("`secret` has the name {twice} twice"));
        }
        let params = self.params.as_deref().map(Json::from_stored);
        let checked = params.map_or(Ok(()), |params| self.check_secret_params(&params));
        checked.map_err(|rejection| format!("`params`: {rejection}"))
    }

    /// An expression may only read results of steps that are completed before its own. A parameter with the name of the
    /// map of results is read through `params`.
    fn check_results(&self, index: usize) -> Result<(), String> {
        for expression in self.steps[index].expressions() {
            let Some(name) = expression.results().find(|name| !self.is_before(name, index)) else { continue };
            let is_step = self.step_index(name).is_some();
            return Err(if is_step {
                format!(
                    "`{}` reads the result of \"{name}\", which need not be done before this step: add it to `after`",
                    expression.source()
                )
            } else {
                format!(
                    "`{}` reads the result of a step \"{name}\", which is not in the flow; a parameter called \
                     `{RESULTS}` is `params.{RESULTS}`",
                    expression.source()
                )
            });
        }
        Ok(())
    }

    /// Whether the step `name` is completed before `step`. Before the `on_error` step all steps are.
    pub(crate) fn is_before(&self, name: &str, step: usize) -> bool {
        let found = self.step_index(name).filter(|found| self.steps[*found].role == Role::Plain);
        found.is_some_and(|found| self.steps[step].role == Role::OnError || self.ancestors(step)[found])
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

    /// All its expressions.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let unique = self.unique.iter().map(|unique| &unique.key);
        let exclusive = self.exclusive.iter().filter_map(|queue| match queue {
            LockRef::Name(_) => None,
            LockRef::Expression(expression) => Some(expression),
        });
        unique.chain(exclusive).chain(self.steps.iter().flat_map(StepDefinition::expressions))
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

    /// Indices of the plain steps, in definition order: all but the `on_error` step.
    pub fn plain_steps(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.steps.len()).filter(|index| self.steps[*index].role == Role::Plain)
    }

    /// Whether the task continues when `step` fails: all its successors are joins that accept fewer results.
    #[must_use]
    pub fn tolerates(&self, step: usize) -> bool {
        let mut successors = self.successors(step).peekable();
        successors.peek().is_some()
            && successors.all(|next| {
                let next = &self.steps[next];
                next.each.is_none() && next.on_partial != OnPartial::Fail
            })
    }

    /// Which steps must be completed before `step`, directly or indirectly.
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
