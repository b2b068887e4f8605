//! The agenda: events of a world happen at their times, one after another.

use std::{collections::BTreeMap, rc::Rc};

use super::World;

/// The effect of an event on a world.
pub(super) type Happening = Box<dyn FnOnce(&Rc<World>)>;

/// A future event.
pub(super) struct Event {
    /// Its kind.
    pub(super) label: &'static str,
    /// Distinguishes it from others of its kind, in the hash of the run.
    pub(super) detail: u64,
    pub(super) happen: Happening,
}

/// Events by time, and in order of creation within a millisecond.
#[derive(Default)]
pub(super) struct Agenda {
    events: BTreeMap<(u64, u64), Event>,
    made: u64,
}

impl Agenda {
    pub(super) fn add(&mut self, at: u64, event: Event) {
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    pub(super) fn next(&mut self) -> Option<(u64, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}
