//! A lock in a batch and the changes to it.

use windlass_core::{Lock, LockCommand, LockHolder, Timestamp};
use windlass_store::{LockChange, MessageId};

use crate::deciding::{batch::Place, inbox::Reply, part::Pending};

/// A lock and the changes to it. Each command is a separate change, decided on the result of the commands before it. If
/// another server has already consumed a message, only its change and the changes built on it fail.
pub(super) struct LockWork {
    /// The lock after the commands decided so far.
    lock: Lock,
    /// The generation of the store in which it was read.
    generation: u64,
    pub(super) changes: Vec<(LockChange, Vec<Pending>)>,
}

impl LockWork {
    pub(super) fn new(lock: Lock, generation: u64) -> Self {
        Self { lock, generation, changes: Vec::new() }
    }

    /// The holder, if it is held.
    pub(super) fn holder(&self) -> Option<LockHolder> {
        self.lock.holder
    }

    /// Decides a message. Returns whether it found something to do; if so, the change consumes the message.
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

    /// Decides an operator's command. Returns the reply if it does not depend on a change of this batch.
    pub(super) fn decide(&mut self, command: &LockCommand, place: Place, now: Timestamp) -> Option<Reply> {
        let holder = (self.lock.holder, self.lock.leader.clone());
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
        // A reply without a change is valid once the lock it was decided on is on disk.
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
        self.changes.push((change.decided_in(self.generation), vec![pending]));
    }
}
