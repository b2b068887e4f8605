//! Everything that clients see is on disk.

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct ShownState;

impl Invariant for ShownState {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        let (Seen::Shown { task, events } | Seen::Told { task, events }) = seen else { return Ok(()) };
        let written = truth.tasks.get(task).map_or(0, |known| known.task.state.events);
        if written < *events {
            let message = format!("task {task} was shown with {events} events, and {written} are on disk");
            return Err(broken("shown state", *task, message));
        }
        Ok(())
    }
}
