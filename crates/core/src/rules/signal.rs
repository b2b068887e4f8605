//! A signal completes the step that waits for it.

use super::secret;
use crate::{
    ActKey, ActState, Actor, Awaited, Doer, EventKind, Json, Name, Phase, Rejection, SIGNALS_MAX, Task,
    transition::draft::Draft,
};

/// Delivers the signal to the first step that waits for it, in definition order; otherwise keeps it if `keep` is true.
pub(super) fn signal(
    draft: &mut Draft<'_>,
    name: &Name,
    params: Option<&Json>,
    keep: bool,
    by: Option<&Actor>,
) -> Result<(), Rejection> {
    if draft.task.is_ended() {
        return Err(Rejection::Ended);
    }
    secret::check(&draft.task, params)?;
    if let Some(key) = waits_for(&draft.task, name) {
        receive(draft, key, name, params.cloned(), by.cloned());
        return Ok(());
    }
    let steps = draft.task.flow.steps.iter().zip(&draft.task.state.steps);
    let mut waiting =
        steps.filter(|(step, _)| step.run.doer == Doer::Signal { name: name.clone() }).peekable();
    if waiting.peek().is_none() {
        return Err(Rejection::UnknownSignal(name.to_string()));
    }
    if waiting.all(|(_, step)| step.forward.is_satisfied()) {
        return Err(Rejection::SignalDone(name.to_string()));
    }
    if !keep || draft.task.state.phase == Phase::Backward {
        return Err(Rejection::NobodyWaits(name.to_string()));
    }
    if draft.task.state.signals.len() >= SIGNALS_MAX {
        return Err(Rejection::TooManySignals);
    }
    let params = params.filter(|params| !params.is_empty()).map(|params| params.as_str().into());
    draft.emit(EventKind::SignalKept { name: name.clone(), params, by: by.cloned() });
    Ok(())
}

/// The first execution that waits for this signal.
fn waits_for(task: &Task, name: &Name) -> Option<ActKey> {
    let waiting = |key: &ActKey| {
        let act = task.act(*key).map(|act| act.state);
        act == Some(ActState::Awaiting(Awaited::Signal))
            && task.action(*key).is_some_and(|action| action.doer == Doer::Signal { name: name.clone() })
    };
    task.step_acts().map(|(key, _)| key).find(waiting)
}

/// Completes the step with the parameters of the signal as its result.
pub(super) fn receive(
    draft: &mut Draft<'_>,
    key: ActKey,
    name: &Name,
    params: Option<Json>,
    by: Option<Actor>,
) {
    let attempt = draft.task.act(key).map_or(0, |act| act.attempt);
    draft.emit(EventKind::SignalReceived { key, name: name.clone(), by });
    let result = params.filter(|params| !params.is_empty());
    draft.emit(EventKind::ActSucceeded { key, attempt, result });
}
