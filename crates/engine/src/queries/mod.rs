//! Queries. They return only state that is on disk.

mod counts;
mod device_messages;
mod feed;
pub(crate) mod journal;
pub(crate) mod last_heard;
pub(crate) mod observer;
pub(crate) mod progress;
pub(crate) mod queue_rates;
pub(crate) mod trace;
mod why;

use futures_util::StreamExt as _;
use windlass_core::{
    ActKey, Alarm, AlarmId, AlarmState, Event, EventKind, Lock, LockName, TaskId,
    planted::{Bug, is_planted},
};
use windlass_store::{
    Change, Loaded, LogLine, Now, Page, QueueState, ServerState, SessionId, SessionState, Standing,
    StoreError, StoredFlow, TaskQuery,
};

use crate::{Engine, EngineError};

pub use counts::Counts;
pub use device_messages::*;
pub use feed::*;
pub use last_heard::LastHeard;
pub use observer::{AttemptEnd, AttemptOutcome, Observer, TaskEnd};
pub use trace::{Sampling, SpanContext, TaskTrace};
pub use why::*;

impl Engine {
    /// A public name of the store, which only its servers can make.
    #[must_use]
    pub fn store_name(&self) -> String {
        self.tokens.store_name()
    }

    /// Whether this server has received calls of the session.
    #[must_use]
    pub fn knows_session(&self, session: SessionId) -> bool {
        self.sessions.lock().find(session).is_some()
    }

    /// The task with this id, as it is on disk.
    ///
    /// # Errors
    /// When it does not exist or the store fails.
    pub async fn task(&self, id: TaskId) -> Result<Loaded, EngineError> {
        // Read twice before it counts as unknown: a read from before its rows were damaged may have taken it out of the
        // quarantine since the first time.
        for _ in 0..2 {
            let mut loaded = self.on_disk(|| self.store.load(std::slice::from_ref(&id))).await?;
            if let Some(loaded) = loaded.pop().flatten() {
                return Ok(loaded);
            }
            if let Some(damaged) = self.store.quarantine().error(id) {
                return Err(damaged.into());
            }
        }
        Err(EngineError::UnknownTask(id))
    }

    /// The task with this id, once it has ended.
    ///
    /// # Errors
    /// When it does not exist or the store fails.
    pub async fn ended(&self, id: TaskId) -> Result<Loaded, EngineError> {
        // A watcher that falls behind is dropped from the feed, and watches again.
        loop {
            let mut notices = self.feed.watch(id);
            let loaded = self.task(id).await?;
            if loaded.task.is_ended() {
                return Ok(loaded);
            }
            while let Some(notice) = notices.next().await {
                if matches!(notice, Notice::Event { event, .. } if matches!(event.kind, EventKind::TaskEnded(_)))
                {
                    break;
                }
            }
        }
    }

    /// The state of a task that an application enqueued by SQL, if the task itself does not exist (yet).
    ///
    /// # Errors
    /// When the store fails.
    pub async fn standing(&self, id: TaskId) -> Result<Option<Standing>, EngineError> {
        match self.store.enqueued() {
            Some(enqueued) => Ok(enqueued.standing(id).await?),
            None => Ok(None),
        }
    }

    /// The tasks with these ids as they are on disk, in their order. Parameters and results may be missing.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn tasks_by_id(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, EngineError> {
        self.on_disk(|| self.store.load_heads(ids)).await
    }

    /// The tasks with these ids as they are on disk, in their order, with their results. Nothing stands in place of a
    /// task that does not exist or whose rows are damaged.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn whole_tasks(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, EngineError> {
        self.on_disk(|| self.store.load(ids)).await
    }

    /// Tasks, newest first, without results.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, EngineError> {
        Ok(self.store.tasks(query).await?)
    }

    /// The history of a task after event number `after`.
    ///
    /// # Errors
    /// When the task does not exist or the store fails.
    pub async fn events(
        &self,
        task: TaskId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, Event)>, EngineError> {
        let events = self.store.events(task, after, limit).await?;
        if events.is_empty() {
            self.task(task).await?;
        }
        Ok(events)
    }

    /// Log lines of a task's attempts with numbers above `after`, each with its number.
    ///
    /// # Errors
    /// When the task does not exist or the store fails.
    pub async fn logs(
        &self,
        task: TaskId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, LogLine)>, EngineError> {
        let lines = self.store.logs(task, after, limit).await?;
        if lines.is_empty() {
            self.task(task).await?;
        }
        Ok(lines)
    }

    /// A flow of the catalogue: that version, or the newest.
    ///
    /// # Errors
    /// When it does not exist or the store fails.
    pub async fn flow(&self, name: &str, version: Option<u32>) -> Result<StoredFlow, EngineError> {
        let found = self.on_disk(|| self.store.flow(name, version)).await?;
        found.ok_or_else(|| EngineError::UnknownFlow(named(name, version)))
    }

    /// All flows, in their newest versions, by name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn flows(&self) -> Result<Vec<StoredFlow>, EngineError> {
        self.on_disk(|| self.store.flows()).await
    }

    /// All queues, by name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn queues(&self) -> Result<Vec<QueueState>, EngineError> {
        self.on_disk(|| self.store.queues()).await
    }

    /// All connected workers.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn workers(&self, now: Now) -> Result<Vec<SessionState>, EngineError> {
        Ok(self.store.sessions(now).await?)
    }

    /// Whether the worker of this session claims nothing more and exits once its attempts are done. Known only to the
    /// server that it calls.
    #[must_use]
    pub fn is_draining(&self, session: SessionId) -> bool {
        self.sessions.lock().is_draining(session)
    }

    /// The servers on the store, including this one, by start time.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn servers(&self) -> Result<Vec<ServerState>, EngineError> {
        Ok(self.store.servers().await?)
    }

    /// At most `limit` alarms, the most recently raised first; resolved ones only with `all`.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, EngineError> {
        Ok(self.store.alarms(all, limit).await?)
    }

    /// Whether this alarm is raised and not resolved.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn alarm_stands(&self, id: &AlarmId) -> Result<bool, EngineError> {
        Ok(self.standing_alarm(id).await?.is_some())
    }

    /// This alarm, if it is raised and not resolved.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn standing_alarm(&self, id: &AlarmId) -> Result<Option<Alarm>, EngineError> {
        let alarm = self.store.alarm(id).await?.map(|stored| stored.alarm);
        Ok(alarm.filter(|alarm| alarm.state != AlarmState::Resolved))
    }

    /// A lock, with its holder and waiters.
    ///
    /// # Errors
    /// When it has neither a holder nor waiters, or the store fails.
    pub async fn lock(&self, name: &LockName) -> Result<Lock, EngineError> {
        let lock = self.on_disk(|| self.store.lock(name)).await?;
        lock.filter(is_in_use).ok_or_else(|| EngineError::UnknownLock(name.clone()))
    }

    /// At most `limit` held locks with names above `after`, by name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn locks(&self, after: Option<&LockName>, limit: usize) -> Result<Vec<Lock>, EngineError> {
        let locks = self.on_disk(|| self.store.locks(after, limit)).await?;
        Ok(locks.into_iter().filter(is_in_use).collect())
    }

    /// Whether the store can write: commits a probe that changes nothing.
    ///
    /// # Errors
    /// When it cannot.
    pub async fn check(&self) -> Result<(), EngineError> {
        self.store.commit(vec![Change::Probe]).await?;
        Ok(())
    }

    /// Returns the result of `read` once it is on disk. The store returns the state that new commits build on, which
    /// may not be on disk yet: an empty commit completes after everything before it. If that state was lost instead,
    /// `read` runs again.
    pub(crate) async fn on_disk<T, F>(&self, read: impl Fn() -> F) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        const TRIES_MAX: usize = 8;
        for _ in 0..TRIES_MAX {
            let generation = self.store.generation();
            let read = read().await?;
            if !is_planted(Bug::ShownEarly) {
                self.store.flush().await?;
            }
            if self.store.generation() == generation {
                return Ok(read);
            }
        }
        Err(StoreError::Unavailable("one write after the other fails".to_owned()).into())
    }

    /// The progress that the running attempt of an execution reported.
    pub fn progress(&self, task: TaskId, key: ActKey, attempt: u32) -> Option<Progress> {
        self.progress.get(task, key, attempt)
    }
}

/// A free lock may stay in the store until the janitor deletes it.
fn is_in_use(lock: &Lock) -> bool {
    lock.holder.is_some() || lock.waiting() > 0
}

pub(crate) fn named(name: &str, version: Option<u32>) -> String {
    version.map_or_else(|| name.to_owned(), |version| format!("{name}@{version}"))
}
