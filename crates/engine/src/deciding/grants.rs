//! Granted locks and exclusive queues in a batch.

use windlass_core::{ActKey, Command, LockCommand, LockHolder, LockName, LockOwner, TaskId, wants_lock};
use windlass_store::MessageId;

use crate::deciding::{
    batch::{Batch, Place},
    lock_work::LockWork,
    task_work::TaskWork,
};

impl Batch {
    /// Grants a lock to an execution. An execution that no longer wants the lock never wants it again: release it to
    /// the next owner.
    pub(super) fn grant(
        &mut self,
        owner: LockOwner,
        name: &LockName,
        fence: u64,
        message: &MessageId,
        place: Place,
    ) -> bool {
        if self.is_wanted(&owner, name) {
            if owner.is_task() && !self.holder(name).is_some_and(|holder| holder.is(owner.task, fence)) {
                // The grant is outdated: the queue was taken away, or its row was damaged.
                return self.tell_task(owner.task, &queue_lost(name, fence), message, place);
            }
            let (key, turn, name) = (owner.key, owner.turn, name.clone());
            return self.tell_task(owner.task, &Command::Granted { key, turn, name, fence }, message, place);
        }
        self.tell_lock(name, &LockCommand::Release { owner }, message, place)
    }

    /// The holder of a lock that was loaded, if it is held.
    fn holder(&self, name: &LockName) -> Option<LockHolder> {
        self.locks.get(name).and_then(LockWork::holder)
    }

    /// If a task has lost its exclusive queue, the task learns it before the item is decided: all its other changes would
    /// be conflicts. A closed queue stays with its task.
    pub(super) fn update_queue(&mut self, id: TaskId, place: Place) {
        let task = self.tasks.get(&id).and_then(TaskWork::task);
        let Some((name, fence)) = task.and_then(|task| task.queue_fence()) else { return };
        // What this batch has decided about the lock may turn out to be a conflict.
        let is_loaded = self.locks.get(name).is_some_and(|lock| lock.changes.is_empty());
        if is_loaded && !self.holder(name).is_some_and(|holder| holder.leaves_it_to(id, fence)) {
            let command = queue_lost(name, fence);
            self.on_task(id, |task, now| task.decide(&command, None, &[], place, now));
        }
    }

    /// Whether a task is in its exclusive queue under this request, holding it or waiting for it.
    pub(super) fn is_in_queue(&self, owner: &LockOwner) -> bool {
        let task = self.tasks.get(&owner.task).and_then(TaskWork::task);
        task.is_some_and(|task| task.queue_owner() == Some(*owner))
    }

    /// Whether an execution waits for a lock, according to the state loaded here.
    pub(super) fn is_wanted(&self, owner: &LockOwner, name: &LockName) -> bool {
        let task = self.tasks.get(&owner.task).and_then(TaskWork::task);
        task.is_some_and(|task| wants_lock(task, owner, name))
    }
}

/// What a task learns when its exclusive queue is not held under its fencing token.
fn queue_lost(name: &LockName, fence: u64) -> Command {
    let reason = "the queue is not held under this fencing token any more".into();
    Command::Seized { key: ActKey::TASK, name: name.clone(), fence, reason, by: None }
}
