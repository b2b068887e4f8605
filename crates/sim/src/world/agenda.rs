//! What is to come: everything that happens in a world happens at a time, and one after the other.

use std::{collections::BTreeMap, rc::Rc};

use super::World;

/// What happens to a world.
pub(super) type Happening = Box<dyn FnOnce(&Rc<World>)>;

/// Something that will happen.
pub(super) struct Event {
    /// What kind of thing.
    pub(super) label: &'static str,
    /// What tells it apart from others of the kind, for the hash of the run.
    pub(super) detail: u64,
    pub(super) happen: Happening,
}

/// Events by time, and in the order they were made within a millisecond.
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
