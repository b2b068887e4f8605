//! In a world with publishing, every event on disk is published, and none before its predecessor.

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct AnnouncedEvents {
    announces: bool,
}

impl Invariant for AnnouncedEvents {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        self.announces = world.config.announces;
        let Seen::Announced { task, n } = seen else { return Ok(()) };
        let happened = truth.tasks.get(task).map_or(0, |known| known.task.state.events);
        if *n > happened {
            let message = format!("event {n} of task {task} is announced, and {happened} are on disk");
            return Err(broken("announced", *task, message));
        }
        let before = truth.announced_before();
        if *n > before + 1 {
            let message = format!("event {n} of task {task} is announced after {before}");
            return Err(broken("announced", *task, message));
        }
        Ok(())
    }

    fn at_rest(&mut self, truth: &Truth) -> Result<(), Violation> {
        let Some(task) = truth.unannounced().filter(|_| self.announces) else { return Ok(()) };
        Err(broken("announced", task, format!("not every event of task {task} is announced")))
    }
}
