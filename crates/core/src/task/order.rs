//! The order of a task's steps: when a step lets its successors start, and when its successors are rolled back.

use crate::{ActState, Task};

impl Task {
    /// Whether the successors of this step need not wait for it any more: it is completed or skipped, or has failed and
    /// they tolerate that.
    #[must_use]
    pub fn lets_pass(&self, step: usize) -> bool {
        let act = &self.state.steps[step].forward;
        act.is_satisfied() || act.state == ActState::Failed && self.flow.tolerates(step)
    }

    /// Whether every later step that needs a rollback, directly or indirectly after this one, is rolled back or
    /// skipped.
    #[must_use]
    pub fn is_undone_after(&self, step: usize) -> bool {
        let mut seen = vec![false; self.flow.steps.len()];
        let mut open: Vec<usize> = self.flow.successors(step).collect();
        while let Some(next) = open.pop() {
            let (touched, undone) =
                (self.state.steps[next].touched, self.state.steps[next].undo.is_satisfied());
            if touched && !undone {
                return false;
            }
            // A rolled-back step was rolled back after its successors; a step that needs no rollback says nothing about
            // its successors.
            if !touched && !std::mem::replace(&mut seen[next], true) {
                open.extend(self.flow.successors(next));
            }
        }
        true
    }
}
