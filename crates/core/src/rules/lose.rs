//! The worker that had an attempt is gone, or could not renew.

use super::{attempts, fail, report, stop};
use crate::{
    Attempt, EventKind, Failure, Rejection,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// Makes the attempt again without counting a death: the step has not harmed its worker.
pub(super) fn reclaim(draft: &mut Draft<'_>, attempt: &Attempt) -> Result<(), Rejection> {
    report::check_current(draft, attempt)?;
    report::start(draft, attempt);
    let key = attempt.key;
    if stop::is_stopped(draft, key) {
        stop::end(draft, key);
        return Ok(());
    }
    draft.emit(EventKind::ActReclaimed { key, attempt: attempt.number });
    if fail::is_last_chance(draft, key) {
        let message = "its worker could not renew its lease because of a fault of a server";
        fail::fail_for_good(draft, key, Failure::new(message, 1, false));
    } else {
        attempts::begin(draft, key);
    }
    Ok(())
}

/// Makes the attempt again, without using a retry, unless the step has lost too many workers.
pub(super) fn lose(draft: &mut Draft<'_>, attempt: &Attempt) -> Result<(), Rejection> {
    report::check_current(draft, attempt)?;
    report::start(draft, attempt);
    let key = attempt.key;
    if stop::is_stopped(draft, key) {
        stop::end(draft, key);
        return Ok(());
    }
    draft.emit(EventKind::ActLost { key, attempt: attempt.number });
    let deaths = draft.task.act(key).map_or(0, |act| act.deaths);
    if fail::is_last_chance(draft, key) {
        fail::fail_for_good(draft, key, Failure::new("its worker was lost", 1, false));
    } else if deaths >= draft.task.flow.deaths_max && !is_planted(Bug::NoDeathLimit) {
        let message =
            format!("its worker died, went silent or gave no answer {deaths} times while it had this step");
        fail::fail_for_good(draft, key, Failure::new(&message, 1, false));
    } else {
        attempts::begin(draft, key);
    }
    Ok(())
}
