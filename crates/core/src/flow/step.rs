//! Steps of a flow: their actions, their conditions, and the meaning of partial failures.

use serde::{Deserialize, Serialize};

use super::{Action, DeviceJob, Doer};
use crate::{Expression, LockName, Millis, Name};

/// The maximum number of items of a fanned-out step.
pub const MEMBERS_MAX: usize = 10_000;

/// The maximum number of concurrent items of one task, over all its steps; each step may always have one.
pub const MEMBERS_OPEN_MAX: usize = 1_000;

/// The default number of concurrent items.
pub const PARALLEL_DEFAULT: u32 = 100;

/// The maximum number of concurrent items of a step.
pub const PARALLEL_MAX: u32 = 1_000;

/// The maximum number of locks of a step.
pub const LOCKS_MAX: usize = 16;

/// One step of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepDefinition {
    /// Distinct from the other steps' names.
    pub name: Name,
    /// When it runs.
    pub role: Role,
    /// Its forward action.
    pub run: Action,
    /// Its rollback action; a step without one is skipped during a rollback.
    pub rollback: Option<Action>,
    /// Indices of the steps that must be completed before it, in ascending order.
    pub after: Vec<usize>,
    /// Its condition: the step is skipped unless this is true.
    pub when: Option<Expression>,
    /// It is executed once for each element of a list.
    pub each: Option<Each>,
    /// The meaning of a failed item; for a join, the meaning of a failed predecessor.
    pub on_partial: OnPartial,
    /// How long it waits after its predecessors are completed.
    pub delay: Option<Millis>,
    /// The concurrency key under which limits count its attempts.
    pub key: Option<Expression>,
    /// The locks it needs.
    pub locks: Vec<LockRef>,
}

/// When a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// After its predecessors.
    Plain,
    /// Once the task has failed and no forward execution is in flight any more; it gets all errors.
    OnError,
}

/// A step is executed once for each element of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Each {
    /// The parameter that holds the list.
    pub list: Box<str>,
    /// The maximum number of concurrent items.
    pub parallel: u32,
}

/// The meaning of a partial failure for the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnPartial {
    /// The whole fails as well.
    Fail,
    /// It continues with the successful parts.
    Continue,
    /// It continues if at least this many parts succeeded.
    AtLeast(u32),
}

/// A lock that a step needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockRef {
    /// A fixed lock.
    Name(LockName),
    /// The lock that this expression names.
    Expression(Expression),
}

impl StepDefinition {
    /// A step with the defaults of flow files.
    #[must_use]
    pub fn new(name: Name, run: Action, after: Vec<usize>) -> Self {
        Self {
            name,
            role: Role::Plain,
            run,
            rollback: None,
            after,
            when: None,
            each: None,
            on_partial: OnPartial::Fail,
            delay: None,
            key: None,
            locks: Vec::new(),
        }
    }

    /// Whether its concurrency key or a lock name depends on the parameter `name`.
    pub(crate) fn is_named_by(&self, name: &str) -> bool {
        self.naming().any(|expression| expression.looks_at(name))
    }

    /// The expressions of its concurrency key and its locks.
    pub(crate) fn naming(&self) -> impl Iterator<Item = &Expression> {
        let locks = self.locks.iter().filter_map(|lock| match lock {
            LockRef::Expression(expression) => Some(expression),
            LockRef::Name(_) => None,
        });
        self.key.iter().chain(locks)
    }

    /// All its expressions.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let actions = std::iter::once(&self.run).chain(&self.rollback);
        let jobs = actions.filter_map(Action::device_job).flat_map(DeviceJob::expressions);
        self.when.iter().chain(self.naming()).chain(jobs)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.run.check()?;
        if self.locks.len() > LOCKS_MAX {
            return Err(format!("it needs {} locks; the limit is {LOCKS_MAX}", self.locks.len()));
        }
        if let Some(rollback) = &self.rollback {
            rollback.check().map_err(|message| format!("its rollback: {message}"))?;
            if rollback.worker().is_none() {
                return Err("its rollback must be a command of a module".to_owned());
            }
        }
        let rolls_back_on_device = self.rollback.as_ref().is_some_and(|action| action.device_job().is_some());
        if rolls_back_on_device && self.run.device_job().is_none() {
            return Err(
                "its rollback is a job of a device, and the step has no device: write a command of a module"
                    .to_owned(),
            );
        }
        if self.run.device_job().is_some() && self.locks.is_empty() {
            return Err("the step has no device: its first lock must be that of its device".to_owned());
        }
        if self.delay.is_some_and(|delay| delay > super::SPAN_MAX) {
            return Err("`delay` is longer than 366 days".to_owned());
        }
        if let Doer::Signal { .. } = self.run.doer {
            let unfit = [
                ("rollback", self.rollback.is_some(), "it waits, and there is nothing to roll back"),
                ("each", self.each.is_some(), "a signal does not say for which item it is"),
                ("locks", !self.locks.is_empty(), "the locks would be held for as long as nobody sends it"),
            ];
            if let Some((name, _, why)) = unfit.iter().find(|(_, there, _)| *there) {
                return Err(format!("a step that waits for a signal cannot have `{name}`: {why}"));
            }
        }
        if let Doer::Flow { .. } = self.run.doer {
            if self.rollback.is_some() {
                return Err(
                    "a child task is rolled back by its own flow: leave `rollback` out, or do it in that flow"
                        .to_owned(),
                );
            }
            if self.run.start_within.is_some() {
                return Err(
                    "`start_within` is for steps that workers do: `timeout` says how long the task may take"
                        .to_owned(),
                );
            }
        }
        if let Some(each) = &self.each
            && !(1..=PARALLEL_MAX).contains(&each.parallel)
        {
            return Err(format!("`parallel` must be from 1 to {PARALLEL_MAX}"));
        }
        self.check_partial()
    }

    /// The `on_error` step runs when the task has failed, and nowhere else.
    pub(super) fn check_role(&self) -> Result<(), String> {
        let unfit = [
            ("after", !self.after.is_empty()),
            ("when", self.when.is_some()),
            ("each", self.each.is_some()),
            ("delay", self.delay.is_some()),
            ("rollback", self.rollback.is_some()),
        ];
        if let Some((name, _)) = unfit.iter().find(|(_, there)| *there) {
            return Err(format!(
                "`{name}` means nothing for the step for errors, which runs once the task has failed: leave it out"
            ));
        }
        if self.run.worker().is_none() {
            return Err("the step for errors must be a command of a module".to_owned());
        }
        Ok(())
    }

    fn check_partial(&self) -> Result<(), String> {
        let joins = self.after.len() > 1;
        match self.on_partial {
            OnPartial::Fail => Ok(()),
            _ if self.each.is_none() && !joins => {
                Err("`on_partial` is for a step with `each`, or for one that is `after` several others"
                    .to_owned())
            }
            OnPartial::AtLeast(0) => Err("`on_partial: 0` asks for nothing: write `continue`".to_owned()),
            OnPartial::AtLeast(least) if self.each.is_none() && least as usize > self.after.len() => {
                Err(format!("`on_partial: {least}` is more than the {} steps before it", self.after.len()))
            }
            OnPartial::AtLeast(least) if least as usize > MEMBERS_MAX => {
                Err(format!("`on_partial` is more than the {MEMBERS_MAX} items a step may have"))
            }
            OnPartial::Continue | OnPartial::AtLeast(_) => Ok(()),
        }
    }
}
