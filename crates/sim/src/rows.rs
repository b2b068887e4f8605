//! Rows other than tasks: locks and messages as they are on disk; limits and paused queues, which a server
//! applies as soon as they are staged.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{Lock, LockName, LockOwner, Message, Name};
use windlass_store::{Change, Envelope, Limit, MessageId};

/// The rules for handing out attempts.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    pub(crate) limits: BTreeMap<Name, Limit>,
    pub(crate) paused: BTreeSet<Name>,
}

impl Rules {
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Limit(change) => {
                self.limits.remove(&change.name);
                self.limits.extend(change.limit.iter().map(|limit| (change.name.clone(), limit.clone())));
            }
            Change::Queue(change) if change.paused.is_some() => {
                self.paused.insert(change.name.clone());
            }
            Change::Queue(change) => {
                self.paused.remove(&change.name);
            }
            _ => {}
        }
    }
}

/// Locks, and messages that were sent and not consumed.
#[derive(Default)]
pub(crate) struct Post {
    pub(crate) locks: BTreeMap<LockName, Lock>,
    messages: BTreeMap<MessageId, Message>,
}

impl Post {
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Task(change) => self.carry(&change.messages, change.consumes.as_ref()),
            Change::Lock(change) => {
                self.carry(&change.messages, change.consumes.as_ref());
                let name = change.lock.name.clone();
                if change.kept {
                    self.locks.insert(name, change.lock.clone());
                } else {
                    self.locks.remove(&name);
                }
            }
            Change::Alarm(change) => self.carry(&[], change.consumes.as_ref()),
            Change::Consume(message) => self.carry(&[], Some(message)),
            _ => {}
        }
    }

    fn carry(&mut self, sent: &[Envelope], consumed: Option<&MessageId>) {
        self.messages.extend(sent.iter().map(|envelope| (envelope.id.clone(), envelope.message.clone())));
        consumed.into_iter().for_each(|id| drop(self.messages.remove(id)));
    }

    /// Messages in transit.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.values()
    }

    /// Whether the lock has this owner in its queue, or will have: then its turn will come.
    pub(crate) fn is_to_get(&self, name: &LockName, owner: &LockOwner) -> bool {
        let known = self.locks.get(name).is_some_and(|lock| {
            lock.holder.is_some_and(|holder| holder.owner == *owner) || lock.place(owner).is_some()
        });
        known
            || self.messages().any(|message| match message {
                Message::Lock {
                    name: of,
                    command:
                        windlass_core::LockCommand::Acquire { owner: other }
                        | windlass_core::LockCommand::Join { owner: other, .. },
                } => (of, other) == (name, owner),
                // An operator took it away before its owner learned of it.
                Message::Granted { name: of, owner: other, .. }
                | Message::Seized { name: of, owner: other, .. } => (of, other) == (name, owner),
                _ => false,
            })
    }
}
