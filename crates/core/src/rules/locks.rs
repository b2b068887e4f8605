//! Locks: an act has all that it needs before its first attempt is ready, and keeps them until it is settled.
//!
//! They are asked for one after the other, in the order of their names. That they are asked for and given back
//! follows from the act's state ([`crate::effects`]): no rule has to think of it.

use super::{attempts, fail};
use crate::{
    ActKey, Actor, Awaited, EvaluationBudget, EventKind, HeldLock, LockName, LockOwner, LockRef, Name,
    Rejection, Task, transition::draft::Draft,
};

/// Whether the act has all its locks. If not it asks for them, anew for all of them where a person took one away:
/// with some in hand, asking for another out of turn could wait for ever.
pub(super) fn take(draft: &mut Draft<'_>, key: ActKey, attempt: u32) -> bool {
    if draft.task.flow.steps[key.step].locks.is_empty() {
        return true;
    }
    let held = draft.task.act(key).map_or(&[][..], |act| act.locks());
    if !held.is_empty() && held.iter().all(HeldLock::is_held) {
        return true;
    }
    match names(&draft.task, key, &draft.evaluation) {
        Ok(locks) => {
            draft.emit(EventKind::ActAwaiting { key, attempt, awaited: Awaited::Lock, child: None, locks });
        }
        Err(message) => fail::fail_on_data(draft, key, &message),
    }
    false
}

/// The locks that an act needs, each once and in the order of their names.
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
    Ok(names)
}

/// Whether an act waits for this lock. Once it does not, it never again wants it under the same owner.
#[must_use]
pub fn wants_lock(task: &Task, owner: &LockOwner, name: &LockName) -> bool {
    let Some(act) = task.act(owner.key).filter(|_| task.id == owner.task) else { return false };
    act.turn() == owner.turn && act.wanted_lock().is_some_and(|lock| lock.name == *name)
}

/// A lock says that the act has it. With the last one the attempt goes on.
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

/// A person took a lock from the act. What is under way goes on: its fence is old, and whoever checks it refuses.
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
