//! An operator resolves a stuck or held step.

use super::{attempts, secret, turn_back};
use crate::{
    ActKey, ActState, Actor, Cause, Direction, EventKind, Json, Phase, Rejection, Resolution, ResolutionKind,
    Role, step_name, transition::draft::Draft,
};

/// Resolves the execution of `step` that waits for a decision: its rollback during a rollback, else the step itself.
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
    if *resolution == Resolution::Retry(None) && hurry(draft, key, by) {
        return Ok(());
    }
    let Some(trouble) = crate::task::trouble(&draft.task, key) else {
        return Err(Rejection::NothingToResolve(name));
    };
    match resolution {
        Resolution::Retry(Some(params)) => {
            secret::check(&draft.task, Some(params))?;
            check_list(draft, step, params)?;
        }
        Resolution::Done(result) => secret::check(&draft.task, result.as_ref())?,
        Resolution::Retry(None) | Resolution::Skip | Resolution::Rollback => {}
    }
    let (kind, result) = match resolution {
        Resolution::Retry(_) => (ResolutionKind::Retry, None),
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
    if let Resolution::Retry(params) = resolution {
        if let Some(params) = params.as_ref().filter(|params| !params.is_empty()) {
            amend(draft, key, params, by);
        }
        retry(draft, key);
    }
    Ok(())
}

/// Makes the next attempt at once: of the step as a whole, or of its delayed items. Returns whether there was one.
fn hurry(draft: &mut Draft<'_>, key: ActKey, by: Option<&Actor>) -> bool {
    let members = draft.task.state.steps[key.step].members.as_ref();
    let open = members.into_iter().flat_map(|members| members.side(key.direction).open.iter());
    let keys = std::iter::once(key).chain(open.map(|number| key.of_member(*number)));
    // A step with items has no attempts itself, so it can only wait for its `delay`.
    let has_items = draft.task.flow.steps[key.step].each.is_some();
    let waits = |key: &ActKey| {
        let act = draft.task.act(*key);
        // An execution without an attempt waits for its `delay`, which is not a retry.
        act.is_some_and(|act| matches!(act.state, ActState::Delayed { .. }) && act.attempt > 0)
            && (key.is_member() || !has_items)
    };
    let waiting: Vec<ActKey> = keys.filter(waits).collect();
    for key in &waiting {
        let (resolution, by) = (ResolutionKind::Retry, by.cloned());
        draft.emit(EventKind::ActResolved { key: *key, resolution, result: None, by });
        attempts::begin(draft, *key);
    }
    !waiting.is_empty()
}

/// Items keep their elements, because the rollback of completed items uses them.
fn check_list(draft: &Draft<'_>, step: usize, params: &Json) -> Result<(), Rejection> {
    let begun = draft.task.state.steps[step].members.as_ref().is_some_and(|members| members.begun() > 0);
    match &draft.task.flow.steps[step].each {
        Some(each) if begun && params.has(&each.list) => Err(Rejection::ListInUse {
            step: step_name(&draft.task, step).to_string(),
            list: each.list.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Gives the step other parameters; the previous values of the same names are recorded as well.
fn amend(draft: &mut Draft<'_>, key: ActKey, params: &Json, by: Option<&Actor>) {
    let before = draft.task.params_for(key).only(params).as_str().into();
    let after = params.as_str().into();
    draft.emit(EventKind::StepAmended { step: key.step, before, after, by: by.cloned() });
}

/// Tries again. An execution without any attempt failed on its parameters, and they are evaluated again.
fn retry(draft: &mut Draft<'_>, key: ActKey) {
    let act = draft.task.act(key);
    match act.map(|act| (act.state, act.attempt)) {
        // Its items start as the task proceeds.
        Some((ActState::Fanned, _)) => {}
        // The step starts as the task proceeds.
        Some((_, 0)) if key.direction == Direction::Forward => {}
        Some((ActState::Idle, _)) if draft.task.flow.steps[key.step].each.is_some() => {}
        // Its concurrency key may differ with other parameters.
        _ if key.direction == Direction::Forward => attempts::enter(draft, key),
        _ if draft.task.flow.steps[key.step].role == Role::OnError => attempts::enter(draft, key),
        _ => attempts::begin(draft, key),
    }
}
