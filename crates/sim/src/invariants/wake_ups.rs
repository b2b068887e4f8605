//! Every unfinished task has something that will wake it: a ready attempt, a time, an operator, a lock, or a
//! child. No step waits for a stored signal.

use windlass_core::{ActState, Awaited, Doer, LockOwner, Message, Task, waits};
use windlass_store::Change;

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
        // A server that remembers the task goes on with it, and a lock that it is granted passes it by: another server, which
        // delivers the grant, cannot read the task. An operator repairs its rows.
        if truth.is_damaged(task.id) {
            return Ok(());
        }
        if let Some(name) = awaited_signal(task) {
            let message = format!("task {} waits for the signal {name}, which it has kept", task.id);
            return Err(broken("wake-ups", task.id, message));
        }
        let by_signal = || task.open_acts().any(|(_, act)| act.state == ActState::Awaiting(Awaited::Signal));
        let parked = || task.open_acts().any(|(_, act)| act.state == ActState::Parked);
        let by_person =
            task.state.stuck.is_some() || by_signal() || (task.state.pause.is_paused() && parked());
        if !task.is_ended()
            && !by_person
            && !by_lock(task, truth)
            && !by_queue(task, truth)
            && !by_child(task, truth)
            && waits(task).is_empty()
        {
            let message = format!("task {} has not ended, and nothing will wake it", task.id);
            return Err(broken("wake-ups", task.id, message));
        }
        Ok(())
    }
}

/// Whether a lock will be given to an execution that waits for it.
fn by_lock(task: &Task, truth: &Truth) -> bool {
    task.open_acts().any(|(key, act)| {
        let owner = LockOwner { task: task.id, key, turn: act.turn() };
        act.wanted_lock().is_some_and(|lock| truth.post.is_to_get(&lock.name, &owner))
    })
}

/// Whether the task will get its exclusive queue.
fn by_queue(task: &Task, truth: &Truth) -> bool {
    let (queue, owner) = (task.input.exclusive.as_ref(), task.queue_owner());
    queue
        .zip(owner)
        .is_some_and(|(queue, owner)| task.waits_for_queue() && truth.post.is_to_get(queue, &owner))
}

/// Whether an awaited child is active, or a message to or from it is in transit.
fn by_child(task: &Task, truth: &Truth) -> bool {
    task.open_acts().filter(|(_, act)| act.state == ActState::Awaiting(Awaited::Child)).any(|(_, act)| {
        let Some(child) = act.child() else { return false };
        truth.tasks.get(&child).is_some_and(|known| !known.task.is_ended())
            || truth.post.messages().any(|message| match message {
                Message::Child { child: other, .. } | Message::ChildEnded { child: other, .. } => {
                    *other == child
                }
                _ => false,
            })
    })
}

/// A signal that a step waits for although it is stored.
fn awaited_signal(task: &Task) -> Option<String> {
    let waiting = task.open_acts().filter(|(_, act)| act.state == ActState::Awaiting(Awaited::Signal));
    let mut names = waiting.filter_map(|(key, _)| match &task.action(key)?.doer {
        Doer::Signal { name } => Some(name),
        _ => None,
    });
    names.find(|name| task.state.signals.iter().any(|kept| kept.name == **name)).map(ToString::to_string)
}
