//! Live events, for those who watch. The history on disk is the truth; a watcher that falls behind is dropped
//! and comes back with the number of the last event it saw.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_channel::mpsc;
use windlass_core::{ActKey, Event, TaskId, Timestamp};

/// What watchers hear.
#[derive(Debug, Clone)]
pub enum Notice {
    /// An event that is on disk, with its number.
    Event {
        /// Its number in the task.
        n: u64,
        /// What happened.
        event: Event,
    },
    /// An attempt was handed out just now. Its event comes with its end.
    Started {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// When.
        at: Timestamp,
        /// Name of the worker.
        worker: Box<str>,
    },
    /// A running attempt says how far it is.
    Progressed {
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// When.
        at: Timestamp,
        /// How far.
        progress: Progress,
    },
}

/// How far a running attempt says it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// From 0 to 1.
    pub value: Option<f64>,
    /// A line for people.
    pub message: Option<Box<str>>,
}

/// Notices one watcher may be behind before it is dropped.
const BEHIND_MAX: usize = 1024;

/// Those who watch, by task.
#[derive(Debug, Default)]
pub struct Feed {
    watchers: Mutex<HashMap<TaskId, Vec<mpsc::Sender<Notice>>>>,
    count: AtomicUsize,
}

impl Feed {
    /// Watches a task from now on.
    pub fn watch(&self, task: TaskId) -> mpsc::Receiver<Notice> {
        let (sender, receiver) = mpsc::channel(BEHIND_MAX);
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.entry(task).or_default().push(sender);
        self.count.store(watchers.len(), Ordering::Relaxed);
        receiver
    }

    /// Whether nobody watches anything, so that notices need not be made.
    pub(crate) fn is_idle(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Ends the watching of a task; watchers come back with the number of the last event they saw.
    pub(crate) fn dismiss(&self, task: TaskId) {
        if self.is_idle() {
            return;
        }
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.remove(&task);
        self.count.store(watchers.len(), Ordering::Relaxed);
    }

    pub(crate) fn tell(&self, task: TaskId, notice: &Notice) {
        if self.is_idle() {
            return;
        }
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(senders) = watchers.get_mut(&task) {
            // Both a watcher that left and one that fell behind are dropped.
            senders.retain_mut(|sender| sender.try_send(notice.clone()).is_ok());
            if senders.is_empty() {
                watchers.remove(&task);
            }
        }
        self.count.store(watchers.len(), Ordering::Relaxed);
    }
}
