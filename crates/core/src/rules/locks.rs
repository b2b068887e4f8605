//! Locks: an execution gets all its locks before its first attempt is ready, and keeps them until it is settled.
//!
//! Locks are requested one after the other, in the order of their names. The messages that request and release them
//! follow from the execution's state ([`crate::effects`]): no rule needs to send them.

use super::{attempts, fail};
use crate::{
    ActKey, Actor, Awaited, EvaluationBudget, EventKind, HeldLock, LockName, LockOwner, LockRef, Name,
    Rejection, Task, transition::draft::Draft,
};

/// Whether the execution has all its locks. If not, it requests them. If an operator took one away, it requests all of
/// them again: requesting one out of order while holding others could cause a deadlock.
pub(super) fn take(draft: &mut Draft<'_>, key: ActKey, attempt: u32) -> bool {
    if draft.task.flow.steps[key.step].locks.is_empty() {
        return true;
    }
    let held = draft.task.act(key).map_or(&[][..], |act| act.locks());
    if !held.is_empty() && held.iter().all(HeldLock::is_held) {
        return true;
    }
    match names(&draft.task, key, &draft.evaluation) {
        Ok(locks) if locks.is_empty() => return true,
        Ok(locks) => {
            draft.emit(EventKind::ActAwaiting { key, attempt, awaited: Awaited::Lock, child: None, locks });
        }
        Err(message) => fail::fail_on_data(draft, key, &message),
    }
    false
}

/// The locks that an execution needs, each once and in the order of their names.
fn names(task: &Task, key: ActKey, budget: &EvaluationBudget) -> Result<Vec<LockName>, String> {
    let naming = task.naming(key, budget)?;
    let name = |lock: &LockRef| match lock {
        LockRef::Name(name) => Ok(name.clone()),
        LockRef::Expression(expression) => {
            let text = naming.text(expression, budget)?;
            Name::new(&text).map_err(|error| {
                format!("the expression `{}` does not give the name of a lock: {error}", expression.source())
            })
        }
    };
    let mut names = task.flow.steps[key.step].locks.iter().map(name).collect::<Result<Vec<_>, _>>()?;
    names.sort_unstable();
    names.dedup();
    // The task has its exclusive queue already.
    names.retain(|name| task.input.exclusive.as_ref() != Some(name));
    Ok(names)
}

/// Whether an execution, or the task as a whole, waits for this lock. Once it does not, it never wants it again under
/// the same owner.
#[must_use]
pub fn wants_lock(task: &Task, owner: &LockOwner, name: &LockName) -> bool {
    if owner.is_task() {
        let waits = task.waits_for_queue() && task.queue_owner() == Some(*owner);
        return waits && task.input.exclusive.as_ref() == Some(name);
    }
    let Some(act) = task.act(owner.key).filter(|_| task.id == owner.task) else { return false };
    act.turn() == owner.turn && act.wanted_lock().is_some_and(|lock| lock.name == *name)
}

/// Handles a granted lock. With the last one the attempt advances.
pub(super) fn granted(
    draft: &mut Draft<'_>,
    key: ActKey,
    turn: u32,
    name: &LockName,
    fence: u64,
) -> Result<(), Rejection> {
    if !wants_lock(&draft.task, &LockOwner { task: draft.task.id, key, turn }, name) {
        return Err(Rejection::NothingDue);
    }
    draft.emit(EventKind::ActLocked { key, name: name.clone(), fence });
    let act = draft.task.act(key).filter(|act| act.wanted_lock().is_none());
    if let Some(attempt) = act.map(|act| act.attempt) {
        attempts::go(draft, key, attempt);
    }
    Ok(())
}

/// Handles a lock that an operator took away. The running attempt continues under an outdated fence, which resources
/// refuse.
pub(super) fn seized(
    draft: &mut Draft<'_>,
    key: ActKey,
    name: &LockName,
    fence: u64,
    reason: &str,
    by: Option<&Actor>,
) -> Result<(), Rejection> {
    let act = draft.task.act(key).ok_or(Rejection::UnknownAct)?;
    let has = |lock: &HeldLock| lock.name == *name && lock.fence == Some(fence) && lock.is_held();
    if !act.locks().iter().any(has) {
        return Err(Rejection::NothingDue);
    }
    let (name, reason, by) = (name.clone(), reason.into(), by.cloned());
    draft.emit(EventKind::ActUnlocked { key, name, fence, reason, by });
    Ok(())
}
