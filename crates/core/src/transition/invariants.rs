//! Invariants that hold after every transition, in release builds as well. A broken one is a defect of the rules.

use std::sync::Arc;

use crate::{Act, ActKey, ActState, Cause, Direction, Ending, Event, EventKind, OnPartial, Phase, Task};

const PARKED: &str = "only a task that is paused or waits for its exclusive queue parks attempts";

/// Checks the transition from `before` to `after` by `events`.
///
/// # Errors
/// The first broken invariant, as a message.
pub fn check(before: &Task, after: &Task, events: &[Event]) -> Result<(), String> {
    let broken = |what: &str| Err(what.to_owned());
    if after.state.events != before.state.events + events.len() as u64 {
        return broken("every event is counted once");
    }
    if events.is_empty() {
        return Ok(());
    }
    if before.is_ended() && !is_rolled_back_with_others(before, events) {
        return broken("an ended task does not change");
    }
    check_acts(before, after, events).map_err(str::to_owned)?;
    check_successes(after, events).map_err(str::to_owned)?;
    let open = [after.has_open(Direction::Forward), after.has_open(Direction::Rollback)];
    check_order(after, open).map_err(str::to_owned)?;
    check_phase(after, open).map_err(str::to_owned)
}

/// Checks the executions of whole steps, and of the items with events.
fn check_acts(before: &Task, after: &Task, events: &[Event]) -> Result<(), &'static str> {
    for (was, is) in before.state.steps.iter().zip(&after.state.steps) {
        let parked = is.forward.state == ActState::Parked || is.undo.state == ActState::Parked;
        if parked && !may_park(after) {
            return Err(PARKED);
        }
        // Shared steps are unchanged.
        if !Arc::ptr_eq(was, is) {
            check_act(&was.forward, &is.forward)?;
            check_act(&was.undo, &is.undo)?;
        }
    }
    let keys = events.iter().filter_map(|event| event.kind.act());
    for key in keys.filter(|key| key.is_member()) {
        let idle = Act::default();
        let (was, Some(is)) = (before.act(key).unwrap_or(&idle), after.act(key)) else { continue };
        check_act(was, is)?;
        if is.state == ActState::Parked && !may_park(after) {
            return Err(PARKED);
        }
        let settled = after.act(key.of_member(0)).is_some_and(|act| act.is_settled());
        let stays = key.direction == Direction::Rollback || after.state.phase == Phase::Forward;
        if is.is_open() && settled && stays {
            return Err("a step is settled after its members");
        }
    }
    Ok(())
}

fn may_park(task: &Task) -> bool {
    task.state.pause.is_paused() || task.waits_for_queue()
}

/// The only exceptions: a completed child task is rolled back with its parent, another completed task with its rollout.
fn is_rolled_back_with_others(before: &Task, events: &[Event]) -> bool {
    let is_child = before.input.parent.is_some();
    before.state.phase == Phase::Ended(Ending::Succeeded)
        && events.first().is_some_and(|event| match &event.kind {
            EventKind::TaskRollingBack { cause: Cause::Parent } => is_child,
            EventKind::TaskRollingBack { cause: Cause::Rollout { .. } } => !is_child,
            _ => false,
        })
}

/// Checks a changed execution.
fn check_act(was: &Act, is: &Act) -> Result<(), &'static str> {
    if is.attempt < was.attempt {
        return Err("attempt numbers only grow");
    }
    if was.is_satisfied() && is != was {
        return Err("a completed or skipped execution does not change");
    }
    Ok(())
}

/// Each execution has at most one result, and the result of a fanned-out step comes after those of its items.
fn check_successes(after: &Task, events: &[Event]) -> Result<(), &'static str> {
    let done = |event: &Event| match event.kind {
        EventKind::ActSucceeded { key, .. } => Some(key),
        _ => None,
    };
    for (index, event) in events.iter().enumerate() {
        let Some(key) = done(event) else { continue };
        if events[index + 1..].iter().any(|later| done(later) == Some(key)) {
            return Err("an act has at most one accepted result");
        }
        if !are_members_done(after, key) {
            return Err("a fanned-out step is done when its members are");
        }
    }
    Ok(())
}

/// Whether the items of a step, if it has any, are completed as far as the flow requires.
fn are_members_done(task: &Task, key: ActKey) -> bool {
    let members = task.state.steps[key.step].members.as_ref().filter(|_| !key.is_member());
    members.is_none_or(|members| {
        let side = members.side(key.direction);
        let least = match (key.direction, task.flow.steps[key.step].on_partial) {
            (Direction::Rollback, _) => return members.is_quiet(key.direction) && side.failed.is_empty(),
            (_, OnPartial::Fail) => members.total(),
            (_, OnPartial::Continue) => 0,
            (_, OnPartial::AtLeast(least)) => least,
        };
        members.is_quiet(key.direction) && side.settled() == members.total() && side.satisfied >= least
    })
}

/// Steps start when their predecessors are completed, and are rolled back when their successors are.
fn check_order(task: &Task, [forward_open, _]: [bool; 2]) -> Result<(), &'static str> {
    let steps = &task.state.steps;
    for (index, step) in steps.iter().enumerate() {
        let begun = step.forward.state != ActState::Idle;
        if begun && !task.flow.steps[index].after.iter().all(|after| task.lets_pass(*after)) {
            return Err("a step begins after its predecessors are done");
        }
        if step.undo.state == ActState::Idle {
            continue;
        }
        if forward_open {
            return Err("a rollback starts after everything in flight has ended");
        }
        if !step.touched {
            return Err("only steps that need a rollback are rolled back");
        }
        if !task.is_undone_after(index) {
            return Err("a step is rolled back after its successors that need it");
        }
    }
    Ok(())
}

/// The phase agrees with the steps, and every unfinished task has something that will wake it.
fn check_phase(task: &Task, [forward_open, undo_open]: [bool; 2]) -> Result<(), &'static str> {
    let steps = &task.state.steps;
    let undone = || steps.iter().all(|step| !step.touched || step.undo.is_satisfied());
    let open = forward_open || undo_open;
    let awake = open || task.state.stuck.is_some() || task.waits_for_queue();
    match task.state.phase {
        Phase::Ended(_) if open => Err("an ended task has nothing in flight"),
        Phase::Ended(_) if task.queue_owner().is_some() => Err("an ended task is not in its exclusive queue"),
        Phase::Ended(Ending::Succeeded) if !task.flow.plain_steps().all(|step| task.lets_pass(step)) => {
            Err("a task succeeds when all its steps are done")
        }
        Phase::Ended(Ending::RolledBack | Ending::Failed | Ending::Cancelled) if !undone() => {
            Err("a failed task ends when every step that needs it is rolled back or skipped")
        }
        Phase::Ended(_) => Ok(()),
        Phase::Scheduled if open => Err("nothing of a scheduled task has begun"),
        Phase::Scheduled => Ok(()),
        Phase::Forward if undo_open => Err("no rollback runs in the forward phase"),
        Phase::Forward | Phase::Backward if !awake => {
            Err("every unfinished task has something that will wake it")
        }
        Phase::Forward | Phase::Backward => Ok(()),
    }
}
