//! What comes after what in a task: when a step lets those after it pass, and when those after it are undone.

use crate::{ActState, Task};

impl Task {
    /// Whether those after this step need not wait for it any more: it is done or passed over, or has failed and
    /// they do without it.
    #[must_use]
    pub fn lets_pass(&self, step: usize) -> bool {
        let act = &self.state.steps[step].forward;
        act.is_satisfied() || act.state == ActState::Failed && self.flow.tolerates(step)
    }

    /// Whether every touched step that came after this one, directly or through others, is undone or passed over.
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
            // One that was undone was so after those that came after it; one that was not touched says nothing of them.
            if !touched && !std::mem::replace(&mut seen[next], true) {
                open.extend(self.flow.successors(next));
            }
        }
        true
    }
}
