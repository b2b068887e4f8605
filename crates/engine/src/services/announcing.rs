//! Whether task events are announced, for the commits that produce them, and the tasks that have ended, for the outbox relay.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use windlass_core::{Task, TaskId};
use windlass_store::Signal;

/// The most bytes that ended tasks may take; beyond it the oldest are forgotten.
const ENDED_BYTES_MAX: usize = 16 << 20;

/// What a task takes without its parameters and results, about.
const TASK_BYTES: usize = 1 << 10;

/// What the commits of this server pass to its outbox relay, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Announcing {
    /// The signal that it waits for.
    stirred: OnceLock<Arc<Signal>>,
    ended: Mutex<EndedTasks>,
}

/// Tasks that have ended. The store has them on disk only, and their events are mostly announced within a second: this saves
/// reading them.
#[derive(Debug, Default)]
struct EndedTasks {
    tasks: BTreeMap<TaskId, Arc<Task>>,
    bytes: usize,
}

impl Announcing {
    /// Starts an outbox relay. The returned signal is set when there may be events for it.
    pub(crate) fn begin(&self) -> Arc<Signal> {
        self.stirred.get_or_init(Arc::default).clone()
    }

    /// Whether events are kept for an outbox relay.
    pub(crate) fn is_on(&self) -> bool {
        self.stirred.get().is_some()
    }

    /// Wakes the outbox relay after a commit of events.
    pub(crate) fn stir(&self) {
        if let Some(stirred) = self.stirred.get() {
            stirred.set();
        }
    }

    /// Notes the state of a task, with its parameters and results, after a commit. Only for a server that is the only one on its
    /// store: another one may change the task.
    pub(crate) fn note_committed(&self, task: &Arc<Task>) {
        let mut ended = self.ended();
        // It may go on after its end.
        ended.remove(task.id);
        if self.is_on() && task.is_ended() {
            ended.add(task);
        }
    }

    /// The task as it is now, if it has ended and is remembered.
    pub(crate) fn ended_task(&self, id: TaskId) -> Option<Arc<Task>> {
        self.ended().tasks.get(&id).cloned()
    }

    /// The same, and forgets it.
    pub(crate) fn take_ended_task(&self, id: TaskId) -> Option<Arc<Task>> {
        self.ended().remove(id)
    }

    fn ended(&self) -> MutexGuard<'_, EndedTasks> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EndedTasks {
    fn add(&mut self, task: &Arc<Task>) {
        self.bytes += size(task);
        self.tasks.insert(task.id, task.clone());
        while self.bytes > ENDED_BYTES_MAX
            && let Some((_, oldest)) = self.tasks.pop_first()
        {
            self.bytes -= size(&oldest);
        }
    }

    fn remove(&mut self, id: TaskId) -> Option<Arc<Task>> {
        let task = self.tasks.remove(&id)?;
        self.bytes -= size(&task);
        Some(task)
    }
}

fn size(task: &Task) -> usize {
    TASK_BYTES + task.payload_bytes()
}

#[cfg(test)]
mod tests {
    use windlass_core::{Ending, Flow, Input, Json, Name, Phase, Timestamp};

    use super::*;

    fn task(id: u128, phase: Phase, params: &str) -> Arc<Task> {
        let input = Input::new(Json::parse(params).unwrap(), Timestamp(0));
        let flow = Flow::new(Name::new("f").unwrap(), Vec::new());
        let mut task = Task::new(TaskId(id), Arc::new(flow), Arc::new(input));
        task.state.phase = phase;
        Arc::new(task)
    }

    #[test]
    fn a_task_that_goes_on_after_its_end_is_forgotten() {
        let announcing = Announcing::default();
        announcing.begin();
        announcing.note_committed(&task(1, Phase::Ended(Ending::Succeeded), "{}"));
        assert!(announcing.ended_task(TaskId(1)).is_some());
        announcing.note_committed(&task(1, Phase::Backward, "{}"));
        assert!(announcing.take_ended_task(TaskId(1)).is_none());
        assert_eq!(announcing.ended().bytes, 0);
    }
    #[test]
    fn the_oldest_make_room() {
        let announcing = Announcing::default();
        announcing.begin();
        let params = format!("{{\"text\":\"{}\"}}", "x".repeat(ENDED_BYTES_MAX / 4));
        for id in 1..=5 {
            announcing.note_committed(&task(id, Phase::Ended(Ending::Succeeded), &params));
        }
        let kept: Vec<u128> = announcing.ended().tasks.keys().map(|id| id.0).collect();
        assert_eq!(kept, [3, 4, 5]);
        assert!(announcing.ended().bytes <= ENDED_BYTES_MAX);
    }
}
