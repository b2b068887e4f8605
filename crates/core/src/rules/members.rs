//! Fanned-out steps: items start as others end, and the step is settled with the last of them.

use super::{attempts, fail};
use crate::{
    ActKey, ActState, Direction, EventKind, Failure, MEMBERS_OPEN_MAX, Members, OnFailure, OnPartial,
    PARALLEL_DEFAULT,
    planted::{Bug, is_planted},
    transition::draft::Draft,
};

/// Fans a step with `each` out: its number of items is known from now on.
pub(super) fn fan(draft: &mut Draft<'_>, key: ActKey) {
    let Some(each) = draft.task.flow.steps[key.step].each.clone() else { return };
    let bytes = draft.task.bytes_of_params();
    let looked_through = draft.evaluation.look_through(bytes);
    match looked_through.and_then(|()| draft.task.params_for(key).elements(&each.list)) {
        Ok(elements) => {
            let members = u32::try_from(elements.len()).unwrap_or(u32::MAX);
            draft.emit(EventKind::ActFanned { key, members });
        }
        Err(message) => fail::fail_on_data(draft, key, &message),
    }
}

/// Starts items of a fanned-out step within its limit, and settles the step when they are completed.
pub(super) fn proceed(draft: &mut Draft<'_>, key: ActKey) {
    let parallel =
        draft.task.flow.steps[key.step].each.as_ref().map_or(PARALLEL_DEFAULT, |each| each.parallel);
    // A started item may end at once; each item starts once.
    while is_fanned(draft, key) && !is_lost(draft, key) {
        let Some(members) = members(draft, key) else { return };
        if is_planted(Bug::MemberForgotten) && members.side(key.direction).settled() > 0 {
            break;
        }
        let window = if is_planted(Bug::WindowIgnored) { usize::MAX } else { window(draft, key, parallel) };
        let next = match key.direction {
            Direction::Forward => members.next_forward(),
            Direction::Rollback => members.next_undo(),
        };
        match next {
            // Others start when one of these ends, in a transition with enough steps for their keys and locks.
            Some(_) if !draft.evaluation.is_ample() && !members.side(key.direction).open.is_empty() => break,
            Some(number) if members.side(key.direction).open.size() < window => {
                let key = key.of_member(number);
                match key.direction {
                    Direction::Forward => attempts::enter(draft, key),
                    Direction::Rollback => attempts::begin(draft, key),
                }
            }
            _ => break,
        }
    }
    settle(draft, key);
}

/// How many items of the step may run concurrently: the number in its flow, but less if the items of other steps use up
/// the limit of the task. One is always allowed, so that each step makes progress.
fn window(draft: &Draft<'_>, key: ActKey, parallel: u32) -> usize {
    let steps = draft.task.state.steps.iter().enumerate().filter(|(step, _)| *step != key.step);
    let open = |members: &Members| members.side(key.direction).open.size();
    let others: usize = steps.filter_map(|(_, step)| step.members.as_deref().map(open)).sum();
    (parallel as usize).min(MEMBERS_OPEN_MAX.saturating_sub(others)).max(1)
}

fn members<'a>(draft: &'a Draft<'_>, key: ActKey) -> Option<&'a Members> {
    draft.task.state.steps[key.step].members.as_deref()
}

fn is_fanned(draft: &Draft<'_>, key: ActKey) -> bool {
    draft.task.act(key).is_some_and(|act| act.state == ActState::Fanned)
}

/// Whether too many items have failed for the step to succeed, whatever happens to the others. During a rollback every
/// item is rolled back anyway.
fn is_lost(draft: &Draft<'_>, key: ActKey) -> bool {
    let Some(members) = members(draft, key).filter(|_| key.direction == Direction::Forward) else {
        return false;
    };
    let failed = members.side(key.direction).failed.size();
    match draft.task.flow.steps[key.step].on_partial {
        OnPartial::Fail => failed > 0 && !is_planted(Bug::PartialIgnored),
        OnPartial::Continue => false,
        OnPartial::AtLeast(least) => members.total() as usize - failed < least as usize,
    }
}

/// Settles the step when its items are settled.
fn settle(draft: &mut Draft<'_>, key: ActKey) {
    if !is_fanned(draft, key) {
        return;
    }
    let Some(members) = members(draft, key) else { return };
    let side = members.side(key.direction);
    let forward = key.direction == Direction::Forward;
    if is_lost(draft, key) {
        // The others end first if an operator decides about the step as a whole, or if the task continues.
        let flow = &draft.task.flow;
        let waits = flow.on_failure == OnFailure::Hold
            || members.has_poisoned(key.direction, flow.deaths_max)
            || flow.tolerates(key.step);
        if !waits || side.open.is_empty() {
            let failure = failure(draft, key);
            fail::fail_for_good(draft, key, failure);
        }
        return;
    }
    if !members.is_quiet(key.direction) || forward && side.settled() < members.total() {
        return;
    }
    if !forward {
        if side.failed.is_empty() {
            draft.emit(EventKind::ActSucceeded { key, attempt: 1, result: None });
        } else {
            let failure = failure(draft, key);
            fail::fail_for_good(draft, key, failure);
        }
        return;
    }
    match draft.task.joined(key.step) {
        Ok(result) => draft.emit(EventKind::ActSucceeded { key, attempt: 1, result: Some(result) }),
        Err(bytes) => {
            let message = format!(
                "the results of its items have {bytes} bytes together; the limit is {}: return less, or a reference",
                crate::JOINED_BYTES_MAX
            );
            fail::fail_on_data(draft, key, &message);
        }
    }
}

/// The failure of the step as a whole: that of the first failed item.
fn failure(draft: &Draft<'_>, key: ActKey) -> Failure {
    let none = || Failure::new("too few items succeeded", 1, false);
    let Some(members) = members(draft, key) else { return none() };
    let failed = &members.side(key.direction).failed;
    let Some(number) = failed.first() else {
        let least = match draft.task.flow.steps[key.step].on_partial {
            OnPartial::AtLeast(least) => least,
            OnPartial::Fail | OnPartial::Continue => return none(),
        };
        let message = format!("it has {} items, and at least {least} must succeed", members.total());
        return Failure::new(&message, fail::DATA_CODE, false);
    };
    let act = draft.task.act(key.of_member(*number));
    let Some(failure) = act.and_then(|act| act.failure.as_ref()) else { return none() };
    let others = failed.size() - 1;
    let others = if others == 0 { String::new() } else { format!(" (and {others} more)") };
    Failure::new(&format!("item {} failed: {}{others}", number - 1, failure.message), failure.code, false)
}
