//! An alarm in a batch, and what is done to it.

use windlass_core::{Alarm, AlarmCommand, AlarmId, Timestamp};

use super::{batch::Place, part::Pending};
use crate::{
    inbox::Reply,
    ports::{AlarmChange, MessageId, StoredAlarm},
};

/// An alarm and what is done to it. Each command is a change of its own, decided on what those before it make:
/// a message that was consumed elsewhere fails alone, or with what was built on it.
pub(super) struct AlarmWork {
    /// The alarm as it is by now.
    alarm: Option<Alarm>,
    version: u64,
    pub(super) changes: Vec<(AlarmChange, Vec<Pending>)>,
}

impl AlarmWork {
    pub(super) fn new(stored: Option<StoredAlarm>) -> Self {
        let (alarm, version) = match stored {
            Some(stored) => (Some(stored.alarm), stored.version),
            None => (None, 0),
        };
        Self { alarm, version, changes: Vec::new() }
    }

    /// Decides a command. Gives the reply where it waits for no change.
    pub(super) fn decide(
        &mut self,
        id: &AlarmId,
        command: &AlarmCommand,
        consumes: Option<MessageId>,
        place: Place,
        now: Timestamp,
    ) -> Option<Reply> {
        let alarm = match (Alarm::apply(self.alarm.as_ref(), id, command, now), &consumes) {
            (Ok(alarm), _) => alarm,
            // A message that finds nothing to do is consumed all the same.
            (Err(_), Some(_)) => None,
            (Err(rejection), None) => return self.answer(Reply::AlarmRejected(rejection), place),
        };
        if alarm.is_none() && consumes.is_none() {
            let reply = self.alarm.clone().map_or(Reply::Done, Reply::Alarm);
            return self.answer(reply, place);
        }
        let reply = alarm.clone().map_or(Reply::Done, Reply::Alarm);
        let change = AlarmChange { before: self.version, alarm: alarm.clone(), consumes };
        self.changes.push((change, vec![Pending { place, reply: Some(reply) }]));
        if alarm.is_some() {
            (self.alarm, self.version) = (alarm, self.version + 1);
        }
        None
    }

    /// An answer that changes nothing holds when the alarm is on disk as it was decided on.
    fn answer(&mut self, reply: Reply, place: Place) -> Option<Reply> {
        match self.changes.last_mut() {
            Some((_, pending)) => {
                pending.push(Pending { place, reply: Some(reply) });
                None
            }
            None => Some(reply),
        }
    }
}
