//! Live events for watchers. The history on disk is authoritative; a watcher that falls behind is dropped, and returns
//! with the number of the last event it saw.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use futures_channel::mpsc;
use futures_util::{Stream, StreamExt as _};
use windlass_core::{ActKey, Event, TaskId, Timestamp};

use windlass_store::LogLine;

/// A notice to watchers.
#[derive(Debug, Clone)]
pub enum Notice {
    /// An event that is on disk, with its number.
    Event {
        /// Its number in the task.
        n: u64,
        /// The event.
        event: Event,
    },
    /// An attempt was just handed out. Its event follows with its end.
    Started {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// When it was handed out.
        at: Timestamp,
        /// Name of the worker.
        worker: Box<str>,
    },
    /// A running attempt reported progress.
    Progressed {
        /// The execution.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
        /// When it was reported.
        at: Timestamp,
        /// The reported progress.
        progress: Progress,
    },
    /// Attempts wrote log lines, which are on disk.
    Logged {
        /// The lines of one report.
        lines: Arc<[LogLine]>,
    },
}

/// The progress that a running attempt reports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// From 0 to 1.
    pub value: Option<f64>,
    /// A line for humans.
    pub message: Option<Box<str>>,
}

/// The maximum number of unread notices before a watcher is dropped.
const BEHIND_MAX: usize = 1024;

/// The watchers, by task.
#[derive(Debug, Default)]
pub struct Feed {
    watchers: Arc<Watchers>,
}

/// A watched task: a stream of notices from now on. It ends when its reader falls behind. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    task: TaskId,
    notices: mpsc::Receiver<Notice>,
    watchers: Arc<Watchers>,
}

#[derive(Debug, Default)]
struct Watchers {
    by_task: Mutex<HashMap<TaskId, Vec<mpsc::Sender<Notice>>>>,
    /// The number of watched tasks, so that a commit need not take the lock.
    tasks: AtomicUsize,
}

impl Feed {
    /// Watches a task from now on.
    pub fn watch(&self, task: TaskId) -> Watch {
        let (sender, notices) = mpsc::channel(BEHIND_MAX);
        self.watchers.change(|by_task| by_task.entry(task).or_default().push(sender));
        Watch { task, notices, watchers: self.watchers.clone() }
    }

    /// Whether there are no watchers, so that no notices are needed.
    pub fn is_idle(&self) -> bool {
        self.watchers.tasks.load(Ordering::Relaxed) == 0
    }

    /// The watched tasks.
    pub(crate) fn watched(&self) -> Vec<TaskId> {
        if self.is_idle() {
            return Vec::new();
        }
        self.watchers.change(|by_task| by_task.keys().copied().collect())
    }

    /// Ends all watches of a task; its watchers return with the number of the last event they saw.
    pub(crate) fn dismiss(&self, task: TaskId) {
        if self.is_idle() {
            return;
        }
        self.watchers.change(|by_task| by_task.remove(&task));
    }

    pub(crate) fn tell(&self, task: TaskId, notice: &Notice) {
        if self.is_idle() {
            return;
        }
        // A watcher that fell behind is dropped.
        self.watchers.keep(task, |sender| sender.try_send(notice.clone()).is_ok());
    }
}

impl Watchers {
    fn change<T>(&self, change: impl FnOnce(&mut HashMap<TaskId, Vec<mpsc::Sender<Notice>>>) -> T) -> T {
        let mut by_task = self.by_task.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut by_task);
        self.tasks.store(by_task.len(), Ordering::Relaxed);
        changed
    }

    /// Keeps only those watchers of a task for which `keep` returns true.
    fn keep(&self, task: TaskId, keep: impl FnMut(&mut mpsc::Sender<Notice>) -> bool) {
        self.change(|by_task| {
            if let Some(senders) = by_task.get_mut(&task) {
                senders.retain_mut(keep);
                if senders.is_empty() {
                    by_task.remove(&task);
                }
            }
        });
    }
}

impl Stream for Watch {
    type Item = Notice;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Notice>> {
        self.notices.poll_next_unpin(context)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A task that has ended sends no more notices, so a later notice would not remove this watch.
        self.notices.close();
        self.watchers.keep(self.task, |sender| !sender.is_closed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watching_ends_with_its_watch_and_for_nobody_else() {
        let (feed, task) = (Feed::default(), TaskId(1));
        let (first, mut second) = (feed.watch(task), feed.watch(task));
        drop(first);
        assert!(!feed.is_idle());
        let at = Timestamp(0);
        let key = ActKey::forward(0);
        feed.tell(task, &Notice::Started { key, attempt: 1, at, worker: "w".into() });
        assert!(matches!(
            futures_executor::block_on(second.next()),
            Some(Notice::Started { attempt: 1, .. })
        ));
        drop(second);
        assert!(feed.is_idle());
    }

    #[test]
    fn one_that_falls_behind_comes_to_an_end() {
        let (feed, task, key) = (Feed::default(), TaskId(1), ActKey::forward(0));
        let slow = feed.watch(task);
        let told = BEHIND_MAX + 10;
        for attempt in 0..u32::try_from(told).unwrap() {
            feed.tell(task, &Notice::Started { key, attempt, at: Timestamp(0), worker: "w".into() });
        }
        assert!(feed.is_idle(), "nothing more is kept for it");
        let heard = futures_executor::block_on(slow.collect::<Vec<_>>());
        assert!((BEHIND_MAX..told).contains(&heard.len()), "{}", heard.len());
    }
}
