//! At most one task of an exclusive queue is under way at any time, and the others get the queue in order.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{EventKind, LockHolder, LockName, LockOwner, Message, Task, TaskId, Timestamp};
use windlass_store::{Change, LockChange, TaskChange};

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

const NAME: &str = "exclusive queues";

#[derive(Default)]
pub(super) struct ExclusiveQueues {
    /// The last task that had each queue.
    last: BTreeMap<LockName, LockHolder>,
    /// The times by which waiting tasks are ordered.
    waiting: BTreeMap<(LockName, LockOwner), Timestamp>,
    /// All tasks that have joined a queue. One may have left it again before its submit was answered (world 1796020227555248).
    joined: BTreeSet<LockOwner>,
    /// Queues that an operator took away at the lock, by fence: what runs goes on.
    seized: BTreeSet<(LockName, u64)>,
}

impl Invariant for ExclusiveQueues {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(Change::Lock(change)) => {
                for envelope in &change.messages {
                    if let Message::Seized { owner, name, fence, .. } = &envelope.message {
                        self.seized.insert((name.clone(), *fence));
                        if owner.task == TaskId::NONE {
                            // An operator opened a closed queue.
                            self.last.remove(name);
                        }
                    }
                }
                self.passes_on(change, truth)?;
                self.joins(change, truth)
            }
            Seen::Written(Change::Task(change)) => Self::begins(change, truth),
            // A single server delivers messages in the order in which it accepts tasks.
            Seen::Accepted { task, .. } if world.config.shared => self.has_joined(*task, truth),
            _ => Ok(()),
        }
    }
}

impl ExclusiveQueues {
    /// A submit is answered when its task is in the queue, so that tasks that are submitted later are behind it.
    fn has_joined(&self, id: TaskId, truth: &Truth) -> Result<(), Violation> {
        let Some(task) = task(truth, id).filter(|task| task.input.at.is_none()) else { return Ok(()) };
        let owner = task.queue_owner().filter(|_| task.waits_for_queue() && task.state.queue.turn == 1);
        let (Some(queue), Some(owner)) = (&task.input.exclusive, owner) else { return Ok(()) };
        let holder = truth.post.locks.get(queue).and_then(|lock| lock.holder);
        let is_closed = holder.is_some_and(|holder| holder.is_unknown());
        if self.joined.contains(&owner) || is_closed || truth.is_damaged(id) {
            return Ok(());
        }
        let message =
            format!("a submit of task {id} is answered, and the task has not joined the queue {queue}");
        Err(broken(NAME, id, message))
    }

    /// An attempt becomes ready, and a child task starts, only while the task has its queue.
    fn begins(change: &TaskChange, truth: &Truth) -> Result<(), Violation> {
        let task = &change.task;
        let Some(queue) = &task.input.exclusive else { return Ok(()) };
        let starts =
            |kind: &EventKind| matches!(kind, EventKind::ActReady { .. } | EventKind::QueueGranted { .. });
        if !change.events.iter().any(|event| starts(&event.kind)) {
            return Ok(());
        }
        let holder = truth.post.locks.get(queue).and_then(|lock| lock.holder);
        let is_its = |holder: LockHolder| holder.owner.task == task.id && holder.owner.is_task();
        // A damaged queue is closed: its task keeps it.
        if holder.is_some_and(|holder| is_its(holder) || holder.is_unknown()) {
            return Ok(());
        }
        let message = format!("task {} starts something, and {holder:?} has the queue {queue}", task.id);
        Err(broken(NAME, task.id, message))
    }

    /// A queue passes on when nothing of the task that had it is under way.
    fn passes_on(&mut self, change: &LockChange, truth: &Truth) -> Result<(), Violation> {
        let queue = &change.lock.name;
        let holder = change.lock.holder.filter(|holder| holder.owner.is_task());
        let Some(holder) = holder else { return Ok(()) };
        let last =
            self.last.insert(queue.clone(), holder).filter(|last| last.owner.task != holder.owner.task);
        let Some(last) = last.filter(|last| !self.seized.contains(&(queue.clone(), last.fence))) else {
            return Ok(());
        };
        let is_damaged = truth.is_damaged(last.owner.task);
        match task(truth, last.owner.task).filter(|task| !is_damaged && task.is_under_way()) {
            Some(before) => {
                let message = format!("the queue {queue} went to {holder:?} while task {} runs", before.id);
                Err(broken(NAME, holder.owner.task, message))
            }
            None => Ok(()),
        }
    }

    /// Tasks with a start time are ordered by it, and nobody is served before a task with an earlier time.
    fn joins(&mut self, change: &LockChange, truth: &Truth) -> Result<(), Violation> {
        let queue = &change.lock.name;
        let owners =
            [change.joined.map(|(_, waiter)| waiter.owner), change.lock.holder.map(|holder| holder.owner)];
        self.joined.extend(owners.into_iter().flatten().filter(LockOwner::is_task));
        if let Some((_, waiter)) = change.joined.filter(|(_, waiter)| waiter.owner.is_task()) {
            self.waiting.insert((queue.clone(), waiter.owner), waiter.since);
            let at = task(truth, waiter.owner.task).and_then(|task| task.input.at);
            if let Some(at) = at.filter(|at| *at != waiter.since) {
                let message = format!("it starts at {at:?}, and is ordered by {:?} in {queue}", waiter.since);
                return Err(broken(NAME, waiter.owner.task, message));
            }
        }
        let Some(holder) = change.lock.holder else { return Ok(()) };
        let Some(since) = self.waiting.remove(&(queue.clone(), holder.owner)) else { return Ok(()) };
        match change.lock.waiters().find(|waiter| waiter.since < since) {
            Some(first) => {
                let message = format!("it got {queue} before {first:?}, and is ordered by {since:?}");
                Err(broken(NAME, holder.owner.task, message))
            }
            None => Ok(()),
        }
    }
}

fn task(truth: &Truth, id: TaskId) -> Option<&Task> {
    truth.tasks.get(&id).map(|known| &*known.task)
}
