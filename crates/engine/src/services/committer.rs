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

use super::{
    batch::{Basis, Batch, Place},
    deciding::{Deciding, Elsewhere},
    part::{Logged, Pending, TaskPart},
};
use crate::{
    Engine, EngineError, Notice,
    exchange::TakenAlong,
    inbox::{Item, Operation, Replies, Reply},
    ports::{Change, Envelope, Now, Outcome, StoreError},
};

/// Items decided in one batch.
const BATCH_ITEMS_MAX: usize = 4096;

/// How often items are decided again after a conflict.
const ROUNDS_MAX: usize = 8;

/// Decides and commits what waits in the inbox.
pub struct Committer {
    engine: Arc<Engine>,
    elsewhere: Option<Elsewhere>,
}

/// What a round leaves.
struct Left {
    /// Items that must be decided again.
    again: Vec<Place>,
    /// Items that go into the next batch.
    put_off: Vec<Place>,
}

impl Committer {
    /// A committer of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, elsewhere: None }
    }

    /// Decides what takes the processor for long elsewhere, rather than where it is run.
    #[must_use]
    pub fn deciding_long(self, elsewhere: Elsewhere) -> Self {
        Self { elsewhere: Some(elsewhere), ..self }
    }

    /// Decides and commits one batch. Tells how many items it had; 0 when nothing waited. It asks for the time again
    /// after each commit: what is handed out then has not begun before it.
    pub async fn run_once(&self, clock: impl Fn() -> Now) -> usize {
        let mut operations = self.engine.inbox.take(BATCH_ITEMS_MAX);
        if operations.is_empty() {
            return 0;
        }
        let mut replies: Vec<Vec<Option<Reply>>> =
            operations.iter_mut().map(Operation::take_settled).collect();
        let mut open: Vec<Place> = operations
            .iter()
            .enumerate()
            .flat_map(|(index, operation)| (0..operation.items.len()).map(move |item| (index, item)))
            .filter(|place| replies[place.0][place.1].is_none())
            .collect();
        let count = open.len();
        let mut put_off = BTreeSet::new();
        let (mut fault, mut basis) = (None, Basis::Known);
        let mut along = self.engine.take_along();
        let mut rounds = 0;
        for _ in 0..ROUNDS_MAX {
            rounds += 1;
            let along = along.as_mut().filter(|_| basis == Basis::Known);
            match self.round(&mut operations, &open, basis, along, &mut replies, clock()).await {
                Ok(left) => {
                    open = left.again;
                    put_off.extend(left.put_off);
                }
                Err(error) => {
                    fault = Some(error);
                    break;
                }
            }
            if open.is_empty() {
                break;
            }
            basis = Basis::Stored;
        }
        // Whoever is answered may hand out as well, with the time at which it asked.
        let now = self.engine.latest.not_before(clock());
        // What an earlier round has committed stands, and its operations are answered so.
        let unsettled: BTreeSet<usize> = open.into_iter().map(|(operation, _)| operation).collect();
        self.engine.counts.batch(count - put_off.len());
        let put_off: BTreeSet<usize> = put_off.into_iter().map(|(operation, _)| operation).collect();
        let mut back = Vec::new();
        for (index, (mut operation, replies)) in operations.into_iter().zip(replies).enumerate() {
            let has_failed = fault.is_some() && unsettled.contains(&index);
            if put_off.contains(&index) && !has_failed {
                operation.settled = replies;
                back.push(operation);
                continue;
            }
            let replies: Replies = match &fault {
                Some(error) if unsettled.contains(&index) => Err(error.clone()),
                _ => Ok(replies.into_iter().map(|reply| reply.unwrap_or(Reply::Conflict)).collect()),
            };
            // Whoever asked may have gone away; what was decided stands all the same.
            let _ = operation.reply.send(replies);
        }
        self.engine.inbox.put_back(back);
        let handed_out = match along {
            Some(along) => along.give(rounds > 1, now).await,
            None => self.engine.dispatch(now).await,
        };
        if let Err(EngineError::Store(error)) = handed_out {
            tracing::warn!(%error, "ready attempts could not be handed out");
        }
        count
    }

    /// Decides and commits the items at `open`. Gives those that are left.
    async fn round(
        &self,
        operations: &mut Vec<Operation>,
        open: &[Place],
        basis: Basis,
        along: Option<&mut TakenAlong<'_>>,
        replies: &mut [Vec<Option<Reply>>],
        now: Now,
    ) -> Result<Left, StoreError> {
        let waiting = open.iter().map(|place| &operations[place.0].items[place.1]);
        let (generation, connected) = (self.engine.store.generation(), self.engine.known.connected());
        let mut batch = Batch::load(&self.engine, waiting, basis, now).await?;
        batch.duplicates.extend(open.iter().filter_map(|place| match &replies[place.0][place.1] {
            Some(Reply::Repeats { task }) => Some((*place, *task)),
            _ => None,
        }));
        let deciding = Deciding::new(batch, operations, open);
        let decided = deciding.run(operations, self.elsewhere.as_ref()).await;
        let Deciding { batch, unchanging, mut again, put_off, .. } = decided;
        let item = |place: &Place| &operations[place.0].items[place.1];
        let decided_at = batch.now;
        let (changes, parts) =
            batch.into_changes(!self.engine.feed.is_idle(), self.engine.announcing.is_on());
        let sent = self.sent(&changes);
        let outcomes = match along {
            Some(along) => along.commit(changes, decided_at).await?,
            None => self.engine.store.commit(changes).await?,
        };
        self.carry(sent, &outcomes);
        if parts.iter().any(|part| part.task.is_some()) {
            self.engine.announcing.stir();
        }
        // A reply that changes nothing holds when what it was decided on is on disk now, and was not lost instead.
        let held = self.engine.store.generation() == generation;
        for (place, reply) in unchanging {
            if held && !matches!(reply, Reply::Conflict) {
                replies[place.0][place.1] = Some(reply);
            } else {
                again.push(place);
            }
        }
        for (part, outcome) in parts.into_iter().zip(outcomes) {
            let came_to = match outcome {
                Outcome::Conflict => {
                    self.engine.counts.conflict();
                    part.task.iter().for_each(|part| self.engine.known.forget(part.loaded.task.id));
                    again.extend(part.pending.into_iter().map(|pending| pending.place));
                    continue;
                }
                Outcome::Heard => {
                    // Whoever was to be given up is there; what else was in the change is decided without it.
                    for Pending { place, .. } in part.pending {
                        match item(&place) {
                            Item::Lost { .. } => replies[place.0][place.1] = Some(Reply::Conflict),
                            _ => again.push(place),
                        }
                    }
                    continue;
                }
                Outcome::Repeats { task } => {
                    // The sender of a message that starts a child task must be told: the message is decided again.
                    for Pending { place, .. } in &part.pending {
                        if matches!(item(place), Item::Message(_)) {
                            replies[place.0][place.1] = Some(Reply::Repeats { task });
                            again.push(*place);
                        }
                    }
                    Reply::Repeats { task }
                }
                Outcome::KeyTaken { task, fingerprint } => Reply::KeyTaken { task, fingerprint },
                Outcome::Committed => {
                    if part.has_timer {
                        self.engine.timers.set();
                    }
                    // What an attempt wrote comes before how it ended.
                    part.logs.iter().for_each(|logs| self.logged(logs));
                    match part.task {
                        Some(task) => {
                            self.engine.known.committed(&task.loaded, connected, now);
                            self.committed(&task, now);
                            Reply::Task(task.loaded)
                        }
                        None => Reply::Done,
                    }
                }
            };
            for Pending { place, reply } in part.pending {
                replies[place.0][place.1] = Some(reply.unwrap_or_else(|| came_to.clone()));
            }
        }
        again.sort_unstable();
        // What an earlier round found out about them is found out again.
        put_off.iter().for_each(|place| replies[place.0][place.1] = None);
        Ok(Left { again, put_off })
    }

    /// The messages that each change sends, where other servers would have to find them: this one carries them itself.
    fn sent(&self, changes: &[Change]) -> Vec<Vec<Envelope>> {
        if !self.engine.store.is_shared() {
            return Vec::new();
        }
        let sent = changes.iter().map(|change| match change {
            Change::Task(change) => change.messages.clone(),
            Change::Lock(change) => change.messages.clone(),
            _ => Vec::new(),
        });
        sent.collect()
    }

    /// Messages that were sent by changes that are on disk go on their way.
    fn carry(&self, sent: Vec<Vec<Envelope>>, outcomes: &[Outcome]) {
        let committed = sent.into_iter().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Committed);
        let items: Vec<Item> = committed.flat_map(|(sent, _)| sent).map(Item::Message).collect();
        if !items.is_empty() {
            self.engine.inbox.post(items);
        }
    }

    /// Lines are on disk.
    fn logged(&self, logs: &Logged) {
        match &logs.lines {
            Some(lines) => self.engine.feed.tell(logs.task, &Notice::Logged { lines: lines.clone() }),
            // Whoever began to watch meanwhile comes back and reads them from the disk.
            None => self.engine.feed.dismiss(logs.task),
        }
    }

    /// A task's change is on disk: workers are told what to stop, watchers what happened.
    fn committed(&self, part: &TaskPart, now: Now) {
        let task = &part.loaded.task;
        self.engine.progress.forget_ended(task);
        for (session, attempt) in &part.stops {
            self.engine.cancel(*session, attempt, now);
        }
        match &part.events {
            Some(events) => {
                let first = task.state.events - events.len() as u64;
                for (n, event) in (first + 1..).zip(events) {
                    self.engine.feed.tell(task.id, &Notice::Event { n, event: event.clone() });
                }
            }
            // Whoever began to watch meanwhile would miss this: it comes back and reads it from the disk.
            None => self.engine.feed.dismiss(task.id),
        }
    }
}
