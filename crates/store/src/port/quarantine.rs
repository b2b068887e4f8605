//! Tasks whose rows cannot be read, and damaged rows of no task. A damaged row harms its own task only: pages, queues and
//! timers leave the task out, and an alarm names it. A damaged row of no task has an alarm of its own.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use windlass_core::TaskId;

use super::StoreError;

/// Damaged tasks that a store remembers. Rows of more than this number of tasks are still left out wherever they are met, but
/// raise no alarms: the database as a whole is damaged then, and `windlass doctor` lists what is.
pub const QUARANTINE_MAX: usize = 10_000;

/// A task whose rows cannot be read, or a damaged row of no task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedTask {
    /// The task; [`TaskId::NONE`] where a row of no task is damaged, or where the damage does not even leave its id.
    pub id: TaskId,
    /// Of a row of no task: which one, such as `lock.disk-7`. It is a part of the id of its alarm. Empty otherwise.
    pub row: Box<str>,
    /// What is wrong, with the task's id in front. Of a row of no task also what the server does, and what to do about it.
    pub reason: Box<str>,
}

impl DamagedTask {
    /// A row of no task. `name` may hold any character; its alarm gets those that its id may have.
    #[must_use]
    pub fn row(table: &str, name: &str, reason: String) -> Self {
        let plain = |character: char| if is_plain(character) { character } else { '_' };
        let name: String = name.chars().take(ROW_CHARS_MAX).map(plain).collect();
        Self { id: TaskId::NONE, row: format!("{table}.{name}").into(), reason: reason.into() }
    }

    /// The task that `error` is about, where the error says that rows are damaged.
    ///
    /// # Errors
    /// With any other error: it does not concern this task alone.
    pub fn of(id: TaskId, error: StoreError) -> Result<Self, StoreError> {
        match error {
            StoreError::Damaged(reason) => Ok(Self { id, row: Box::default(), reason: reason.into() }),
            other => Err(other),
        }
    }
}

/// The longest name of a row in the id of its alarm, in characters: as long as a name may be.
const ROW_CHARS_MAX: usize = 128;

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-')
}

/// What a damaged task is remembered by; a row of no task by its name.
type Key = (TaskId, Box<str>);

fn of_task(id: TaskId) -> Key {
    (id, Box::default())
}

/// The damaged tasks that a store has met since it was opened.
#[derive(Debug, Default)]
pub struct Quarantine {
    tasks: Mutex<BTreeMap<Key, Found>>,
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
    pub fn add(&self, DamagedTask { id, row, reason }: DamagedTask) {
        let mut tasks = self.found();
        let key = (id, row);
        if tasks.len() >= QUARANTINE_MAX || tasks.contains_key(&key) {
            return;
        }
        if id == TaskId::NONE {
            tracing::error!(%reason, "a damaged row");
        } else {
            tracing::error!(task = %id, %reason, "a damaged row: its task is left out of all work");
        }
        tasks.insert(key, Found { reason, is_reported: false });
        self.count.store(tasks.len(), Ordering::Relaxed);
    }

    /// The task could be read: somebody has repaired its rows.
    pub fn remove(&self, id: TaskId) {
        if self.is_empty() {
            return;
        }
        let mut tasks = self.found();
        tasks.remove(&of_task(id));
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

    /// As [`Quarantine::readable`] of a row that is of no task; `row` says which one it is, and what is wrong with it.
    ///
    /// # Errors
    /// When reading failed for another reason than damage.
    pub fn readable_row<T>(
        &self,
        read: Result<T, StoreError>,
        row: impl FnOnce(&StoreError) -> DamagedTask,
    ) -> Result<Option<T>, StoreError> {
        match read {
            Err(error @ StoreError::Damaged(_)) => {
                self.add(row(&error));
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// The damaged tasks.
    pub fn tasks(&self) -> Vec<TaskId> {
        if self.is_empty() {
            return Vec::new();
        }
        let tasks = self.found();
        tasks.keys().filter(|(id, _)| *id != TaskId::NONE).map(|(id, _)| *id).collect()
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
        !self.is_empty() && self.found().contains_key(&of_task(id))
    }

    /// What is wrong with this task; nothing = it is not known to be damaged.
    pub fn error(&self, id: TaskId) -> Option<StoreError> {
        if self.is_empty() {
            return None;
        }
        Some(StoreError::Damaged(self.found().get(&of_task(id))?.reason.to_string()))
    }

    /// What is wrong with the first of the damaged rows of no task, or of a task that is not known; nothing = there is none.
    pub fn error_of_no_task(&self) -> Option<StoreError> {
        if self.is_empty() {
            return None;
        }
        let tasks = self.found();
        let (_, found) =
            tasks.range(of_task(TaskId::NONE)..).next().filter(|((id, _), _)| *id == TaskId::NONE)?;
        Some(StoreError::Damaged(found.reason.to_string()))
    }

    /// Whether this row of no task is damaged.
    pub fn has_row(&self, row: &str) -> bool {
        !self.is_empty() && self.found().contains_key(&(TaskId::NONE, row.into()))
    }

    /// The damaged rows of no task.
    pub fn rows(&self) -> Vec<DamagedTask> {
        let tasks = self.found();
        let rows = tasks.iter().filter(|((_, row), _)| !row.is_empty());
        rows.map(|(key, found)| damaged(key, found)).collect()
    }

    /// Damaged tasks, and rows of no task, of which no alarm was raised yet.
    pub fn unreported(&self) -> Vec<DamagedTask> {
        if self.is_empty() {
            return Vec::new();
        }
        let tasks = self.found();
        let unreported = tasks.iter().filter(|(_, found)| !found.is_reported);
        unreported.map(|(key, found)| damaged(key, found)).collect()
    }

    /// An alarm names this task, or this row.
    pub fn set_reported(&self, damaged: &DamagedTask) {
        if let Some(found) = self.found().get_mut(&(damaged.id, damaged.row.clone())) {
            found.is_reported = true;
        }
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<Key, Found>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn damaged((id, row): &Key, found: &Found) -> DamagedTask {
    DamagedTask { id: *id, row: row.clone(), reason: found.reason.clone() }
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
        let [found] = &quarantine.unreported()[..] else { panic!("one is damaged") };
        quarantine.set_reported(found);
        assert!(quarantine.unreported().is_empty() && quarantine.contains(TaskId(7)));
        assert_eq!(quarantine.readable(TaskId(7), Ok(())), Ok(Some(())));
        assert!(quarantine.is_empty() && quarantine.error(TaskId(7)).is_none());
    }

    #[test]
    fn every_row_of_no_task_is_reported_by_itself() {
        let quarantine = Quarantine::default();
        for name in ["a", "b", "a", "\u{e9}/?"] {
            quarantine.add(DamagedTask::row("lock", name, "bad".to_owned()));
        }
        let rows: Vec<Box<str>> = quarantine.unreported().into_iter().map(|found| found.row).collect();
        assert_eq!(rows.iter().map(|row| &**row).collect::<Vec<_>>(), ["lock.___", "lock.a", "lock.b"]);
        quarantine.set_reported(&quarantine.rows()[1]);
        assert_eq!(quarantine.unreported().len(), 2);
        // No task is damaged by that, and what is for no task is not held up.
        assert!(!quarantine.contains(TaskId::NONE) && quarantine.error(TaskId::NONE).is_none());
        assert!(quarantine.error_of_no_task().is_some());
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
