//! An alarm in a batch and the changes to it.

use windlass_core::{Alarm, AlarmCommand, AlarmId, Timestamp};
use windlass_store::{AlarmChange, MessageId, StoredAlarm};

use crate::deciding::{batch::Place, inbox::Reply, part::Pending};

/// An alarm and the changes to it. Each command is a separate change, decided on the result of the commands before it.
/// If another server has already consumed a message, only its change and the changes built on it fail.
pub(super) struct AlarmWork {
    /// The alarm after the commands decided so far.
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

    /// Decides a command. Returns the reply if it does not depend on a change of this batch.
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
            // A message is consumed even if there is nothing to do.
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

    /// A reply without a change is valid once the alarm it was decided on is on disk.
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
