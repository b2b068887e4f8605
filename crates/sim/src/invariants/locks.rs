//! A lock has one holder at a time, with an increasing fence; a running attempt has its locks; and at the end
//! all locks are free.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{EventKind, Lock, LockHolder, LockName, LockOwner, Message, Task, TaskId};
use windlass_store::{AttemptId, Change, LockChange, memory::Row};

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Locks {
    /// The last holder of each lock, also of free ones.
    last: BTreeMap<LockName, LockHolder>,
    /// The last version of each lock, also after it was deleted.
    versions: BTreeMap<LockName, u64>,
    /// Locks that an operator took from their holders, by lock and fence.
    seized: BTreeSet<(LockName, u64)>,
    /// The fences under which locks were held when their rows were damaged: nobody else gets such a lock until
    /// an operator opens it.
    closed: BTreeMap<LockName, u64>,
}

impl Invariant for Locks {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(Change::Lock(change)) => self.change_hands(change, truth, world),
            Seen::Written(Change::Task(change)) => {
                for event in &change.events {
                    if let EventKind::ActLocked { key, name, fence } = &event.kind {
                        let owner = LockOwner { task: change.task.id, key: *key, turn: 0 };
                        self.check_holder(owner, name, *fence, truth)?;
                    }
                }
                Ok(())
            }
            Seen::Damaged(Row::Lock(name)) => {
                self.closed.extend(self.last.get(name).map(|last| (name.clone(), last.fence)));
                Ok(())
            }
            Seen::RunBegan { id, .. } => self.check_run(id, truth),
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, truth: &Truth) -> Result<(), Violation> {
        // A damaged lock is closed until an operator opens it, and nobody need wait for it.
        let is_sound = |lock: &&Lock| {
            let spoiled = lock.holder.is_some_and(|holder| truth.is_spoiled(holder.owner.task));
            lock.leader.is_none() && !spoiled && !(lock.is_closed() && lock.waiting() == 0)
        };
        let mut locks = truth.post.locks.values().filter(is_sound);
        let taken = locks.find(|lock| lock.holder.is_some() || lock.waiting() > 0);
        taken.map_or(Ok(()), |lock| {
            let holder = lock.holder.map(|holder| holder.owner);
            let message = format!(
                "all tasks have ended, and the lock {} is with {holder:?}; {} wait for it",
                lock.name,
                lock.waiting()
            );
            Err(Violation::new("locks", message))
        })
    }
}

impl Locks {
    fn change_hands(&mut self, change: &LockChange, truth: &Truth, world: &World) -> Result<(), Violation> {
        world.tell(|| {
            let lock = &change.lock;
            let messages: Vec<&Message> = change.messages.iter().map(|sent| &sent.message).collect();
            format!(
                "the lock {} is with {:?}; {} wait; it sends {messages:?}",
                lock.name,
                lock.holder,
                lock.waiting()
            )
        });
        for envelope in &change.messages {
            let Message::Seized { owner, name, fence, .. } = &envelope.message else { continue };
            self.seized.insert((name.clone(), *fence));
            if owner.task == TaskId::NONE {
                self.seized.extend(self.closed.remove(name).map(|fence| (name.clone(), fence)));
            }
        }
        let (name, version) = (&change.lock.name, change.lock.version);
        // A deletion keeps the version, and the next lock of that name continues from it.
        let oldest = version + u64::from(!change.kept);
        if let Some(before) = self.versions.insert(name.clone(), version).filter(|before| *before >= oldest) {
            let message = format!("the lock {name} has version {version} after {before}");
            return Err(Violation::new("locks", message));
        }
        let Some(holder) = change.lock.holder.filter(|holder| !holder.is_unknown()) else { return Ok(()) };
        let Some(last) = self.last.insert(name.clone(), holder).filter(|last| *last != holder) else {
            return Ok(());
        };
        if holder.fence <= last.fence {
            let message = format!("the lock {name} went to {holder:?} after {last:?}");
            return Err(broken("locks", holder.owner.task, message));
        }
        let claims = truth.tasks.get(&last.owner.task).is_some_and(|known| {
            let act = known.task.act(last.owner.key).filter(|act| act.turn() == last.owner.turn);
            act.is_some_and(|act| act.claimed_locks().any(|claimed| claimed == name))
        });
        // A lock is passed on when the task that should get it is unreadable.
        let has_it = claims && !truth.is_damaged(last.owner.task);
        if has_it && !self.seized.contains(&(name.clone(), last.fence)) {
            let message = format!("the lock {name} went to {holder:?} while {:?} has it", last.owner);
            return Err(broken("locks", holder.owner.task, message));
        }
        Ok(())
    }

    /// A run has all its locks when it starts, unless an operator took them away.
    fn check_run(&self, id: &AttemptId, truth: &Truth) -> Result<(), Violation> {
        let Some(task) = truth.tasks.get(&id.task).map(|known| &*known.task) else { return Ok(()) };
        if !truth.is_current(id) || task.flow.steps[id.key.step].locks.is_empty() {
            return Ok(());
        }
        let locks = locks_of(task, id);
        if locks.is_empty() {
            let message = format!("task {}: {:?} begins without its locks", id.task, id.key);
            return Err(broken("locks", id.task, message));
        }
        for (name, fence, seized) in locks {
            if !seized {
                let owner = LockOwner { task: id.task, key: id.key, turn: 0 };
                self.check_holder(owner, &name, fence.unwrap_or_default(), truth)?;
            }
        }
        Ok(())
    }

    /// This execution has the lock, in any of its turns, with this fence.
    fn check_holder(
        &self,
        owner: LockOwner,
        name: &LockName,
        fence: u64,
        truth: &Truth,
    ) -> Result<(), Violation> {
        let holder = truth.post.locks.get(name).and_then(|lock| lock.holder);
        let same = holder.is_some_and(|holder| {
            (holder.owner.task, holder.owner.key, holder.fence) == (owner.task, owner.key, fence)
        });
        // The owner of a closed lock goes on with it.
        let is_closed = holder.is_some_and(|holder| holder.is_unknown());
        if same || is_closed || self.seized.contains(&(name.clone(), fence)) {
            return Ok(());
        }
        let message = format!(
            "task {}: {:?} has the lock {name} under the fence {fence}, and the lock is with {holder:?}",
            owner.task, owner.key
        );
        Err(broken("locks", owner.task, message))
    }
}

/// The locks of an attempt with their fences, and whether an operator took them away.
fn locks_of(task: &Task, id: &AttemptId) -> Vec<(LockName, Option<u64>, bool)> {
    let locks = task.act(id.key).map(|act| act.locks()).unwrap_or_default();
    locks.iter().map(|lock| (lock.name.clone(), lock.fence, lock.seized)).collect()
}
