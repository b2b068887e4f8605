//! A message from a task to an alarm arrives, once.

use std::collections::BTreeMap;

use windlass_core::{AlarmCommand, AlarmId, AlarmKind, Message, TaskId};
use windlass_store::Change;

use super::Invariant;
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Alarms {
    /// How often each was raised by tasks.
    raised: BTreeMap<AlarmId, u32>,
}

impl Invariant for Alarms {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(Change::Task(change)) => {
                for envelope in &change.messages {
                    let Message::Alarm { id, command } = &envelope.message else { continue };
                    if matches!(command, AlarmCommand::Raise { .. }) {
                        *self.raised.entry(id.clone()).or_default() += 1;
                    }
                }
                Ok(())
            }
            Seen::Written(Change::Alarm(change)) => {
                let Some(alarm) = &change.alarm else { return Ok(()) };
                // One about no task was raised by no message, nor one by a service of a server.
                let by_service = matches!(alarm.kind, AlarmKind::DamagedRow | AlarmKind::Refused);
                if alarm.task == TaskId::NONE || by_service {
                    return Ok(());
                }
                let raised = self.raised.get(&alarm.id).copied().unwrap_or(0);
                self.check(&alarm.id, alarm.raised <= raised, truth)
            }
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, truth: &Truth) -> Result<(), Violation> {
        for (id, raised) in &self.raised {
            let heard = truth.alarms.get(id).map_or(0, |alarm| alarm.raised);
            self.check(id, heard == *raised, truth)?;
        }
        Ok(())
    }
}

impl Alarms {
    fn check(&self, id: &AlarmId, holds: bool, truth: &Truth) -> Result<(), Violation> {
        if holds {
            return Ok(());
        }
        let (raised, heard) = (self.raised.get(id), truth.alarms.get(id).map_or(0, |alarm| alarm.raised));
        let message =
            format!("alarm {id} was raised {} times and heard of it {heard} times", raised.unwrap_or(&0));
        Err(Violation::new("alarms", message))
    }
}
