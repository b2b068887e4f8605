//! The holder of the lock that an execution waits for.

use windlass_core::{
    Act, ActKey, LockHolder, LockOwner, LockWaiter, Task, TaskId, Timestamp,
    planted::{Bug, is_planted},
};

use windlass_store::StoreError;

use crate::{
    Engine, EngineError,
    queries::why::{HeldBy, Why, acts::Look},
};

impl Engine {
    /// The holder of the exclusive queue that a task waits for, and the task's position.
    pub(super) async fn why_exclusive(&self, task: &Task) -> Result<Why, EngineError> {
        let (Some(queue), Some(owner)) = (task.input.exclusive.clone(), task.queue_owner()) else {
            return Ok(Why::Moving);
        };
        let lock = match self.lock(&queue).await {
            Ok(lock) => Some(lock),
            Err(EngineError::UnknownLock(_)) => None,
            Err(error) => return Err(error),
        };
        let holder = lock.as_ref().and_then(|lock| lock.holder).filter(|holder| holder.owner != owner);
        let holder = match holder {
            Some(LockHolder { owner, since, .. }) => Some(self.holder(owner, since).await?),
            None => None,
        };
        let before = lock.as_ref().and_then(|lock| lock.place(&owner)).unwrap_or_default();
        let waiter = lock.as_ref().and_then(|lock| lock.waiters().find(|waiter| waiter.owner == owner));
        Ok(Why::Exclusive { queue, holder, before, since: waiter.map(|waiter| waiter.since) })
    }

    /// An execution of some task, with the name of its step.
    async fn holder(&self, owner: LockOwner, since: Timestamp) -> Result<HeldBy, EngineError> {
        let LockOwner { task, key, .. } = owner;
        // The number of a leader's campaign is a secret.
        let task = if owner.is_leader() { TaskId::NONE } else { task };
        let step = match self.task(task).await {
            Ok(loaded) => loaded.task.flow.steps.get(key.step).map(|step| step.name.clone()),
            Err(EngineError::UnknownTask(_) | EngineError::Store(StoreError::Damaged(_))) => None,
            Err(error) => return Err(error),
        };
        Ok(HeldBy { task, step, key, since })
    }
}

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
                    Some(holder) => Some(self.engine.holder(holder.owner, holder.since).await?),
                    None => None,
                };
                (holder, lock.place(&owner).unwrap_or_default())
            }
            Err(EngineError::UnknownLock(_)) => (None, 0),
            Err(error) => return Err(error),
        };
        Ok(Why::Lock { name, holder, before, since: act.ready_at })
    }
}
