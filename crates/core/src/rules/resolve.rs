//! A person settles a stuck or held step.

use super::{fail, turn_back};
use crate::{
    ActKey, Actor, Cause, EventKind, Phase, Rejection, Resolution, ResolutionKind, draft::Draft, step_name,
};

/// Settles the act of `step` that waits for a decision: its undo on the way back, else the step itself.
pub(super) fn resolve(
    draft: &mut Draft<'_>,
    step: usize,
    resolution: &Resolution,
    by: Option<&Actor>,
) -> Result<(), Rejection> {
    if step >= draft.task.state.steps.len() {
        return Err(Rejection::UnknownAct);
    }
    let (key, backward) = match draft.task.state.phase {
        Phase::Ended(_) => return Err(Rejection::Ended),
        Phase::Backward => (ActKey::rollback(step), true),
        Phase::Scheduled | Phase::Forward => (ActKey::forward(step), false),
    };
    let name = step_name(&draft.task, step).to_string();
    if backward && *resolution == Resolution::Rollback {
        return Err(Rejection::AlreadyRollingBack(name));
    }
    let Some(trouble) = fail::trouble(draft, key) else {
        return Err(Rejection::NothingToResolve(name));
    };
    let (kind, result) = match resolution {
        Resolution::Retry => (ResolutionKind::Retry, None),
        Resolution::Skip => (ResolutionKind::Skip, None),
        Resolution::Done(result) => {
            (ResolutionKind::Done, result.clone().filter(|result| !result.is_empty()))
        }
        Resolution::Rollback => (ResolutionKind::Rollback, None),
    };
    if kind == ResolutionKind::Rollback {
        draft.emit(EventKind::ActResolved { key, resolution: kind, result, by: by.cloned() });
        turn_back::turn_back(draft, Cause::GivenUp { step, by: by.cloned() });
        return Ok(());
    }
    draft.emit(EventKind::ActResolved { key, resolution: kind, result, by: by.cloned() });
    draft.emit(EventKind::AlarmCleared { kind: trouble.kind, step: Some(step), by: by.cloned() });
    if kind == ResolutionKind::Retry {
        fail::ready(draft, key);
    }
    Ok(())
}
