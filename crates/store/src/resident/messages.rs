//! Messages between aggregates as they are sent and consumed, and changes of locks.

use windlass_core::planted::{Bug, is_planted};

use super::scheduler::Scheduler;
use crate::port::{Envelope, LockChange, MessageId};

impl Scheduler {
    /// Makes a change of a lock what later commits build on.
    pub(super) fn stage_lock(&mut self, change: &LockChange) {
        let name = &change.lock.name;
        if change.kept {
            self.locks.insert(name.clone(), change.lock.clone());
        } else {
            self.locks.remove(name);
            if !is_planted(Bug::LockFloorForgotten) {
                self.lock_floor = self.lock_floor.max(change.lock.version);
            }
        }
        self.stage_messages(&change.messages);
    }

    pub(super) fn consume(&mut self, message: Option<&MessageId>) {
        if let Some(message) = message.filter(|_| !is_planted(Bug::MessageTwice)) {
            self.messages.remove(message);
            self.staged_messages.remove(message);
        }
    }

    /// A staged change sends these messages. Later changes may consume them, also those of the same commit: they reach
    /// the disk behind the change that sends them, or not at all. Nobody else sees them yet: if the change does not
    /// reach the disk, another one may send different messages under their numbers.
    pub(super) fn stage_messages(&mut self, messages: &[Envelope]) {
        let is_shown = is_planted(Bug::MessageShownEarly);
        let staged = if is_shown { &mut self.messages } else { &mut self.staged_messages };
        for envelope in messages.iter().filter(|_| !is_planted(Bug::MessageLost)) {
            staged.insert(envelope.id.clone(), envelope.clone());
        }
    }

    /// The change that sends these messages is on disk: those that no later change has consumed are delivered.
    pub(super) fn publish_messages(&mut self, messages: &[Envelope]) {
        for Envelope { id, .. } in messages {
            self.messages.extend(self.staged_messages.remove_entry(id));
        }
    }
}
