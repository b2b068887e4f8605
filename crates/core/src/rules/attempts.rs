//! Starting attempts: for a worker once the locks are granted, as a child task, or as a wait for a signal.

use crate::{
    ActKey, ActState, Awaited, Doer, EventKind, Json,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

use super::{child, exclusive, fail, locks, signal};

/// Starts an execution: evaluates the expressions on its parameters, then starts the first attempt.
pub(super) fn enter(draft: &mut Draft<'_>, key: ActKey) {
    let definition = &draft.task.flow.steps[key.step];
    if let Some(expression) = definition.key.clone() {
        let naming = draft.task.naming(key, &draft.evaluation);
        match naming.and_then(|naming| naming.text(&expression, &draft.evaluation)) {
            Ok(fairness) => {
                let known = draft.task.act(key).and_then(|act| act.fairness());
                if known != Some(&*fairness) {
                    draft.emit(EventKind::ActKeyed { key, fairness });
                }
            }
            Err(message) => return fail::fail_on_data(draft, key, &message),
        }
    }
    begin(draft, key);
}

/// Starts the next attempt of an execution. During a pause it is parked.
pub(super) fn begin(draft: &mut Draft<'_>, key: ActKey) {
    let attempt = draft.task.act(key).map_or(0, |act| act.attempt) + 1;
    match draft.task.action(key).map(|action| &action.doer) {
        Some(Doer::Signal { name }) => {
            let name = name.clone();
            await_signal(draft, key, attempt, &name);
        }
        // If no child task needs a rollback, there is nothing to wait for, neither a lock nor the end of a pause.
        None if child::to_undo(&draft.task, key).is_none() => draft.emit(EventKind::ActSkipped { key }),
        _ => go(draft, key, attempt),
    }
}

/// Advances an attempt as far as possible: a pause parks it, and so does the wait for the exclusive queue of its task.
/// It needs all its locks before it is ready.
pub(super) fn go(draft: &mut Draft<'_>, key: ActKey, attempt: u32) {
    let is_paused = draft.task.state.pause.is_paused() && !is_planted(Bug::BegunInPause);
    if is_paused || !exclusive::admit(draft) {
        draft.emit(EventKind::ActParked { key, attempt });
    } else if locks::take(draft, key, attempt) {
        match draft.task.runs_flow(key.step) {
            Some(_) => child::begin(draft, key, attempt),
            None => draft.emit(EventKind::ActReady { key, attempt }),
        }
    }
}

/// Advances all parked attempts.
pub(super) fn go_on(draft: &mut Draft<'_>) {
    let parked: Vec<(ActKey, u32)> = draft
        .task
        .open_acts()
        .filter(|(_, act)| act.state == ActState::Parked)
        .map(|(key, act)| (key, act.attempt))
        .collect();
    for (key, attempt) in parked {
        go(draft, key, attempt);
    }
}

/// Starts waiting for a signal. A pause does not delay that: the signal may have arrived already.
fn await_signal(draft: &mut Draft<'_>, key: ActKey, attempt: u32, name: &crate::Name) {
    let (awaited, child, locks) = (Awaited::Signal, None, Vec::new());
    draft.emit(EventKind::ActAwaiting { key, attempt, awaited, child, locks });
    let kept = draft.task.state.signals.iter().find(|signal| signal.name == *name).cloned();
    if let Some(kept) = kept.filter(|_| !is_planted(Bug::KeptSignalForgotten)) {
        let params = kept.params.as_deref().map(Json::from_stored);
        signal::receive(draft, key, name, params, kept.by);
    }
}
