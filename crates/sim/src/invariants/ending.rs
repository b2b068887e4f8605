//! When nothing more goes wrong, every task comes to its end.

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct EveryTaskEnds;

impl Invariant for EveryTaskEnds {
    fn see(&mut self, _seen: &Seen, _truth: &Truth, _world: &World) -> Result<(), Violation> {
        Ok(())
    }

    fn at_rest(&mut self, truth: &Truth) -> Result<(), Violation> {
        match truth.unfinished().first() {
            Some(task) => {
                let message = format!("task {} does not end: {:?}", task.id, task.state);
                Err(broken("ending", task.id, message))
            }
            None => Ok(()),
        }
    }
}
