//! Each instant of a trigger is fired exactly once: not again by another server, and not left out.

use std::collections::{BTreeMap, btree_map::Entry};

use windlass_core::{Name, TaskId, Timestamp, Timing, Trigger};
use windlass_engine::decode_trigger;
use windlass_store::{Change, RecordChange, RecordKind, TaskChange};

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

const NAME: &str = "trigger instants";

#[derive(Default)]
pub(super) struct TriggerInstants {
    /// The task of each instant, by trigger and by the instant as text.
    fired: BTreeMap<(String, String), TaskId>,
    triggers: BTreeMap<Name, Trigger>,
}

impl Invariant for TriggerInstants {
    fn see(&mut self, seen: &Seen, _: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(Change::Task(change)) if change.before == 0 => self.see_task(change, world),
            Seen::Written(Change::Record(change)) if change.kind == RecordKind::Trigger => {
                self.see_trigger(change, world)
            }
            _ => Ok(()),
        }
    }
}

impl TriggerInstants {
    fn see_task(&mut self, change: &TaskChange, world: &World) -> Result<(), Violation> {
        let labels = &change.task.input.labels;
        // An operator may run any task again: it keeps its labels.
        if change.task.input.rerun_of.is_some() {
            return Ok(());
        }
        let Some((trigger, instant)) = labels.get("trigger").zip(labels.get("instant")) else {
            return Ok(());
        };
        world.count("trigger: instant fired");
        match self.fired.entry((trigger.clone(), instant.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(change.task.id);
                Ok(())
            }
            Entry::Occupied(entry) => {
                let message = format!("the instant {instant} was fired before, with task {}", entry.get());
                Err(broken(NAME, change.task.id, message))
            }
        }
    }

    /// A record advances from one instant to the next, and each that it passes has a task.
    fn see_trigger(&mut self, change: &RecordChange, world: &World) -> Result<(), Violation> {
        let Some(record) = change.record() else {
            self.triggers.remove(&change.name);
            return Ok(());
        };
        let violation = |message: String| Violation::new(NAME, message);
        let trigger = decode_trigger(&record).map_err(|error| violation(error.to_string()))?;
        let Some(before) = self.triggers.insert(change.name.clone(), trigger.clone()) else { return Ok(()) };
        if trigger.since != before.since || trigger.decided == before.decided {
            return Ok(());
        }
        let Some(Timing::Every { interval }) = trigger.definition.schedule().map(|it| it.timing.clone())
        else {
            return Ok(());
        };
        let passed = (before.decided - trigger.since).0 / interval.0;
        let next = Timestamp(trigger.since.0 + i64::try_from((passed + 1) * interval.0).unwrap_or(i64::MAX));
        if trigger.decided != next || trigger.fired != Some(next) {
            return Err(violation(format!(
                "after {:?} comes {next:?}, and {:?} was decided and {:?} fired",
                before.decided, trigger.decided, trigger.fired
            )));
        }
        let instant = windlass_engine::rfc3339(next);
        if !self.fired.contains_key(&(change.name.to_string(), instant.clone())) {
            return Err(violation(format!("the instant {instant} was recorded as fired, and has no task")));
        }
        world.count("trigger: advanced");
        Ok(())
    }
}
