//! Messages that are delivered in the commit that sends them.
//!
//! ```text
//! a task ends ──Release──▶ its lock ──Granted──▶ the next owner      one commit in place of three
//! ```
//!
//! A store accepts a change that consumes a message of an earlier change of the same commit. If the earlier change
//! conflicts, the message does not exist, and the later change conflicts as well. A message that is not delivered here
//! waits in the store for the messenger.
//!
//! A request for a lock always waits there: the messenger delivers requests in the order of their tasks, and one that was
//! delivered here could overtake another one that was not. For the same reason a lock is only released here if its
//! owner has it already.
//!
//! Servers that share a store deliver what they send with their next commit: what is read here would delay this one by
//! a round trip.

use std::collections::BTreeSet;

use windlass_core::{LockCommand, LockName, Message, TaskId};
use windlass_store::Envelope;

use crate::{
    Engine,
    deciding::{
        batch::{Batch, load_locks},
        lock_work::LockWork,
        task_work::TaskWork,
    },
    services::MESSAGES_MAX,
};

/// What is delivered at a time: a lock that was released in the first layer is granted in the second one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layer {
    /// Releases of locks, and locks that were granted before.
    Locks,
    /// Locks that were granted in the first layer.
    Grants,
}

impl Layer {
    pub(super) const ALL: [Self; 2] = [Self::Locks, Self::Grants];

    fn has(self, message: &Message) -> bool {
        match message {
            Message::Lock { command: LockCommand::Release { .. }, .. } => self == Self::Locks,
            Message::Granted { .. } => true,
            _ => false,
        }
    }
}

impl Batch {
    /// The messages of this batch that are delivered next, whose receivers are loaded. None if reading them fails: then
    /// the batch is committed without them.
    pub(super) async fn follow_ups(&mut self, engine: &Engine, layer: Layer) -> Vec<Envelope> {
        // With tasks that were not loaded, memory is to hold no more.
        if engine.store.cluster().is_some() || !self.unloaded.is_empty() {
            return Vec::new();
        }
        let of_tasks =
            self.tasks.values().flat_map(|work| &work.steps).flat_map(|step| &step.change.messages);
        let of_locks =
            self.locks.values().flat_map(|work| &work.changes).flat_map(|(change, _)| &change.messages);
        let is_next = |sent: &&Envelope| layer.has(&sent.message) && !self.followed.contains(&sent.id);
        let mut messages: Vec<Envelope> =
            of_tasks.chain(of_locks).filter(is_next).take(MESSAGES_MAX).cloned().collect();
        if messages.is_empty() {
            return messages;
        }
        self.tasks.values_mut().for_each(TaskWork::begin_follow_ups);
        self.load_receivers(engine, &messages).await;
        messages.retain(|envelope| match &envelope.message {
            Message::Lock { name, command: LockCommand::Release { owner } } => {
                let holder = self.locks.get(name).and_then(LockWork::holder);
                holder.is_some_and(|holder| holder.owner == *owner)
            }
            // A task may have been loaded before it requested the lock, and the lock after it. Then the grant looks
            // unwanted: the messenger loads the task again.
            Message::Granted { owner, name, .. } => {
                self.locks.contains_key(name) && self.is_wanted(owner, name)
            }
            _ => false,
        });
        self.followed.extend(messages.iter().map(|envelope| envelope.id.clone()));
        messages
    }

    /// Loads the receivers of messages that the batch does not have. Those that cannot be read are left out: their
    /// messages wait in the store.
    async fn load_receivers(&mut self, engine: &Engine, messages: &[Envelope]) {
        let (mut names, mut ids) = (BTreeSet::<LockName>::new(), BTreeSet::<TaskId>::new());
        for Envelope { message, .. } in messages {
            match message {
                Message::Lock { name, .. } => drop(names.insert(name.clone())),
                Message::Granted { owner, .. } => drop(ids.insert(owner.task)),
                _ => {}
            }
        }
        names.retain(|name| !self.locks.contains_key(name));
        ids.retain(|id| !self.tasks.contains_key(id));
        self.locks.extend(load_locks(engine, names.into_iter().collect()).await.unwrap_or_default());
        let ids: Vec<TaskId> = ids.into_iter().collect();
        let loaded = match ids.is_empty() {
            true => Vec::new(),
            false => engine.store.load_first(&ids).await.unwrap_or_default(),
        };
        for (id, loaded) in ids.into_iter().zip(loaded) {
            let Some(loaded) = loaded else { continue };
            let mut work = TaskWork::new(Some(loaded));
            work.begin_follow_ups();
            self.tasks.insert(id, work);
        }
        // What was read may have been decided after this batch began.
        self.now = engine.latest.not_before(self.now);
    }
}
