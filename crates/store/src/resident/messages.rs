//! Messages between aggregates as they are sent and consumed, and changes of alarms and locks, which hear them.

use windlass_core::planted::{Bug, is_planted};

use super::scheduler::{AlarmVersions, Scheduler};
use crate::port::{AlarmChange, Envelope, LockChange, MessageId, Outcome, StoredAlarm};

impl Scheduler {
    /// Checks a change of an alarm and makes it what later commits build on. `versions` are those on disk.
    pub(super) fn stage_alarm(&mut self, change: &AlarmChange, versions: &AlarmVersions) -> Outcome {
        if let Some(alarm) = &change.alarm {
            let staged = self.alarms.get(&alarm.id.0).map(|staged| staged.version);
            let version = staged.or_else(|| versions.get(&alarm.id).copied()).unwrap_or(0);
            if version != change.before {
                return Outcome::Conflict;
            }
        }
        if !self.has_message(change.consumes.as_ref()) {
            return Outcome::Conflict;
        }
        self.consume(change.consumes.as_ref());
        if let Some(alarm) = &change.alarm {
            let staged = StoredAlarm { alarm: alarm.clone(), version: change.before + 1 };
            self.alarms.insert(alarm.id.0.clone(), staged);
        }
        Outcome::Committed
    }

    /// Checks a change of a lock and makes it what later commits build on.
    pub(super) fn stage_lock(&mut self, change: &LockChange) -> Outcome {
        let name = &change.lock.name;
        let version = self.locks.get(name).map_or(self.lock_floor, |lock| lock.version);
        if self.generation != change.generation && !is_planted(Bug::LostLockState)
            || version != change.before
            || !self.has_message(change.consumes.as_ref())
        {
            return Outcome::Conflict;
        }
        self.consume(change.consumes.as_ref());
        if change.kept {
            self.locks.insert(name.clone(), change.lock.clone());
        } else {
            self.locks.remove(name);
            if !is_planted(Bug::LockFloorForgotten) {
                self.lock_floor = self.lock_floor.max(change.lock.version);
            }
        }
        self.stage_messages(&change.messages);
        Outcome::Committed
    }

    /// Whether the message waits that is to be consumed, if one is.
    pub(super) fn has_message(&self, message: Option<&MessageId>) -> bool {
        let waits = |id| self.messages.contains_key(id) || self.staged_messages.contains_key(id);
        message.is_none_or(waits) || is_planted(Bug::MessageTwice)
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
