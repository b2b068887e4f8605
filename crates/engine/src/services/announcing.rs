//! Whether task events are announced, for the commits that produce them, and the tasks that have ended, for the outbox relay.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use windlass_core::{Task, TaskId};
use windlass_store::Signal;

/// The maximum memory for kept tasks, in bytes. Above this limit, the tasks with the lowest ids are dropped.
const ENDED_BYTES_MAX: usize = 16 << 20;

/// A task with more bytes of parameters and results is not kept.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// Estimated memory per task, in bytes, without parameters and results. Each step adds as much.
const STEP_BYTES: usize = 1 << 10;

/// What the commits of this server pass to its outbox relay, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Announcing {
    /// The signal that it waits for.
    stirred: OnceLock<Arc<Signal>>,
    ended: Mutex<EndedTasks>,
}

/// Tasks that have ended and whose end was not announced yet. The store has them on disk only, and most ends are announced within
/// a second: this saves reading them.
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

    /// Keeps a committed task, with its parameters and results, if it has ended. Call this only if no other server uses the store:
    /// another server may change the task.
    pub(crate) fn keep_if_ended(&self, task: &Arc<Task>) {
        let mut ended = self.ended();
        // It may go on after its end.
        ended.remove(task.id);
        if task.is_ended() && is_small(task) {
            ended.add(task);
        }
    }

    /// The task as it is now, if it has ended and is kept.
    pub(crate) fn ended_task(&self, id: TaskId) -> Option<Arc<Task>> {
        self.ended().tasks.get(&id).cloned()
    }

    /// The same for the announcement of its end, after which it is not kept any more.
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
            && let Some((_, first)) = self.tasks.pop_first()
        {
            self.bytes -= size(&first);
        }
    }

    fn remove(&mut self, id: TaskId) -> Option<Arc<Task>> {
        let task = self.tasks.remove(&id)?;
        self.bytes -= size(&task);
        Some(task)
    }
}

/// Whether [`size`] is a good estimate for a task. [`size`] ignores the items of `each` steps, of which there may be thousands.
fn is_small(task: &Task) -> bool {
    task.payload_bytes() <= PAYLOAD_BYTES_MAX && task.fans().next().is_none()
}

fn size(task: &Task) -> usize {
    STEP_BYTES * (1 + task.state.steps.len()) + task.payload_bytes()
}

#[cfg(test)]
mod tests {
    use windlass_core::{Ending, Flow, Input, Json, Name, Phase, Timestamp};

    use super::*;

    fn task(id: u128, phase: Phase, bytes: usize) -> Arc<Task> {
        let params = format!("{{\"text\":\"{}\"}}", "x".repeat(bytes));
        let input = Input::new(Json::parse(&params).unwrap(), Timestamp(0));
        let flow = Flow::new(Name::new("f").unwrap(), Vec::new());
        let mut task = Task::new(TaskId(id), Arc::new(flow), Arc::new(input));
        task.state.phase = phase;
        Arc::new(task)
    }

    const ENDED: Phase = Phase::Ended(Ending::Succeeded);

    #[test]
    fn a_task_that_goes_on_after_its_end_is_not_kept() {
        let announcing = Announcing::default();
        announcing.keep_if_ended(&task(1, ENDED, 0));
        assert!(announcing.ended_task(TaskId(1)).is_some());
        announcing.keep_if_ended(&task(1, Phase::Backward, 0));
        assert!(announcing.take_ended_task(TaskId(1)).is_none());
        assert_eq!(announcing.ended().bytes, 0);
    }

    #[test]
    fn there_is_room_for_so_many_bytes() {
        let announcing = Announcing::default();
        announcing.keep_if_ended(&task(1, ENDED, PAYLOAD_BYTES_MAX));
        assert!(announcing.ended_task(TaskId(1)).is_none(), "it is too large");
        for id in 2..1000 {
            announcing.keep_if_ended(&task(id, ENDED, PAYLOAD_BYTES_MAX / 2));
        }
        let ended = announcing.ended();
        let expected = ENDED_BYTES_MAX / (STEP_BYTES + PAYLOAD_BYTES_MAX / 2 + r#"{"text":""}"#.len());
        assert_eq!((ended.tasks.len(), ended.tasks.keys().last().map(|id| id.0)), (expected, Some(999)));
        assert_eq!(ended.bytes, ended.tasks.values().map(|task| size(task)).sum::<usize>());
    }
}
