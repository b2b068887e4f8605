//! Whether the report of an attempt counts: under which claim it was made, and whether it repeats an earlier one.

use windlass_core::{
    Act, ActState, Attempt, Command, Outcome, Rejection, Task,
    planted::{Bug, is_planted},
};
use windlass_store::{Claim, Loaded};

/// Refuses a report under a lower claim than the current one as late, unless a queue publisher has the current one:
/// then a worker ran an earlier delivery. An accepted report gets the time at which the attempt was claimed.
pub(super) fn check_claim(
    loaded: &Loaded,
    command: &Command,
    token: Option<u64>,
) -> Result<Command, Rejection> {
    let mut command = command.clone();
    if let (Command::Report(report), Some(token)) = (&mut command, token)
        && let Some(claim) = claim_of(loaded, &report.attempt)
    {
        if token < claim.number && !claim.session.is_publisher() && !is_planted(Bug::NoFence) {
            return Err(Rejection::Stale);
        }
        report.attempt.started_at = Some(claim.at);
    }
    Ok(command)
}

pub(super) fn claim_of<'a>(loaded: &'a Loaded, attempt: &Attempt) -> Option<&'a Claim> {
    loaded.claims.iter().find(|claim| claim.key == attempt.key && claim.attempt == attempt.number)
}

/// The rules refuse a report of an attempt that has ended. For its worker this is a repetition only if the attempt
/// ended with the reported outcome. The result of an attempt that was given up is not accepted, and its report is late.
pub(super) fn late_or_repeated(task: &Task, command: &Command, rejection: Rejection) -> Rejection {
    match (command, rejection) {
        (Command::Report(report), Rejection::Duplicate)
            if task.act(report.attempt.key).is_some_and(|act| !ended_with(act, &report.outcome)) =>
        {
            Rejection::Stale
        }
        (_, rejection) => rejection,
    }
}

/// Whether this outcome is how the execution's last attempt ended, as far as its state shows. The state keeps the
/// failure of a deadline instead of later failures.
fn ended_with(act: &Act, outcome: &Outcome) -> bool {
    match (outcome, act.state) {
        (Outcome::Succeeded(_), state) => state == ActState::Succeeded,
        (Outcome::RetryLater { .. }, ActState::Delayed { .. }) => act.postponements() > 0,
        _ if act.overdue => true,
        (Outcome::Failed(failure), _) => act.trouble() == Some(failure),
        (Outcome::RetryLater { message, .. }, _) => {
            act.trouble().is_some_and(|failure| failure.message.ends_with(message.as_ref()))
        }
    }
}
