//! Takes in what applications enqueued in transactions of their own.
//!
//! ```text
//! application: BEGIN · … · windlass_start(…) · COMMIT
//!                                │ a row
//! enqueue importer:  waiting ─▶ read ─▶ Engine::submit_as ─▶ settle: the row goes
//!                      └── refused ─▶ alarm ─▶ settle: the row stays, with the reason
//! ```
//!
//! One server does this at a time, so that tasks are taken in in their order. Where two do so for a moment, and where one
//! dies before it has noted what it did, each task is still taken in once: it has its id and its key from the row.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use windlass_core::{AlarmCommand, AlarmId, AlarmKind, TaskId};
use windlass_store::{Enqueued, EnqueuedTasks, Now, Service, Settlement};

use crate::{Engine, EngineError, RoundsOf, Submission};

/// Tasks taken in together.
const ROUND_MAX: usize = 500;

/// The longest reason that is kept with what was refused, in characters.
const REASON_CHARS_MAX: usize = 1000;

/// Reads what was enqueued as the same is read that comes in otherwise.
#[async_trait]
pub trait ReadEnqueued: Send + Sync {
    /// What it asks for, with a key that no other task has.
    async fn read(&self, enqueued: &Enqueued, now: Now) -> Result<Submission, Unreadable>;

    /// In the words in which the same is refused otherwise.
    async fn describe(&self, error: EngineError) -> String;

    /// One was taken in; `repeated`: it was there before.
    fn accepted(&self, repeated: bool);
}

/// Why something that was enqueued could not be read.
#[derive(Debug)]
pub enum Unreadable {
    /// It never can be, as it is.
    Refused(String),
    /// Not now.
    Later(String),
}

/// Takes in what applications enqueued.
pub struct EnqueueImporter {
    engine: Arc<Engine>,
    reader: Arc<dyn ReadEnqueued>,
    /// The next round reads what was enqueued after this place: behind what was put off in the last one, so that it is in
    /// nobody's way; otherwise from the head.
    after: AtomicU64,
}

impl EnqueueImporter {
    /// An enqueue importer of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>, reader: Arc<dyn ReadEnqueued>) -> Self {
        Self { engine, reader, after: AtomicU64::new(0) }
    }

    /// Takes a bounded number of tasks in. Tells how many are settled; more may wait when it is not 0.
    ///
    /// # Errors
    /// When the store fails, or too much waits already; what was enqueued stays.
    pub async fn run_once(&self, now: Now) -> Result<usize, EngineError> {
        self.engine.rounds.note(RoundsOf::EnqueueImporter, self.round(now).await)
    }

    async fn round(&self, now: Now) -> Result<usize, EngineError> {
        let Some(store) = self.engine.store.enqueued() else { return Ok(0) };
        if !self.engine.leads(Service::Enqueuing, now) {
            return Ok(0);
        }
        let (mut settled, mut submissions, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
        // When this fails, the next round is from the head.
        let waiting = store.waiting(ROUND_MAX, self.after.swap(0, Ordering::Relaxed)).await?;
        let last = waiting.last().map_or(0, |enqueued| enqueued.place);
        let mut after = 0;
        let mut later = |id: TaskId, why: &str| {
            after = last;
            tracing::debug!(task = %id, why, "a task that was enqueued is taken in later");
        };
        for enqueued in waiting {
            match self.reader.read(&enqueued, now).await {
                Ok(submission) => submissions.push((enqueued, submission)),
                Err(Unreadable::Refused(why)) => refusals.push((enqueued.id, why)),
                Err(Unreadable::Later(why)) => later(enqueued.id, &why),
            }
        }
        let submitted = submissions.iter().map(|(enqueued, submission)| (enqueued.id, submission.clone()));
        let results = self.engine.submit_as(submitted.collect()).await?;
        for ((enqueued, _), result) in submissions.into_iter().zip(results) {
            match result {
                Ok(accepted) => {
                    self.reader.accepted(accepted.existing.is_some());
                    settled.push((enqueued.id, self.accepted(&enqueued, accepted.loaded.task.id).await?));
                }
                // It was taken in, and has ended and been deleted since: what is said in a database of it has happened.
                Err(EngineError::KeyWithoutTask { task }) => {
                    self.reader.accepted(true);
                    settled.push((enqueued.id, self.accepted(&enqueued, task).await?));
                }
                Err(error @ (EngineError::Overloaded | EngineError::Conflict | EngineError::Store(_))) => {
                    later(enqueued.id, &error.to_string());
                }
                Err(error) => refusals.push((enqueued.id, self.reader.describe(error).await)),
            }
        }
        for (id, why) in refusals {
            settled.push((id, self.refuse(id, &why).await?));
        }
        self.after.store(after, Ordering::Relaxed);
        settle(store, settled).await
    }

    /// Returns when something may have been enqueued; never where nothing can be.
    pub async fn arrival(&self) {
        match self.engine.store.enqueued() {
            Some(store) => store.arrival().await,
            None => std::future::pending().await,
        }
    }

    /// A task was taken in. Where it was refused before, that is over.
    async fn accepted(&self, enqueued: &Enqueued, task: TaskId) -> Result<Settlement, EngineError> {
        if enqueued.refusals > 0 {
            match self.engine.tell_alarm(alarm(enqueued.id), AlarmCommand::Resolve { by: None }).await {
                // The alarm was deleted: it had been resolved for long.
                Ok(_) | Err(EngineError::UnknownAlarm(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(if task == enqueued.id { Settlement::Accepted } else { Settlement::StandsFor(task) })
    }

    /// Raises the alarm before the refusal is noted: so it is there, though perhaps twice.
    async fn refuse(&self, id: TaskId, why: &str) -> Result<Settlement, EngineError> {
        let why: Box<str> = match why.char_indices().nth(REASON_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &why[..end]).into(),
            None => why.into(),
        };
        let message = format!("a task that was enqueued by SQL was not accepted: {why}").into();
        let raise = AlarmCommand::Raise { kind: AlarmKind::Refused, task: id, step: None, message };
        self.engine.tell_alarm(alarm(id), raise).await?;
        Ok(Settlement::Refused(why))
    }
}

async fn settle(store: &dyn EnqueuedTasks, settled: Vec<(TaskId, Settlement)>) -> Result<usize, EngineError> {
    if settled.is_empty() {
        return Ok(0);
    }
    Ok(store.settle(settled).await?)
}

fn alarm(id: TaskId) -> AlarmId {
    AlarmId::new(AlarmKind::Refused, id, None)
}
