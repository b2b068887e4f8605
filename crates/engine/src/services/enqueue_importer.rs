//! Accepts the tasks that applications enqueued in their own transactions.
//!
//! ```text
//! application: BEGIN · … · windlass_start(…) · COMMIT
//!                                │ a row
//! enqueue importer:  waiting ─▶ read ─▶ Engine::submit_as ─▶ settle: the row is deleted
//!                      └── refused ─▶ alarm ─▶ settle: the row stays, with the reason
//! ```
//!
//! One server does this at a time, so that tasks are accepted in their order. If two do so for a moment, or if one dies
//! before it has recorded its work, each task is still accepted once: its id and its idempotency key come from the row.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use windlass_core::{AlarmCommand, AlarmId, AlarmKind, TaskId};
use windlass_store::{Enqueued, EnqueuedTasks, Now, Service, Settlement};

use super::leading::Led;
use crate::{Engine, EngineError, RoundsOf, Submission};

/// The maximum number of tasks accepted together.
const ROUND_MAX: usize = 500;

/// The longest reason that is kept with a refused row, in characters.
const REASON_CHARS_MAX: usize = 1000;

/// Reads enqueued rows with the same rules as submits over HTTP.
#[async_trait]
pub trait ReadEnqueued: Send + Sync {
    /// The requested submission, with an idempotency key that no other task has.
    async fn read(&self, enqueued: &Enqueued, now: Now) -> Result<Submission, Unreadable>;

    /// Describes an error in the words of the HTTP API.
    async fn describe(&self, error: EngineError) -> String;

    /// Counts an accepted task; `repeated`: it existed already.
    fn accepted(&self, repeated: bool);
}

/// Why an enqueued row could not be read.
#[derive(Debug)]
pub enum Unreadable {
    /// The row is invalid.
    Refused(String),
    /// A temporary cause.
    Later(String),
}

/// Accepts the tasks that applications enqueued.
pub struct EnqueueImporter {
    engine: Arc<Engine>,
    reader: Arc<dyn ReadEnqueued>,
    /// The next round reads the rows after this place: after the rows deferred in the last round, so that those do not
    /// block others; otherwise 0, the start.
    after: AtomicU64,
}

impl EnqueueImporter {
    /// An enqueue importer of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>, reader: Arc<dyn ReadEnqueued>) -> Self {
        Self { engine, reader, after: AtomicU64::new(0) }
    }

    /// Accepts a bounded number of tasks. Returns the number of settled rows; if it is not 0, more rows may wait.
    ///
    /// # Errors
    /// When the store fails, or the inbox is full; the rows stay.
    pub async fn run_once(&self, now: Now) -> Result<usize, EngineError> {
        let round = |led| self.round(led, now);
        self.engine.round_of(RoundsOf::EnqueueImporter, Service::Enqueuing, now, round).await
    }

    async fn round(&self, led: Led, now: Now) -> Result<usize, EngineError> {
        let Some(store) = self.engine.store.enqueued() else { return Ok(0) };
        let (mut settled, mut submissions, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
        // If this fails, the next round reads from the start.
        let waiting = store.waiting(ROUND_MAX, self.after.swap(0, Ordering::Relaxed)).await?;
        let last = waiting.last().map_or(0, |enqueued| enqueued.place);
        let mut after = 0;
        let mut later = |id: TaskId, why: &str| {
            after = last;
            tracing::debug!(task = %id, why, "an enqueued task will be accepted later");
        };
        for enqueued in waiting {
            match self.reader.read(&enqueued, now).await {
                Ok(submission) => submissions.push((enqueued, submission)),
                Err(Unreadable::Refused(why)) => refusals.push((enqueued.id, why)),
                Err(Unreadable::Later(why)) => later(enqueued.id, &why),
            }
        }
        let submitted = submissions.iter().map(|(enqueued, submission)| (enqueued.id, submission.clone()));
        let results = self.engine.submit_as(led.lease, submitted.collect()).await?;
        for ((enqueued, _), result) in submissions.into_iter().zip(results) {
            match result {
                Ok(accepted) => {
                    self.reader.accepted(accepted.existing.is_some());
                    settled
                        .push((enqueued.id, self.accepted(led, &enqueued, accepted.loaded.task.id).await?));
                }
                // The task was accepted, and has ended and been deleted since.
                Err(EngineError::KeyWithoutTask { task }) => {
                    self.reader.accepted(true);
                    settled.push((enqueued.id, self.accepted(led, &enqueued, task).await?));
                }
                Err(error @ (EngineError::Overloaded | EngineError::Conflict | EngineError::Store(_))) => {
                    later(enqueued.id, &error.to_string());
                }
                Err(error) => refusals.push((enqueued.id, self.reader.describe(error).await)),
            }
        }
        for (id, why) in refusals {
            settled.push((id, self.refuse(led, id, &why).await?));
        }
        self.after.store(after, Ordering::Relaxed);
        settle(store, led, settled).await
    }

    /// Returns when tasks may have been enqueued; never if the store does not support that.
    pub async fn arrival(&self) {
        match self.engine.store.enqueued() {
            Some(store) => store.arrival().await,
            None => std::future::pending().await,
        }
    }

    /// Settles an accepted row. Resolves the alarm of an earlier refusal.
    async fn accepted(&self, led: Led, enqueued: &Enqueued, task: TaskId) -> Result<Settlement, EngineError> {
        if enqueued.refusals > 0 {
            let resolve = AlarmCommand::Resolve { by: None };
            match self.engine.tell_alarm_as(led.lease, alarm(enqueued.id), resolve).await {
                // The alarm was deleted: it had been resolved long before.
                Ok(_) | Err(EngineError::UnknownAlarm(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(if task == enqueued.id { Settlement::Accepted } else { Settlement::StandsFor(task) })
    }

    /// Raises the alarm before the refusal is recorded: so the alarm is certain, though it may be raised twice.
    async fn refuse(&self, led: Led, id: TaskId, why: &str) -> Result<Settlement, EngineError> {
        let why: Box<str> = match why.char_indices().nth(REASON_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &why[..end]).into(),
            None => why.into(),
        };
        let message = format!("a task that was enqueued by SQL was not accepted: {why}").into();
        let raise = AlarmCommand::Raise { kind: AlarmKind::Refused, task: id, step: None, message };
        self.engine.tell_alarm_as(led.lease, alarm(id), raise).await?;
        Ok(Settlement::Refused(why))
    }
}

async fn settle(
    store: &dyn EnqueuedTasks,
    led: Led,
    settled: Vec<(TaskId, Settlement)>,
) -> Result<usize, EngineError> {
    if settled.is_empty() {
        return Ok(0);
    }
    Ok(store.settle(settled, led.lease).await?)
}

fn alarm(id: TaskId) -> AlarmId {
    AlarmId::new(AlarmKind::Refused, id, None)
}
