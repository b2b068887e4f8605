//! Reasons that name another task: the child of a step, and the holder of a lock.

use windlass_core::{Act, ActKey, Lock, LockName, LockOwner, Task};
use windlass_engine::{HeldBy, Why};

use super::{Check, holds};
use crate::{answer::kind, kinds::Kind};

impl Check<'_> {
    pub(super) fn check_child(&self, act: &Act, why: &Why) -> Result<(), String> {
        let Why::Child { task, child } = why else { return Err("it waits for a task".into()) };
        let since = self.answer.asked_at;
        match child {
            Some(child) => {
                let is_so = act.child() == Some(child.task.id) && *task == Some(child.task.id);
                holds(is_so, || format!("its task is {:?}", act.child()))?;
                let version = self.version(&child.task)?;
                self.world.count(kind(&child.reason.why));
                self.check_reason(version, &child.reason)
            }
            None => {
                let known = act.child().and_then(|child| self.facts.tasks.get(&child));
                let there = known.is_some_and(|over| over.was_there(since));
                // It may be deleted before its parent learns of its end (world 1795422982696144).
                let ended = act.child().and_then(|child| self.truth.tasks.get(&child));
                let is_deleted =
                    self.world.config.is(Kind::Sweeps) && ended.is_some_and(|known| known.task.is_ended());
                holds(task.is_none() && (!there || is_deleted), || {
                    format!("its task {:?} is there", act.child())
                })
            }
        }
    }

    pub(super) fn check_lock(&self, task: &Task, key: ActKey, act: &Act, why: &Why) -> Result<(), String> {
        let Why::Lock { name, holder, before, since } = why else {
            return Err("it waits for a lock".into());
        };
        let wanted = act.wanted_lock().map(|lock| &lock.name);
        holds(wanted == Some(name) && *since == act.ready_at, || {
            format!("it waits for {wanted:?} since {:?}", act.ready_at)
        })?;
        let me = LockOwner { task: task.id, key, turn: act.turn() };
        self.check_holder(name, me, holder.as_ref(), *before)
    }

    /// Checks who has the lock that `me` waits for, and how many wait before it.
    pub(super) fn check_holder(
        &self,
        name: &LockName,
        me: LockOwner,
        holder: Option<&HeldBy>,
        before: usize,
    ) -> Result<(), String> {
        let is_so = |lock: Option<&Lock>| {
            let other = lock.and_then(|lock| lock.holder).filter(|other| other.owner != me);
            let place = lock.and_then(|lock| lock.place(&me)).unwrap_or_default();
            let same = match (holder, other) {
                (Some(told), Some(other)) => {
                    (told.task, told.key, told.since) == (other.owner.task, other.owner.key, other.since)
                }
                (None, None) => true,
                _ => false,
            };
            same && place == before
        };
        let over = self.facts.locks.get(name);
        let at = self.answer.asked_at;
        let early = over.is_none_or(|over| !over.was_there(at)) && is_so(None);
        let mut versions = over.into_iter().flat_map(|over| over.since(at));
        holds(early || versions.any(|lock| is_so(lock.as_ref())), || {
            let versions: Vec<_> = over.into_iter().flat_map(|over| over.since(at)).collect();
            format!("the lock was {versions:?}")
        })?;
        let Some(told) = holder else { return Ok(()) };
        let task = self.truth.tasks.get(&told.task).map(|known| &known.task);
        let known = task.and_then(|task| Self::step_name(task, told.key));
        // The janitor may have deleted a task whose lock is not released yet.
        let is_gone = task.is_none_or(|task| task.is_ended()) || self.truth.is_damaged(told.task);
        let may_be_deleted = told.step.is_none() && is_gone;
        holds(may_be_deleted || told.step.as_deref() == known, || format!("the step is {known:?}"))
    }
}
