//! The worker that had an attempt is gone, or cannot be heard.

use super::{attempts, fail, report};
use crate::{
    Attempt, EventKind, Failure, Rejection,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// The attempt is made again, and no death is counted: the step has done nothing to its worker.
pub(super) fn reclaim(draft: &mut Draft<'_>, attempt: &Attempt) -> Result<(), Rejection> {
    report::check_current(draft, attempt)?;
    report::start(draft, attempt);
    let key = attempt.key;
    draft.emit(EventKind::ActReclaimed { key, attempt: attempt.number });
    if fail::is_last_chance(draft, key) {
        let message = "its worker could not be heard because of a fault of a server";
        fail::fail_for_good(draft, key, Failure::new(message, 1, false));
    } else {
        attempts::begin(draft, key);
    }
    Ok(())
}

/// The attempt is made again, without spending a retry, unless the step has taken too many workers with it.
pub(super) fn lose(draft: &mut Draft<'_>, attempt: &Attempt) -> Result<(), Rejection> {
    report::check_current(draft, attempt)?;
    report::start(draft, attempt);
    let key = attempt.key;
    draft.emit(EventKind::ActLost { key, attempt: attempt.number });
    let deaths = draft.task.act(key).map_or(0, |act| act.deaths);
    if fail::is_last_chance(draft, key) {
        fail::fail_for_good(draft, key, Failure::new("its worker was lost", 1, false));
    } else if deaths >= draft.task.flow.deaths_max && !is_planted(Bug::NoDeathLimit) {
        let message = format!("its worker died or went silent {deaths} times while it had this step");
        fail::fail_for_good(draft, key, Failure::new(&message, 1, false));
    } else {
        attempts::begin(draft, key);
    }
    Ok(())
}
