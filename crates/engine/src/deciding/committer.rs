//! Decides the operations in the inbox and commits them: the heart of the engine.
//!
//! ```text
//! take operations ─▶ load their tasks ─▶ core::apply, one after the other ─▶ one Change per aggregate
//!        ─▶ Store::commit ─▶ answer everyone, notify watchers, hand out what became ready
//! ```
//!
//! Operations that arrive during a commit go into the next one. Two committers may run concurrently, so that one
//! decides while the other waits for the disk. Every reply, also a refusal, waits for the commit of its batch, so that
//! the state it is based on is on disk. If a change conflicts, only its own items are decided again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_store::{Change, Envelope, Now, Outcome, StoreError};

use crate::{
    Engine, EngineError, Notice,
    deciding::{
        audit,
        batch::{Basis, Batch, Place},
        evaluation::{Deciding, Elsewhere},
        follow_ups::Layer,
        inbox::{Item, Operation, Replies, Reply},
        joins::{join_existing, take_joins},
        part::{Logged, Part, Pending, TaskPart},
    },
    exchange::TakenAlong,
};

/// The maximum number of items in one batch.
const BATCH_ITEMS_MAX: usize = 4096;

/// The maximum number of rounds in which items are decided again after a conflict.
const ROUNDS_MAX: usize = 8;

/// Decides and commits the operations in the inbox.
pub struct Committer {
    engine: Arc<Engine>,
    elsewhere: Option<Elsewhere>,
}

/// The items that a round did not settle.
struct Left {
    /// Items that must be decided again.
    again: Vec<Place>,
    /// Items that are deferred to the next batch.
    put_off: Vec<Place>,
    /// Requests of accepted tasks for their exclusive queues.
    joins: Vec<(Place, Envelope)>,
}

impl Committer {
    /// A committer of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, elsewhere: None }
    }

    /// Runs long decisions on `elsewhere` instead of the thread of the committer.
    #[must_use]
    pub fn deciding_long(self, elsewhere: Elsewhere) -> Self {
        Self { elsewhere: Some(elsewhere), ..self }
    }

    /// Decides and commits one batch. Returns the number of its items, 0 if the inbox was empty. It reads the clock
    /// again after each commit, so that an attempt claimed after the commit does not start before it.
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
        let asked = open.clone();
        let mut put_off = BTreeSet::new();
        let mut joins: BTreeMap<Place, Envelope> = BTreeMap::new();
        let (mut fault, mut deposed, mut basis) = (None, Vec::new(), Basis::Known);
        let mut along = self.engine.take_along();
        let mut rounds = 0;
        for _ in 0..ROUNDS_MAX {
            rounds += 1;
            let along = along.as_mut().filter(|_| basis == Basis::Known);
            match self.round(&mut operations, &open, basis, along, &mut replies, clock()).await {
                Ok(left) => {
                    open = left.again;
                    put_off.extend(left.put_off);
                    joins.extend(left.joins);
                }
                // Nothing of this round is committed. The others go on without the service.
                Err(StoreError::LeaseLost) => {
                    let (service, others) =
                        open.into_iter().partition(|place: &Place| operations[place.0].led.is_some());
                    deposed.extend::<Vec<Place>>(service);
                    open = others;
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
        join_existing(&self.engine, &operations, &asked, &mut replies, &mut joins).await;
        let mut waiting = BTreeSet::new();
        for ((operation, item), join) in joins {
            operations[operation].add(item, join);
            waiting.insert(operation);
        }
        // Callers that receive a reply may claim attempts as well, with the time at which they called.
        let now = self.engine.latest.not_before(clock());
        // Changes that an earlier round has committed are final, and their operations get the matching replies.
        let unsettled: BTreeSet<usize> = open.into_iter().map(|(operation, _)| operation).collect();
        let deposed: BTreeSet<usize> = deposed.into_iter().map(|(operation, _)| operation).collect();
        self.engine.counts.batch(asked.len() - put_off.len());
        waiting.extend(put_off.into_iter().map(|(operation, _)| operation));
        let mut back = Vec::new();
        for (index, (mut operation, replies)) in operations.into_iter().zip(replies).enumerate() {
            let fault = match deposed.contains(&index) {
                true => Some(&StoreError::LeaseLost),
                false => fault.as_ref(),
            };
            let has_failed = fault.is_some() && (unsettled.contains(&index) || deposed.contains(&index));
            if waiting.contains(&index) && !has_failed {
                operation.settled = replies;
                back.push(operation);
                continue;
            }
            let replies: Replies = match fault {
                Some(error) if operation.lacks_reply(&replies) => Err(error.clone()),
                _ => Ok(operation.replies(replies)),
            };
            operation.answer(replies);
        }
        self.engine.inbox.put_back(back);
        let handed_out = match along {
            Some(along) => along.give(rounds > 1, now).await,
            None => self.engine.dispatch(now).await,
        };
        if let Err(EngineError::Store(error)) = handed_out {
            tracing::warn!(%error, "ready attempts could not be handed out");
        }
        asked.len()
    }

    /// Decides and commits the items at `open`. Returns the items that it did not settle.
    async fn round(
        &self,
        operations: &mut Vec<Operation>,
        open: &[Place],
        basis: Basis,
        along: Option<&mut TakenAlong<'_>>,
        replies: &mut Vec<Vec<Option<Reply>>>,
        now: Now,
    ) -> Result<Left, StoreError> {
        let waiting = open.iter().map(|place| &operations[place.0].items[place.1]);
        let (generation, connected) = (self.engine.store.generation(), self.engine.task_cache.connected());
        let mut batch = Batch::load(&self.engine, waiting, basis, now).await?;
        batch.duplicates.extend(open.iter().filter_map(|place| match &replies[place.0][place.1] {
            Some(Reply::Repeats { task }) => Some((*place, *task)),
            _ => None,
        }));
        let deciding = Deciding::new(batch, operations, open);
        let own = operations.len();
        let decided = deciding.run(operations, self.elsewhere.as_ref()).await;
        let decided = self.follow_up(decided, operations, replies).await;
        let Deciding { batch, mut unchanging, mut again, mut put_off, .. } = decided;
        // A message of this commit that was not delivered in it waits in the store.
        unchanging.retain(|((operation, _), _)| *operation < own);
        put_off.retain(|(operation, _)| *operation < own);
        let item = |place: &Place| &operations[place.0].items[place.1];
        let decided_at = batch.now;
        let (changes, parts) = batch.into_changes(
            !self.engine.feed.is_idle(),
            self.engine.announcing.is_on(),
            !self.engine.observers().is_empty(),
        );
        let (changes, parts) = audit::add_entries(changes, parts, operations, decided_at.wall);
        let mut sent = self.sent(&changes);
        let joining = take_joins(&mut sent, &changes, &parts);
        let only_consume: Vec<bool> =
            changes.iter().map(|change| matches!(change, Change::Consume(_))).collect();
        let led = open.iter().find_map(|place| operations[place.0].led);
        let outcomes = match along {
            Some(along) => along.commit(changes, led, decided_at).await?,
            None => self.engine.commit_as(led, changes, decided_at).await?,
        };
        self.carry(sent, &outcomes);
        let joins = joining.into_iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Committed);
        let joins = joins.filter_map(|(join, _)| join).collect();
        if self.engine.announcing.is_on() {
            self.announce(&parts, &outcomes);
        }
        // A reply without a change is valid only if the state it was decided on is on disk now and was not lost.
        let held = self.engine.store.generation() == generation;
        for (place, reply) in unchanging {
            if held && !matches!(reply, Reply::Conflict) {
                replies[place.0][place.1] = Some(reply);
            } else {
                again.push(place);
            }
        }
        for ((part, outcome), only_consumes) in parts.into_iter().zip(outcomes).zip(only_consume) {
            let came_to = match outcome {
                // Another server has delivered this message, which changes nothing any more.
                Outcome::Conflict if only_consumes => Reply::Done,
                Outcome::Conflict => {
                    self.engine.counts.conflict();
                    part.task.iter().for_each(|part| self.engine.task_cache.forget(part.loaded.task.id));
                    again.extend(part.pending.into_iter().map(|pending| pending.place));
                    continue;
                }
                Outcome::Heard => {
                    // The worker was heard from again. Lost claims get a conflict, and the other items of the change
                    // are decided without them.
                    for Pending { place, .. } in part.pending {
                        match item(&place) {
                            Item::Lost { .. } => replies[place.0][place.1] = Some(Reply::Conflict),
                            _ => again.push(place),
                        }
                    }
                    continue;
                }
                Outcome::Repeats { task } => {
                    // The sender of a message that starts a child task must receive this result, so the message is
                    // decided again.
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
                    if part.sends && self.engine.store.cluster().is_none() {
                        self.engine.messages.set();
                    }
                    // The log lines of an attempt come before its end.
                    part.logs.iter().for_each(|logs| self.logged(logs));
                    match part.task {
                        Some(task) => {
                            self.engine.task_cache.committed(&task.loaded, connected, now);
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
        again.retain(|(operation, _)| *operation < own);
        again.sort_unstable();
        // The next batch determines the results of an earlier round again.
        put_off.iter().for_each(|place| replies[place.0][place.1] = None);
        Ok(Left { again, put_off, joins })
    }

    /// Wakes the outbox relay if tasks were committed, and passes on those that have ended.
    fn announce(&self, parts: &[Part], outcomes: &[Outcome]) {
        let committed = parts.iter().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Committed);
        let mut tasks = committed.filter_map(|(part, _)| part.task.as_ref()).peekable();
        if tasks.peek().is_none() {
            return;
        }
        if self.engine.store.cluster().is_none() {
            tasks.for_each(|part| self.engine.announcing.keep_if_ended(&part.loaded.task));
        }
        self.engine.announcing.stir();
    }

    /// Delivers messages in the commit that sends them, where this saves a commit.
    async fn follow_up(
        &self,
        mut deciding: Deciding,
        operations: &mut Vec<Operation>,
        replies: &mut Vec<Vec<Option<Reply>>>,
    ) -> Deciding {
        for layer in Layer::ALL {
            let messages = deciding.batch.follow_ups(&self.engine, layer).await;
            if messages.is_empty() {
                break;
            }
            let places = (0..messages.len()).map(|item| (operations.len(), item));
            deciding = deciding.going_on(places);
            replies.push(vec![None; messages.len()]);
            operations.push(Operation::of_messages(messages));
            deciding = deciding.run(operations, self.elsewhere.as_ref()).await;
        }
        deciding
    }

    /// The messages that each change sends, if servers share the store: this server then delivers them itself, so that
    /// no other server has to find them.
    fn sent(&self, changes: &[Change]) -> Vec<Vec<Envelope>> {
        if self.engine.store.cluster().is_none() {
            return Vec::new();
        }
        let sent = changes.iter().map(|change| match change {
            Change::Task(change) => change.messages.clone(),
            Change::Lock(change) => change.messages.clone(),
            _ => Vec::new(),
        });
        sent.collect()
    }

    /// Posts the messages of committed changes to the inbox.
    fn carry(&self, sent: Vec<Vec<Envelope>>, outcomes: &[Outcome]) {
        let committed = sent.into_iter().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Committed);
        let items: Vec<Item> = committed.flat_map(|(sent, _)| sent).map(Item::Message).collect();
        if !items.is_empty() {
            self.engine.inbox.post(items);
        }
    }

    /// Publishes committed log lines to watchers.
    fn logged(&self, logs: &Logged) {
        match &logs.lines {
            Some(lines) => self.engine.feed.tell(logs.task, &Notice::Logged { lines: lines.clone() }),
            // A watcher that arrived in the meantime returns and reads them from the store.
            None => self.engine.feed.dismiss(logs.task),
        }
    }

    /// After the commit of a task's change: asks workers to stop attempts, and publishes the events to watchers.
    fn committed(&self, part: &TaskPart, now: Now) {
        let task = &part.loaded.task;
        self.engine.progress.forget_ended(task);
        if let Some(seen) = &part.seen {
            self.engine.observers().iter().for_each(|observer| seen.show(task, &**observer));
        }
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
            // A watcher that arrived in the meantime would miss this change: it returns and reads it from the store.
            None => self.engine.feed.dismiss(task.id),
        }
    }
}
