//! The holder of the lock that an execution waits for.

use windlass_core::{
    Act, ActKey, LockHolder, LockOwner, LockWaiter, TaskId, Timestamp,
    planted::{Bug, is_planted},
};

use crate::{
    EngineError,
    queries::why::{HeldBy, Why, acts::Look},
};

impl Look<'_> {
    /// The holder of the lock that an execution waits for.
    pub(super) async fn why_locked(&self, key: ActKey, act: &Act) -> Result<Why, EngineError> {
        let Some(wanted) = act.wanted_lock() else { return Ok(Why::Moving) };
        let name = wanted.name.clone();
        let (holder, before) = match self.engine.lock(&name).await {
            Ok(lock) => {
                let owner = LockOwner { task: self.loaded.task.id, key, turn: act.turn() };
                let first = lock.waiters().next().filter(|_| is_planted(Bug::WrongHolderNamed));
                let holder = match first {
                    Some(LockWaiter { owner, since }) => {
                        Some(LockHolder { owner: *owner, fence: 0, since: *since })
                    }
                    None => lock.holder,
                };
                // A granted lock whose grant has not been delivered yet is reported as in transit.
                let other = holder.filter(|holder| holder.owner != owner);
                let holder = match other {
                    Some(holder) => {
                        Some(self.holder(holder.owner.task, holder.owner.key, holder.since).await?)
                    }
                    None => None,
                };
                (holder, lock.place(&owner).unwrap_or_default())
            }
            Err(EngineError::UnknownLock(_)) => (None, 0),
            Err(error) => return Err(error),
        };
        Ok(Why::Lock { name, holder, before, since: act.ready_at })
    }

    /// An execution of some task, with the name of its step.
    async fn holder(&self, task: TaskId, key: ActKey, since: Timestamp) -> Result<HeldBy, EngineError> {
        let name = |flow: &windlass_core::Flow| flow.steps.get(key.step).map(|step| step.name.clone());
        let step = if task == self.loaded.task.id {
            name(&self.loaded.task.flow)
        } else {
            match self.engine.task(task).await {
                Ok(loaded) => name(&loaded.task.flow),
                Err(EngineError::UnknownTask(_)) => None,
                Err(error) => return Err(error),
            }
        };
        Ok(HeldBy { task, step, key, since })
    }
}
