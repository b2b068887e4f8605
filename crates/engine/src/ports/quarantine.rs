//! Tasks whose rows cannot be read. A damaged row harms its own task only: pages, queues and timers leave the task out,
//! and an alarm names it.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use windlass_core::TaskId;

use super::StoreError;

/// Damaged tasks that a store remembers. Rows of more than so many tasks are still left out wherever they are met, but
/// raise no alarms: the database as a whole is damaged then, and `windlass doctor` lists what is.
pub const QUARANTINE_MAX: usize = 10_000;

/// A task whose rows cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedTask {
    /// The task; [`TaskId::NONE`] where rows of no task are damaged, or where the damage does not even leave its id.
    pub id: TaskId,
    /// What is wrong, with the task's id in front.
    pub reason: Box<str>,
}

impl DamagedTask {
    /// The task that `error` is about, where the error says that rows are damaged.
    ///
    /// # Errors
    /// With any other error: it does not concern this task alone.
    pub fn of(id: TaskId, error: StoreError) -> Result<Self, StoreError> {
        match error {
            StoreError::Damaged(reason) => Ok(Self { id, reason: reason.into() }),
            other => Err(other),
        }
    }
}

/// The damaged tasks that a store has met since it was opened.
#[derive(Debug, Default)]
pub struct Quarantine {
    tasks: Mutex<BTreeMap<TaskId, Found>>,
    /// How many there are. Nearly always none, which is known without a lock.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Found {
    reason: Box<str>,
    is_reported: bool,
}

impl Quarantine {
    /// Remembers a damaged task.
    pub fn add(&self, DamagedTask { id, reason }: DamagedTask) {
        let mut tasks = self.tasks();
        if tasks.len() >= QUARANTINE_MAX || tasks.contains_key(&id) {
            return;
        }
        tracing::error!(task = %id, %reason, "a damaged row: its task is left out of all work");
        tasks.insert(id, Found { reason, is_reported: false });
        self.count.store(tasks.len(), Ordering::Relaxed);
    }

    /// The task could be read: somebody has repaired its rows.
    pub fn remove(&self, id: TaskId) {
        if self.is_empty() {
            return;
        }
        let mut tasks = self.tasks();
        tasks.remove(&id);
        self.count.store(tasks.len(), Ordering::Relaxed);
    }

    /// What was read, where it can be understood; where not, its task is remembered.
    ///
    /// # Errors
    /// When reading failed for another reason than damage.
    pub fn readable<T>(&self, id: TaskId, read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match read {
            Ok(read) => {
                self.remove(id);
                Ok(Some(read))
            }
            Err(error) => {
                self.add(DamagedTask::of(id, error)?);
                Ok(None)
            }
        }
    }

    /// How many damaged tasks are remembered.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether no damaged task is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this task is damaged.
    pub fn contains(&self, id: TaskId) -> bool {
        !self.is_empty() && self.tasks().contains_key(&id)
    }

    /// What is wrong with this task; nothing = it is not known to be damaged.
    pub fn error(&self, id: TaskId) -> Option<StoreError> {
        if self.is_empty() {
            return None;
        }
        Some(StoreError::Damaged(self.tasks().get(&id)?.reason.to_string()))
    }

    /// Damaged tasks of which no alarm was raised yet.
    pub fn unreported(&self) -> Vec<DamagedTask> {
        if self.is_empty() {
            return Vec::new();
        }
        let tasks = self.tasks();
        let unreported = tasks.iter().filter(|(_, found)| !found.is_reported);
        unreported.map(|(id, found)| DamagedTask { id: *id, reason: found.reason.clone() }).collect()
    }

    /// An alarm names this task.
    pub fn set_reported(&self, id: TaskId) {
        if let Some(found) = self.tasks().get_mut(&id) {
            found.is_reported = true;
        }
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<TaskId, Found>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged(id: u128) -> Result<(), StoreError> {
        Err(StoreError::Damaged(format!("task {}: bad", TaskId(id))))
    }

    #[test]
    fn a_damaged_task_is_reported_once_and_forgotten_when_it_can_be_read() {
        let quarantine = Quarantine::default();
        assert_eq!(quarantine.readable(TaskId(7), damaged(7)), Ok(None));
        assert_eq!(quarantine.readable(TaskId(7), damaged(7)), Ok(None));
        assert_eq!(quarantine.unreported().len(), 1);
        quarantine.set_reported(TaskId(7));
        assert!(quarantine.unreported().is_empty() && quarantine.contains(TaskId(7)));
        assert_eq!(quarantine.readable(TaskId(7), Ok(())), Ok(Some(())));
        assert!(quarantine.is_empty() && quarantine.error(TaskId(7)).is_none());
    }

    #[test]
    fn only_damage_is_a_matter_of_the_task() {
        let quarantine = Quarantine::default();
        let gone = StoreError::Unavailable("gone".to_owned());
        assert_eq!(quarantine.readable::<()>(TaskId(7), Err(gone.clone())), Err(gone));
        assert!(quarantine.is_empty());
    }

    #[test]
    fn no_more_are_remembered_than_the_limit() {
        let quarantine = Quarantine::default();
        for id in 0..=QUARANTINE_MAX as u128 {
            assert_eq!(quarantine.readable(TaskId(id), damaged(id)), Ok(None));
        }
        assert_eq!(quarantine.len(), QUARANTINE_MAX);
    }
}
