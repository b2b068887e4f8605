//! The engine as its users see it: submit, tell a task something, ask.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use thiserror::Error;
use windlass_core::{
    ActKey, Actor, Alarm, AlarmCommand, AlarmId, AlarmRejection, Command, Event, Flow, Input, Millis, Name,
    Rejection, Task, TaskId,
};

use crate::{
    Counts, Feed, Progress, Signal, Tokens,
    ids::TaskIds,
    inbox::{Inbox, Item, Replies, Reply},
    ports::{
        Change, Loaded, LogLine, Now, Page, QueueChange, QueuePause, QueueState, SessionState, Store,
        StoreError, StoredFlow, SubmitKey, TaskQuery,
    },
    sessions::LocalSessions,
};

/// Takes tasks in, hands attempts out, hears reports. Cheap to share; see the crate's page for the services
/// that make it move.
pub struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) inbox: Inbox,
    pub(crate) tokens: Tokens,
    pub(crate) sessions: LocalSessions,
    pub(crate) feed: Feed,
    pub(crate) timers: Signal,
    pub(crate) counts: Counts,
    pub(crate) progress: Mutex<HashMap<(TaskId, ActKey), (u32, Progress)>>,
    ids: TaskIds,
}

/// A task to take in.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Name of the flow.
    pub flow: Name,
    /// Version of the flow; nothing = the newest.
    pub version: Option<u32>,
    /// What is submitted.
    pub input: Input,
    /// Idempotency key.
    pub key: Option<SubmitKey>,
}

/// A task that was taken in, now or before under the same key.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The task.
    pub loaded: Loaded,
    /// It was there before.
    pub repeated: bool,
}

/// Why the engine did not do what it was asked. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EngineError {
    /// There is no such flow.
    #[error("there is no flow {0}")]
    UnknownFlow(String),
    /// There is no such task.
    #[error("there is no task {0}")]
    UnknownTask(TaskId),
    /// There is no such alarm.
    #[error("there is no alarm {0}")]
    UnknownAlarm(AlarmId),
    /// The same key was used for something else.
    #[error("this idempotency key was used for task {task} with another body")]
    KeyReused {
        /// The task it was used for.
        task: TaskId,
    },
    /// The rules refuse it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The alarm's rules refuse it.
    #[error(transparent)]
    AlarmRejected(#[from] AlarmRejection),
    /// Too much waits to be written: come back later.
    #[error("too many requests wait to be written")]
    Overloaded,
    /// Others changed it each time it was tried: try again.
    #[error("others changed it at the same time")]
    Conflict,
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What applying a flow did.
#[derive(Debug, Clone)]
pub struct FlowApplication {
    /// The flow as it is in the catalogue now.
    pub stored: StoredFlow,
    /// Whether anything changed.
    pub changed: bool,
}

impl Engine {
    /// An engine over `store`. `random` tells this server's ids apart from others'.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, random: u64) -> Self {
        let tokens = Tokens::new(&store.token_key());
        Self {
            store,
            inbox: Inbox::default(),
            tokens,
            sessions: LocalSessions::default(),
            feed: Feed::default(),
            timers: Signal::default(),
            counts: Counts::default(),
            progress: Mutex::default(),
            ids: TaskIds::new(random),
        }
    }

    /// What waits to be decided; the program waits on it and runs [`crate::services::Committer`].
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Set when something new is due; the program looks at [`Engine::next_wake`] then.
    pub fn timers(&self) -> &Signal {
        &self.timers
    }

    /// How much was committed.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Live events.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// In how long a service has something to do, where that is known.
    pub fn next_wake(&self, now: Now) -> Option<Millis> {
        let poll = self.sessions.next_expiry().map(|at| Millis(at.0.saturating_sub(now.mono.0)));
        [self.store.next_wake(now), poll].into_iter().flatten().min()
    }

    /// Takes a task in. When this returns it is on disk.
    ///
    /// # Errors
    /// When it is refused; nothing was taken in then.
    pub async fn submit(&self, submission: Submission, now: Now) -> Result<Accepted, EngineError> {
        let mut results = self.submit_all(vec![submission], now).await?;
        results.pop().unwrap_or(Err(EngineError::Conflict))
    }

    /// Takes many tasks in, each for itself.
    ///
    /// # Errors
    /// When none could be looked at.
    pub async fn submit_all(
        &self,
        submissions: Vec<Submission>,
        now: Now,
    ) -> Result<Vec<Result<Accepted, EngineError>>, EngineError> {
        if self.inbox.is_full() {
            return Err(EngineError::Overloaded);
        }
        let mut flows: HashMap<(Name, Option<u32>), Option<Arc<Flow>>> = HashMap::new();
        let mut items = Vec::with_capacity(submissions.len());
        let mut fingerprints = Vec::with_capacity(submissions.len());
        let mut results = Vec::with_capacity(submissions.len());
        for submission in submissions {
            let wanted = (submission.flow.clone(), submission.version);
            if !flows.contains_key(&wanted) {
                let found = self.store.flow(&wanted.0, wanted.1).await?;
                flows.insert(wanted.clone(), found.map(|stored| stored.flow));
            }
            match flows.get(&wanted).cloned().flatten() {
                None => results.push(Some(Err(EngineError::UnknownFlow(named(&wanted.0, wanted.1))))),
                Some(flow) => {
                    let task = Task::new(self.ids.next(now.wall), flow, Arc::new(submission.input));
                    fingerprints.push(submission.key.as_ref().map(|key| key.fingerprint));
                    items.push(Item::Submit { task: Arc::new(task), key: submission.key });
                    results.push(None);
                }
            }
        }
        let replies = if items.is_empty() { Vec::new() } else { self.inbox.decide(items).await? };
        let mut decided = replies.into_iter().zip(fingerprints);
        let mut answers = Vec::with_capacity(results.len());
        for result in results {
            answers.push(match result {
                Some(refused) => refused,
                None => match decided.next() {
                    Some((reply, fingerprint)) => self.accepted(reply, fingerprint).await,
                    None => Err(EngineError::Conflict),
                },
            });
        }
        Ok(answers)
    }

    async fn accepted(&self, reply: Reply, fingerprint: Option<[u8; 32]>) -> Result<Accepted, EngineError> {
        match reply {
            Reply::Task(loaded) => Ok(Accepted { loaded, repeated: false }),
            Reply::KeyTaken { task, fingerprint: before } if fingerprint == Some(before) => {
                Ok(Accepted { loaded: self.task(task).await?, repeated: true })
            }
            Reply::KeyTaken { task, .. } => Err(EngineError::KeyReused { task }),
            Reply::Rejected(rejection) => Err(rejection.into()),
            _ => Err(EngineError::Conflict),
        }
    }

    /// Tells a task something. When this returns, what came of it is on disk.
    ///
    /// # Errors
    /// When the task is not there or the rules refuse it.
    pub async fn tell(&self, id: TaskId, command: Command) -> Result<Loaded, EngineError> {
        let item = Item::Task { id, command, claim: None, logs: Vec::new() };
        match only(self.inbox.decide(vec![item]).await)? {
            Reply::Task(loaded) => Ok(loaded),
            Reply::Missing => Err(EngineError::UnknownTask(id)),
            Reply::Rejected(rejection) => Err(rejection.into()),
            _ => Err(EngineError::Conflict),
        }
    }

    /// Tells an alarm something.
    ///
    /// # Errors
    /// When the alarm is not there or its rules refuse it.
    pub async fn tell_alarm(&self, id: AlarmId, command: AlarmCommand) -> Result<Alarm, EngineError> {
        match only(self.inbox.decide(vec![Item::Alarm { id: id.clone(), command }]).await)? {
            Reply::Alarm(alarm) => Ok(alarm),
            Reply::AlarmRejected(AlarmRejection::Unknown) => Err(EngineError::UnknownAlarm(id)),
            Reply::AlarmRejected(rejection) => Err(rejection.into()),
            _ => Err(EngineError::Conflict),
        }
    }

    /// Puts a flow in the catalogue under the next version; one that is as it was gets none.
    ///
    /// # Errors
    /// When the store fails. The flow must have been checked.
    pub async fn apply_flow(&self, flow: Flow, now: Now) -> Result<FlowApplication, EngineError> {
        const TRIES_MAX: usize = 8;
        for _ in 0..TRIES_MAX {
            let newest = self.store.flow(&flow.name, None).await?;
            let version = newest.as_ref().map_or(0, |stored| stored.flow.version);
            if let Some(stored) = newest
                && *stored.flow == (Flow { version, ..flow.clone() })
            {
                self.store.commit(Vec::new()).await?;
                return Ok(FlowApplication { stored, changed: false });
            }
            let flow = Arc::new(Flow { version: version + 1, ..flow.clone() });
            let stored = StoredFlow { flow, created_at: now.wall };
            match only(self.inbox.decide(vec![Item::Change(Change::Flow(stored.clone()))]).await)? {
                Reply::Done => return Ok(FlowApplication { stored, changed: true }),
                _ => continue,
            }
        }
        Err(EngineError::Conflict)
    }

    /// Pauses a queue, or lets it go on.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn set_queue_paused(
        &self,
        name: Name,
        paused: bool,
        by: Option<Actor>,
        now: Now,
    ) -> Result<(), EngineError> {
        let paused = paused.then_some(QueuePause { at: now.wall, by });
        let change = Change::Queue(QueueChange { name, paused });
        match only(self.inbox.decide(vec![Item::Change(change)]).await)? {
            Reply::Done => Ok(()),
            _ => Err(EngineError::Conflict),
        }
    }

    /// The task with this id, as it is on disk.
    ///
    /// # Errors
    /// When it is not there or the store fails.
    pub async fn task(&self, id: TaskId) -> Result<Loaded, EngineError> {
        let loaded = self.store.load(&[id]).await?.pop().flatten().ok_or(EngineError::UnknownTask(id))?;
        // What was read may still be on its way to the disk: an empty commit ends after everything before it.
        self.store.commit(Vec::new()).await?;
        Ok(loaded)
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
    /// When the task is not there or the store fails.
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

    /// Log lines of a task's attempts, after the first `skip`.
    ///
    /// # Errors
    /// When the task is not there or the store fails.
    pub async fn logs(&self, task: TaskId, skip: u64, limit: usize) -> Result<Vec<LogLine>, EngineError> {
        let lines = self.store.logs(task, skip, limit).await?;
        if lines.is_empty() {
            self.task(task).await?;
        }
        Ok(lines)
    }

    /// A flow of the catalogue: that version, or the newest.
    ///
    /// # Errors
    /// When it is not there or the store fails.
    pub async fn flow(&self, name: &str, version: Option<u32>) -> Result<StoredFlow, EngineError> {
        let found = self.store.flow(name, version).await?;
        found.ok_or_else(|| EngineError::UnknownFlow(named(name, version)))
    }

    /// All flows, in their newest versions, by name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn flows(&self) -> Result<Vec<StoredFlow>, EngineError> {
        Ok(self.store.flows().await?)
    }

    /// All queues, by name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn queues(&self) -> Result<Vec<QueueState>, EngineError> {
        Ok(self.store.queues().await?)
    }

    /// All connected workers.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn workers(&self, now: Now) -> Result<Vec<SessionState>, EngineError> {
        Ok(self.store.sessions(now).await?)
    }

    /// At most `limit` alarms, those raised last first; resolved ones only with `all`.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, EngineError> {
        Ok(self.store.alarms(all, limit).await?)
    }

    /// Whether the store writes.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check(&self) -> Result<(), EngineError> {
        self.store.commit(Vec::new()).await?;
        Ok(())
    }

    /// How far the running attempt of an act says it is.
    pub fn progress(&self, task: TaskId, key: ActKey, attempt: u32) -> Option<Progress> {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.get(&(task, key)).filter(|(of, _)| *of == attempt).map(|(_, progress)| progress.clone())
    }
}

/// The only reply of an operation of one item.
pub(crate) fn only(replies: Replies) -> Result<Reply, EngineError> {
    Ok(replies?.pop().unwrap_or(Reply::Conflict))
}

fn named(name: &str, version: Option<u32>) -> String {
    version.map_or_else(|| name.to_owned(), |version| format!("{name}@{version}"))
}
