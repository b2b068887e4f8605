//! Accepting a task.

use std::collections::BTreeSet;

use super::secret;
use crate::{
    ActKey, Actor, EventKind, Json, Rejection, ResolutionKind, Role, step_name, transition::draft::Draft,
};

/// Starts the history of a task; a task without a start time then starts its first steps. Steps that another task has
/// completed are marked as completed.
pub(super) fn accept(
    draft: &mut Draft<'_>,
    done: &[(usize, Option<Json>)],
    overrides_unique: bool,
    by: Option<&Actor>,
) -> Result<(), Rejection> {
    if draft.task.state.events > 0 {
        return Err(Rejection::Duplicate);
    }
    check(draft, done)?;
    let results = done.iter().filter_map(|(_, result)| result.as_ref());
    for params in results.chain([&draft.task.input.params]) {
        secret::check(&draft.task, Some(params))?;
    }
    draft.emit(EventKind::TaskAccepted);
    if overrides_unique {
        draft.emit(EventKind::UniqueOverridden { by: by.cloned() });
    }
    for (step, result) in done {
        let (key, resolution) = (ActKey::forward(*step), ResolutionKind::Done);
        draft.emit(EventKind::ActResolved { key, resolution, result: result.clone(), by: by.cloned() });
    }
    Ok(())
}

/// Checks that completed steps follow the order of the flow, each at most once.
fn check(draft: &Draft<'_>, done: &[(usize, Option<Json>)]) -> Result<(), Rejection> {
    let flow = &draft.task.flow;
    let steps: BTreeSet<usize> = done.iter().map(|(step, _)| *step).collect();
    for step in &steps {
        let definition = flow.steps.get(*step).ok_or(Rejection::UnknownAct)?;
        let before = definition.after.iter().all(|before| steps.contains(before));
        if definition.role != Role::Plain || !before {
            return Err(Rejection::DoneTooEarly(step_name(&draft.task, *step).to_string()));
        }
    }
    let repeated = steps.len() < done.len();
    if repeated { Err(Rejection::Duplicate) } else { Ok(()) }
}
