//! A retry is not made before its time, a step that waits does not begin before its own, and a scheduled task does not start before its own.

use windlass_core::{ActKey, ActState, Direction, EventKind, Millis, Phase, Task};
use windlass_store::Change;

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct Delays;

impl Invariant for Delays {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        let Seen::Written(Change::Task(change)) = seen else { return Ok(()) };
        let Some(known) = truth.tasks.get(&change.task.id) else { return Ok(()) };
        let mut task = Task::clone(&known.before);
        for event in &known.events {
            let until = match &event.kind {
                EventKind::ActReady { key, .. }
                | EventKind::ActParked { key, .. }
                | EventKind::ActFanned { key, .. }
                | EventKind::ActAwaiting { key, .. } => match task.act(*key).map(|act| act.state) {
                    Some(ActState::Delayed { until }) => Some(until),
                    _ => None,
                },
                EventKind::TaskStarted if task.state.phase == Phase::Scheduled => task.input.at,
                _ => None,
            };
            if let Some(key) = begins_at_once(&task, &event.kind) {
                let message = format!("task {}: {key:?} begins without its delay", task.id);
                return Err(broken("delays", task.id, message));
            }
            if let Some(until) = until.filter(|until| event.at < *until) {
                let message =
                    format!("task {}: {:?} came {} ms too early", task.id, event.kind, until.0 - event.at.0);
                return Err(broken("delays", task.id, message));
            }
            windlass_core::evolve(&mut task, event);
        }
        Ok(())
    }
}

/// The step that begins at once although it has a `delay`.
fn begins_at_once(task: &Task, kind: &EventKind) -> Option<ActKey> {
    let (EventKind::ActReady { key, .. }
    | EventKind::ActParked { key, .. }
    | EventKind::ActFanned { key, .. }
    | EventKind::ActAwaiting { key, .. }) = kind
    else {
        return None;
    };
    let act = task.act(*key).filter(|act| act.state == ActState::Idle && act.attempt == 0)?;
    let is_forward = key.direction == Direction::Forward && !key.is_member();
    let has_delay = task.flow.steps[key.step].delay.is_some_and(|delay| delay > Millis(0));
    (is_forward && has_delay && act.failures == 0).then_some(*key)
}
