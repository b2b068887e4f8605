//! The progress reports of running attempts. They are kept in memory only.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_core::{ActKey, Task, TaskId};
use windlass_store::AttemptId;

use crate::Progress;

/// The last progress report of each running attempt.
#[derive(Debug, Default)]
pub(crate) struct ProgressBoard {
    said: Mutex<BTreeMap<(TaskId, ActKey), (u32, Progress)>>,
}

impl ProgressBoard {
    fn said(&self) -> MutexGuard<'_, BTreeMap<(TaskId, ActKey), (u32, Progress)>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the progress of an attempt, unless a later attempt has reported.
    pub(crate) fn note(&self, id: &AttemptId, progress: Progress) {
        let mut said = self.said();
        let last = said.entry((id.task, id.key)).or_default();
        if last.0 <= id.attempt {
            *last = (id.attempt, progress);
        }
    }

    /// Forgets the progress of an attempt, unless a later attempt has reported.
    pub(crate) fn forget(&self, id: &AttemptId) {
        let mut said = self.said();
        if said.get(&(id.task, id.key)).is_some_and(|(attempt, _)| *attempt <= id.attempt) {
            said.remove(&(id.task, id.key));
        }
    }

    /// The last progress report of an attempt.
    pub(crate) fn get(&self, task: TaskId, key: ActKey, attempt: u32) -> Option<Progress> {
        self.said().get(&(task, key)).filter(|(of, _)| *of == attempt).map(|(_, progress)| progress.clone())
    }

    /// Forgets the progress of ended attempts of a task.
    pub(crate) fn forget_ended(&self, task: &Task) {
        let mut said = self.said();
        let of_task = said.range((task.id, ActKey::forward(0))..).take_while(|((id, _), _)| *id == task.id);
        let ended: Vec<(TaskId, ActKey)> = of_task
            .filter(|((_, key), (attempt, _))| !task.has_ready(*key, *attempt))
            .map(|(place, _)| *place)
            .collect();
        for place in ended {
            said.remove(&place);
        }
    }
}
