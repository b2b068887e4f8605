//! A lock in a batch, and what is done to it.

use windlass_core::{Lock, LockCommand, Timestamp};

use super::{batch::Place, part::Pending};
use crate::{
    inbox::Reply,
    ports::{LockChange, MessageId},
};

/// A lock and what is done to it. Each command is a change of its own, decided on what those before it make: a
/// message that was consumed elsewhere fails alone, or with what was built on it.
pub(super) struct LockWork {
    /// The lock as it is by now.
    lock: Lock,
    pub(super) changes: Vec<(LockChange, Vec<Pending>)>,
}

impl LockWork {
    pub(super) fn new(lock: Lock) -> Self {
        Self { lock, changes: Vec::new() }
    }

    /// Decides what a message says. Tells whether it found something to do, and is consumed by that.
    pub(super) fn consume(
        &mut self,
        command: &LockCommand,
        message: &MessageId,
        place: Place,
        now: Timestamp,
    ) -> bool {
        let Ok(Some(transition)) = self.lock.apply(command, now) else { return false };
        let change = LockChange::new(self.lock.version, transition, now, Some(message.clone()));
        self.push(change, Pending { place, reply: Some(Reply::Done) });
        true
    }

    /// Decides what a person says. Gives the reply where it waits for no change.
    pub(super) fn decide(&mut self, command: &LockCommand, place: Place, now: Timestamp) -> Option<Reply> {
        let holder = self.lock.holder;
        let reply = match self.lock.apply(command, now) {
            Ok(Some(transition)) => {
                let change = LockChange::new(self.lock.version, transition, now, None);
                let reply = Reply::Lock { lock: change.lock.clone(), before: holder };
                self.push(change, Pending { place, reply: Some(reply) });
                return None;
            }
            Ok(None) => Reply::Lock { lock: self.lock.clone(), before: holder },
            Err(rejection) => Reply::LockRejected(rejection),
        };
        // An answer that changes nothing holds when the lock is on disk as it was decided on.
        match self.changes.last_mut() {
            Some((_, pending)) => {
                pending.push(Pending { place, reply: Some(reply) });
                None
            }
            None => Some(reply),
        }
    }

    fn push(&mut self, change: LockChange, pending: Pending) {
        self.lock = change.lock.clone();
        self.changes.push((change, vec![pending]));
    }
}
