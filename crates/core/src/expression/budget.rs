//! The evaluation steps that the expressions of a transition may take together.

use std::cell::Cell;

use super::{EVALUATION_STEPS_PER_TRANSITION_MAX, value::BYTES_PER_STEP};

/// Steps shared by several evaluations: each of them uses what it needs, until none are left.
///
/// A flow has up to 256 steps with an expression each, and one command may evaluate all of them. The limit of a single
/// expression does not bound that.
#[derive(Debug)]
pub struct EvaluationBudget {
    steps_max: u64,
    steps_left: Cell<u64>,
    is_exceeded: Cell<bool>,
}

/// An evaluation needs more steps than the budget has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetExceeded;

impl EvaluationBudget {
    /// A budget of `steps_max` steps.
    #[must_use]
    pub fn new(steps_max: u64) -> Self {
        Self { steps_max, steps_left: Cell::new(steps_max), is_exceeded: Cell::new(false) }
    }

    /// A budget for a single evaluation, which has a limit of its own.
    pub(super) fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// The number of used steps.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.steps_max - self.steps_left.get()
    }

    /// Whether an evaluation needed more steps than were left.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// Whether at least half of it is left.
    pub(crate) fn is_ample(&self) -> bool {
        self.steps_left.get() >= self.steps_max / 2
    }

    pub(crate) fn left(&self) -> u64 {
        self.steps_left.get()
    }

    /// Uses `steps`. If fewer are left, it uses these, and the budget is exceeded.
    pub(crate) fn spend(&self, steps: u64) -> Result<(), BudgetExceeded> {
        if let Some(left) = self.steps_left.get().checked_sub(steps) {
            self.steps_left.set(left);
            return Ok(());
        }
        self.steps_left.set(0);
        self.is_exceeded.set(true);
        Err(BudgetExceeded)
    }

    /// Uses the steps for reading this number of bytes of JSON.
    ///
    /// # Errors
    /// When fewer steps are left: as a message.
    pub(crate) fn look_through(&self, bytes: usize) -> Result<(), String> {
        self.spend((bytes / BYTES_PER_STEP) as u64).map_err(|BudgetExceeded| self.words())
    }

    /// The error message for an exceeded budget.
    pub(crate) fn words(&self) -> String {
        format!(
            "the expressions that are evaluated together take more than {} steps: let them read shorter lists and \
             strings, or use fewer of them",
            self.steps_max
        )
    }
}

/// The budget of a transition.
impl Default for EvaluationBudget {
    fn default() -> Self {
        Self::new(EVALUATION_STEPS_PER_TRANSITION_MAX)
    }
}
