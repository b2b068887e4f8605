//! Parameters and results: what of a task may be large.

use std::sync::Arc;

use crate::{Act, Json, Members, State, Step, Task};

impl State {
    /// How many bytes the results of its steps and of their items have.
    #[must_use]
    pub fn result_bytes(&self) -> usize {
        self.steps.iter().map(|step| result_bytes(step)).sum()
    }

    /// Removes all results, and what was made of parameters to be given to items.
    pub fn clear_results(&mut self) {
        for step in self.steps.iter_mut().filter(|step| has_payload(step)) {
            let step = Arc::make_mut(step);
            (step.forward.result, step.undo.result) = (None, None);
            if let Some(members) = &mut step.members {
                members.clear_results();
                members.handed = Default::default();
            }
        }
    }
}

impl Task {
    /// How many bytes its parameters and results have.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.input.params.as_str().len() + self.state.result_bytes()
    }

    /// The task with empty parameters and without results. It shows where the task stands; no command may be decided on
    /// it.
    #[must_use]
    pub fn without_payload(mut self) -> Self {
        Arc::make_mut(&mut self.input).params = Json::empty();
        self.state.clear_results();
        self
    }
}

fn has_payload(step: &Step) -> bool {
    step.forward.result.is_some() || step.undo.result.is_some() || step.members.is_some()
}

fn result_bytes(step: &Step) -> usize {
    let bytes = |act: &Act| act.result.as_ref().map_or(0, |result| result.as_str().len());
    let of_members = |members: &Members| -> usize {
        members.iter().map(|(_, member)| bytes(&member.forward) + bytes(&member.undo)).sum()
    };
    bytes(&step.forward) + bytes(&step.undo) + step.members.as_deref().map_or(0, of_members)
}
