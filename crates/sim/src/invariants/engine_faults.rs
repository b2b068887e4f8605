//! The rules never run into a state that they refuse.

use windlass_core::StuckKind;
use windlass_store::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct EngineFaults;

impl Invariant for EngineFaults {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Task(change)) = seen else { return Ok(()) };
        let stuck = truth.tasks.get(&change.task.id).and_then(|known| known.task.state.stuck.clone());
        match stuck.filter(|stuck| stuck.kind == StuckKind::EngineFault) {
            Some(stuck) => {
                let message = format!("task {} is held: {}", change.task.id, stuck.message);
                Err(broken("engine faults", change.task.id, message))
            }
            None => Ok(()),
        }
    }
}
