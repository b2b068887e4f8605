//! Messages between a task and its child tasks, as a batch decides them.

use std::sync::Arc;

use windlass_core::{
    ActKey, ChildCommand, ChildEnd, ChildStart, Command, DATA_CODE, Failure, Flow, Input, Parent, Task,
    TaskId,
};
use windlass_store::MessageId;

use crate::{
    EngineError,
    deciding::{
        batch::{Batch, Place},
        inbox::NewTask,
        task_work::{Refusal, TaskWork},
    },
};

/// The code of a step whose child task was not started because another task has its unique key.
const DUPLICATE_CODE: i32 = 1;

impl Batch {
    /// Delivers a message from a parent task to its child task. Returns whether it found something to do.
    pub(super) fn tell_child(
        &mut self,
        child: TaskId,
        parent: Parent,
        command: &ChildCommand,
        message: &MessageId,
        place: Place,
    ) -> bool {
        match command {
            ChildCommand::Start(start) => self.start_child(child, parent, start, message, place),
            ChildCommand::Cancel => self.tell_task(child, &Command::CancelForParent, message, place),
            ChildCommand::Undo => self.undo_child(child, parent, message, place),
        }
    }

    /// Accepts a child task in the newest version of its flow. If the task exists already, the same message has started
    /// it.
    fn start_child(
        &mut self,
        child: TaskId,
        parent: Parent,
        start: &ChildStart,
        message: &MessageId,
        place: Place,
    ) -> bool {
        if self.task(child).is_some() {
            return false;
        }
        let accepted = self.child_input(parent, start, place).and_then(|(flow, input)| {
            let new = NewTask::new(Task::new(child, flow.clone(), Arc::new(input)));
            self.accept(&new, Some(message), place).map_err(|refusal| {
                let error = match refusal {
                    Refusal::NoUniqueKey(message) => {
                        EngineError::NoUniqueKey { flow: flow.name.clone(), message }
                    }
                    Refusal::NoQueueName(message) => {
                        EngineError::NoQueueName { flow: flow.name.clone(), message }
                    }
                    Refusal::Rejected(rejection) => rejection.into(),
                };
                Failure::new(&error.to_string(), DATA_CODE, false)
            })
        });
        match accepted {
            Ok(()) => true,
            Err(failure) => {
                let end = ChildEnd::Undone(failure);
                self.tell_parent(parent.task, parent.key, child, end, message, place)
            }
        }
    }

    /// The flow and the input of a child, or the failure that prevents its start.
    fn child_input(
        &self,
        parent: Parent,
        start: &ChildStart,
        place: Place,
    ) -> Result<(Arc<Flow>, Input), Failure> {
        let Some(flow) = self.flows.get(&start.flow).cloned() else {
            let text = format!("there is no flow {}: apply it, then run the step again", start.flow);
            return Err(Failure::new(&text, DATA_CODE, false));
        };
        let input = start.input(parent, flow.deadline, self.now.wall);
        match self.duplicates.get(&place) {
            None => Ok((flow, input)),
            // A retry of the step may succeed, since that task may have ended by then.
            Some(first) => {
                let text = format!(
                    "the flow {} is `unique` and task {first} has the same unique key: no other one was started",
                    flow.name
                );
                Err(Failure::new(&text, DUPLICATE_CODE, true))
            }
        }
    }

    /// Rolls a child back. If there is nothing to roll back, its parent receives the end at once.
    fn undo_child(&mut self, child: TaskId, parent: Parent, message: &MessageId, place: Place) -> bool {
        let end = match self.task(child).map(|task| ChildEnd::of(task)) {
            None => ChildEnd::Gone,
            Some(Some(ChildEnd::Undone(failure))) => ChildEnd::Undone(failure),
            Some(_) => return self.tell_task(child, &Command::UndoForParent, message, place),
        };
        self.tell_parent(parent.task, parent.key, child, end, message, place)
    }

    /// Delivers the end of a child to the task that waits for it.
    pub(super) fn tell_parent(
        &mut self,
        parent: TaskId,
        key: ActKey,
        child: TaskId,
        end: ChildEnd,
        message: &MessageId,
        place: Place,
    ) -> bool {
        self.tell_task(parent, &Command::ChildEnded { key, child, end }, message, place)
    }

    pub(super) fn task(&self, id: TaskId) -> Option<&Arc<Task>> {
        self.tasks.get(&id).and_then(TaskWork::task)
    }
}
