//! Decides what waits in the inbox and commits it: the heart of the engine.
//!
//! ```text
//! take operations ─▶ load their tasks ─▶ core::apply, one after the other ─▶ one Change per aggregate
//!        ─▶ Store::commit ─▶ answer everyone, tell watchers, hand out what became ready
//! ```
//!
//! Everything that arrived while a commit was under way goes into the next one. Two of these may run at once,
//! so that one decides while the other waits for the disk. Every reply, refusals too, waits for the commit of
//! its batch: what it is based on is on disk by then. When a change conflicts, only its own items are decided
//! again.

use std::{collections::BTreeSet, sync::Arc};

use windlass_core::{Alarm, Effect, Event, Task, TaskId};

use super::batch::{Batch, Place};
use crate::{
    Engine, EngineError, Notice,
    inbox::{Operation, Replies, Reply},
    ports::{AttemptId, Change, Claim, Loaded, Now, Outcome, SessionId, StoreError},
};

/// Items decided in one batch.
const BATCH_ITEMS_MAX: usize = 4096;

/// How often items are decided again after a conflict.
const ROUNDS_MAX: usize = 8;

/// Decides and commits what waits in the inbox.
pub struct Committer {
    engine: Arc<Engine>,
}

impl Committer {
    /// A committer of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Decides and commits one batch. Tells how many items it had; 0 when nothing waited.
    pub async fn run_once(&self, now: Now) -> usize {
        let operations = self.engine.inbox.take(BATCH_ITEMS_MAX);
        if operations.is_empty() {
            return 0;
        }
        let mut replies: Vec<Vec<Option<Reply>>> =
            operations.iter().map(|operation| vec![None; operation.items.len()]).collect();
        let mut open: Vec<Place> = operations
            .iter()
            .enumerate()
            .flat_map(|(index, operation)| (0..operation.items.len()).map(move |item| (index, item)))
            .collect();
        let count = open.len();
        self.engine.counts.batch(count);
        let mut fault = None;
        for _ in 0..ROUNDS_MAX {
            match self.round(&operations, &open, &mut replies, now).await {
                Ok(conflicts) => open = conflicts,
                Err(error) => {
                    fault = Some(error);
                    break;
                }
            }
            if open.is_empty() {
                break;
            }
        }
        for (operation, replies) in operations.into_iter().zip(replies) {
            let replies: Replies = match &fault {
                Some(error) => Err(error.clone()),
                None => Ok(replies.into_iter().map(|reply| reply.unwrap_or(Reply::Conflict)).collect()),
            };
            // Whoever asked may have gone away; what was decided stands all the same.
            let _ = operation.reply.send(replies);
        }
        if let Err(EngineError::Store(error)) = self.engine.dispatch(now).await {
            tracing::warn!(%error, "ready attempts could not be handed out");
        }
        count
    }

    /// Decides and commits the items at `open`. Gives those that must be decided again.
    async fn round(
        &self,
        operations: &[Operation],
        open: &[Place],
        replies: &mut [Vec<Option<Reply>>],
        now: Now,
    ) -> Result<Vec<Place>, StoreError> {
        let item = |place: &Place| &operations[place.0].items[place.1];
        let mut batch = Batch::load(&self.engine, open.iter().map(item), now).await?;
        for place in open {
            if let Some(reply) = batch.decide(item(place), *place) {
                replies[place.0][place.1] = Some(reply);
            }
        }
        let Batch { tasks, alarms, others, .. } = batch;
        let mut parts: Vec<Part> = Vec::new();
        let mut changes = Vec::new();
        for (id, work) in tasks {
            if let Some(change) = work.change {
                changes.push(Change::Task(Box::new(change)));
                parts.push(Part::Task { id, places: work.places, claims: work.claims, stops: work.stops });
            } else {
                debug_assert!(work.places.is_empty(), "only a change awaits its outcome");
            }
        }
        for work in alarms.into_values() {
            if let Some(change) = work.change {
                parts.push(Part::Alarm { places: work.places, alarm: change.alarm.clone() });
                changes.push(Change::Alarm(change));
            }
        }
        for (place, change) in others {
            changes.push(change);
            parts.push(Part::Other(place));
        }
        let watched = !self.engine.feed.is_idle();
        let tasks: Vec<Option<TaskSummary>> =
            changes.iter().map(|change| TaskSummary::of(change, watched)).collect();
        let outcomes = self.engine.store.commit(changes).await?;
        let mut again = Vec::new();
        for ((part, outcome), summary) in parts.into_iter().zip(outcomes).zip(tasks) {
            match (outcome, part) {
                (Outcome::Conflict, part) => again.extend(part.into_places()),
                (Outcome::KeyTaken { task, fingerprint }, part) => {
                    for place in part.into_places() {
                        replies[place.0][place.1] = Some(Reply::KeyTaken { task, fingerprint });
                    }
                }
                (Outcome::Committed, Part::Task { id, places, claims, stops }) => {
                    let Some(summary) = summary else { continue };
                    self.committed(id, &summary, stops, now);
                    let TaskSummary { task, generation, .. } = summary;
                    let loaded = Loaded { task, claims, handed_out: BTreeSet::new(), generation };
                    for place in places {
                        replies[place.0][place.1] = Some(Reply::Task(loaded.clone()));
                    }
                }
                (Outcome::Committed, Part::Alarm { places, alarm }) => {
                    for place in places {
                        replies[place.0][place.1] = Some(alarm.clone().map_or(Reply::Done, Reply::Alarm));
                    }
                }
                (Outcome::Committed, Part::Other(place)) => replies[place.0][place.1] = Some(Reply::Done),
            }
        }
        again.sort_unstable();
        Ok(again)
    }

    /// A task's change is on disk: workers are told what to stop, watchers what happened.
    fn committed(&self, id: TaskId, summary: &TaskSummary, stops: Vec<(SessionId, AttemptId)>, now: Now) {
        for (session, attempt) in stops {
            self.engine.cancel(session, &attempt, now);
        }
        if summary.has_timer {
            self.engine.timers.set();
        }
        match &summary.events {
            Some(events) => {
                let first = summary.task.state.events - events.len() as u64;
                for (n, event) in (first + 1..).zip(events) {
                    self.engine.feed.tell(id, &Notice::Event { n, event: event.clone() });
                }
            }
            // Whoever began to watch meanwhile would miss this: it comes back and reads it from the disk.
            None => self.engine.feed.dismiss(id),
        }
    }
}

/// What a change was about, for those who wait for its outcome.
enum Part {
    Task { id: TaskId, places: Vec<Place>, claims: Vec<Claim>, stops: Vec<(SessionId, AttemptId)> },
    Alarm { places: Vec<Place>, alarm: Option<Alarm> },
    Other(Place),
}

impl Part {
    fn into_places(self) -> Vec<Place> {
        match self {
            Self::Task { places, .. } | Self::Alarm { places, .. } => places,
            Self::Other(place) => vec![place],
        }
    }
}

/// What of a committed task change is needed afterwards.
struct TaskSummary {
    task: Arc<Task>,
    generation: u64,
    /// What happened, if anybody watched when it was decided.
    events: Option<Vec<Event>>,
    has_timer: bool,
}

impl TaskSummary {
    fn of(change: &Change, watched: bool) -> Option<Self> {
        let Change::Task(change) = change else { return None };
        let timer = |effect: &Effect| matches!(effect, Effect::Wait(waiting) if waiting.due_at.is_some());
        let has_timer = change.waits.iter().any(timer) || !change.messages.is_empty();
        let events = watched.then(|| change.events.clone());
        Some(Self { task: change.task.clone(), generation: change.generation, events, has_timer })
    }
}
