//! Every unfinished task has something that will wake it: an attempt that is ready, a time, or a person.

use windlass_core::{ActState, Pause, waits};
use windlass_engine::ports::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct WakeUps;

impl Invariant for WakeUps {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Task(change)) = seen else { return Ok(()) };
        let Some(known) = truth.tasks.get(&change.task.id) else { return Ok(()) };
        let task = &known.task;
        let parked = || task.open_acts().any(|(_, act)| act.state == ActState::Parked);
        let by_person = task.state.stuck.is_some() || (task.state.pause == Pause::Held && parked());
        if !task.is_ended() && !by_person && waits(task).is_empty() {
            let message = format!("task {} has not ended, and nothing will wake it", task.id);
            return Err(broken("wake-ups", task.id, message));
        }
        Ok(())
    }
}
