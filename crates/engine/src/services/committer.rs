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

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{
    ActKey, Alarm, AlarmId, Attempt, Command, Context, Effect, EventKind, Rejection, Task, TaskId,
    Transition, apply, is_to_stop,
};

use crate::{
    Engine, EngineError, Notice,
    inbox::{Item, Operation, Replies, Reply},
    ports::{
        AlarmChange, AttemptId, Change, Claim, Envelope, Loaded, MessageId, Now, Outcome, SessionId,
        StoreError, StoredAlarm, TaskChange,
    },
};

/// Items decided in one batch.
const BATCH_ITEMS_MAX: usize = 4096;

/// How often items are decided again after a conflict.
const ROUNDS_MAX: usize = 8;

/// Decides and commits what waits in the inbox.
pub struct Committer {
    engine: Arc<Engine>,
}

/// Where an item stands: index of its operation, index in it.
type Place = (usize, usize);

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
        let tasks: Vec<Option<TaskSummary>> = changes.iter().map(TaskSummary::of).collect();
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
                    let loaded = Loaded { task: summary.task, claims, handed_out: BTreeSet::new() };
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
        if !self.engine.feed.is_idle() {
            let first = summary.task.state.events - summary.events.len() as u64;
            for (n, event) in (first + 1..).zip(&summary.events) {
                self.engine.feed.tell(id, &Notice::Event { n, event: event.clone() });
            }
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
    events: Vec<windlass_core::Event>,
    has_timer: bool,
}

impl TaskSummary {
    fn of(change: &Change) -> Option<Self> {
        let Change::Task(change) = change else { return None };
        let timer = |effect: &Effect| matches!(effect, Effect::Wait(waiting) if waiting.due_at.is_some());
        let has_timer = change.waits.iter().any(timer) || !change.messages.is_empty();
        Some(Self { task: change.task.clone(), events: change.events.clone(), has_timer })
    }
}

/// The tasks and alarms of a batch, as they become by its items.
struct Batch {
    now: Now,
    tasks: BTreeMap<TaskId, TaskWork>,
    alarms: BTreeMap<AlarmId, AlarmWork>,
    others: Vec<(Place, Change)>,
}

/// A task and what is done to it.
struct TaskWork {
    /// The task as it is by now; nothing when it is not there.
    task: Option<Arc<Task>>,
    claims: Vec<Claim>,
    handed_out: BTreeSet<ActKey>,
    change: Option<TaskChange>,
    places: Vec<Place>,
    /// Attempts that workers are to stop.
    stops: Vec<(SessionId, AttemptId)>,
}

/// An alarm and what is done to it.
struct AlarmWork {
    stored: Option<StoredAlarm>,
    change: Option<AlarmChange>,
    places: Vec<Place>,
}

impl Batch {
    async fn load<'a>(
        engine: &Engine,
        items: impl Iterator<Item = &'a Item>,
        now: Now,
    ) -> Result<Self, StoreError> {
        let (mut ids, mut alarm_ids) = (Vec::new(), BTreeSet::new());
        for item in items {
            match item {
                Item::Task { id, .. } => ids.push(*id),
                Item::Alarm { id, .. } => {
                    alarm_ids.insert(id.clone());
                }
                Item::Message(Envelope { message: windlass_core::Message::Alarm { id, .. }, .. }) => {
                    alarm_ids.insert(id.clone());
                }
                Item::Submit { .. } | Item::Change(_) => {}
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let loaded = if ids.is_empty() { Vec::new() } else { engine.store.load(&ids).await? };
        let tasks = ids.into_iter().zip(loaded.into_iter().map(TaskWork::new)).collect();
        let mut alarms = BTreeMap::new();
        for id in alarm_ids {
            let stored = engine.store.alarm(&id).await?;
            alarms.insert(id, AlarmWork { stored, change: None, places: Vec::new() });
        }
        Ok(Self { now, tasks, alarms, others: Vec::new() })
    }

    /// Decides one item. Gives the reply where it needs no commit.
    fn decide(&mut self, item: &Item, place: Place) -> Option<Reply> {
        match item {
            Item::Submit { task, key } => {
                let mut work = TaskWork::new(None);
                let context = Context::at(self.now.wall);
                match apply(task, &Command::Accept, &context) {
                    Ok(transition) => work.take(&Arc::new((**task).clone()), transition, place),
                    Err(rejection) => return Some(Reply::Rejected(rejection)),
                }
                if let Some(change) = &mut work.change {
                    change.submit_key.clone_from(key);
                }
                self.tasks.insert(task.id, work);
                None
            }
            Item::Task { id, command, claim, logs } => {
                let now = self.now;
                let work = self.tasks.get_mut(id)?;
                let reply = work.decide(command, *claim, place, now);
                let accepted = matches!(reply, None | Some(Reply::Task(_)));
                if accepted && !logs.is_empty() {
                    self.others.push((place, Change::Logs(logs.clone())));
                }
                reply
            }
            Item::Message(Envelope { id, message: windlass_core::Message::Alarm { id: alarm, command } }) => {
                self.decide_alarm(alarm, command, Some(*id), place)
            }
            Item::Alarm { id, command } => self.decide_alarm(id, command, None, place),
            Item::Change(change) => {
                self.others.push((place, change.clone()));
                None
            }
        }
    }

    /// At most one command reaches an alarm in a batch; the others are decided in the next round.
    fn decide_alarm(
        &mut self,
        id: &AlarmId,
        command: &windlass_core::AlarmCommand,
        consumes: Option<MessageId>,
        place: Place,
    ) -> Option<Reply> {
        let work = self.alarms.get_mut(id)?;
        if work.change.is_some() {
            return Some(Reply::Conflict);
        }
        let before = work.stored.as_ref();
        let applied = Alarm::apply(before.map(|stored| &stored.alarm), id, command, self.now.wall);
        let alarm = match (applied, consumes) {
            (Ok(alarm), _) => alarm,
            // A message that finds nothing to do is consumed all the same.
            (Err(_), Some(_)) => None,
            (Err(rejection), None) => return Some(Reply::AlarmRejected(rejection)),
        };
        if alarm.is_none() && consumes.is_none() {
            return before.map(|stored| Reply::Alarm(stored.alarm.clone()));
        }
        work.change =
            Some(AlarmChange { before: before.map_or(0, |stored| stored.version), alarm, consumes });
        work.places.push(place);
        None
    }
}

impl TaskWork {
    fn new(loaded: Option<Loaded>) -> Self {
        let (task, claims, handed_out) = match loaded {
            Some(loaded) => (Some(loaded.task), loaded.claims, loaded.handed_out),
            None => (None, Vec::new(), BTreeSet::new()),
        };
        Self { task, claims, handed_out, change: None, places: Vec::new(), stops: Vec::new() }
    }

    fn decide(&mut self, command: &Command, claim: Option<u64>, place: Place, now: Now) -> Option<Reply> {
        let Some(task) = self.task.clone() else { return Some(Reply::Missing) };
        let command = match self.check_claim(command, claim) {
            Ok(command) => command,
            Err(rejection) => return Some(Reply::Rejected(rejection)),
        };
        let context = Context {
            now: now.wall,
            held: self.claims.iter().map(|claim| claim.key).collect(),
            handed_out: self.handed_out.clone(),
        };
        let transition = match apply(&task, &command, &context) {
            Err(Rejection::Fault(message)) => {
                tracing::error!(task = %task.id, %message, "a transition would have broken an invariant; the task is held");
                match apply(&task, &Command::Hold { message: message.into() }, &context) {
                    Ok(transition) => transition,
                    Err(rejection) => return Some(Reply::Rejected(rejection)),
                }
            }
            Err(rejection) => return Some(Reply::Rejected(rejection)),
            Ok(transition) => transition,
        };
        if transition.events.is_empty() {
            // Nothing to do. When an item before it in this batch changed the task, its outcome is awaited.
            if self.change.is_some() {
                self.places.push(place);
                return None;
            }
            let claims = self.claims.clone();
            return Some(Reply::Task(Loaded { task, claims, handed_out: BTreeSet::new() }));
        }
        self.note_stops(&task, &transition.task, &command);
        self.take(&task, transition, place);
        None
    }

    /// A report under a lower claim than the one known is late; one that passes gets the time it was handed out.
    fn check_claim(&self, command: &Command, token: Option<u64>) -> Result<Command, Rejection> {
        let mut command = command.clone();
        if let (Command::Report(report), Some(token)) = (&mut command, token)
            && let Some(claim) = self.claim_of(&report.attempt)
        {
            if token < claim.number {
                return Err(Rejection::Stale);
            }
            report.attempt.started_at = Some(claim.at);
        }
        Ok(command)
    }

    fn claim_of(&self, attempt: &Attempt) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.key == attempt.key && claim.attempt == attempt.number)
    }

    /// Takes a transition into the task's change.
    fn take(&mut self, before: &Arc<Task>, transition: Transition, place: Place) {
        let Transition { task, events, effects } = transition;
        let change = self.change.get_or_insert_with(|| TaskChange {
            before: before.state.events,
            task: before.clone(),
            events: Vec::new(),
            waits: Vec::new(),
            results: Vec::new(),
            messages: Vec::new(),
            submit_key: None,
        });
        for event in &events {
            if let EventKind::ActSucceeded { key, result: Some(result), .. }
            | EventKind::ActResolved { key, result: Some(result), .. } = &event.kind
            {
                change.results.push((*key, result.clone()));
            }
        }
        for effect in effects {
            match effect {
                Effect::Send(message) => {
                    // A message is numbered among the events of its task, of which it has one of its own.
                    let n = change.before + 1 + change.messages.len() as u64;
                    change.messages.push(Envelope { id: MessageId { task: task.id, n }, message });
                }
                wait => change.waits.push(wait),
            }
        }
        let task = Arc::new(task);
        change.task = task.clone();
        change.events.extend(events);
        let current = |claim: &Claim| {
            let act = task.act(claim.key);
            act.is_some_and(|act| act.state == windlass_core::ActState::Ready && act.attempt == claim.attempt)
        };
        self.claims.retain(current);
        self.task = Some(task);
        self.places.push(place);
    }

    /// Which workers must stop because of what just happened: their task turned around, their step's deadline
    /// passed, or the attempt was given up.
    fn note_stops(&mut self, before: &Task, after: &Task, command: &Command) {
        let given_up = match command {
            Command::TimeOut(attempt) | Command::Lose(attempt) => Some(attempt.key),
            _ => None,
        };
        for claim in &self.claims {
            let turned = is_to_stop(after, claim.key) && !is_to_stop(before, claim.key);
            if turned || given_up == Some(claim.key) {
                self.stops.push((claim.session, attempt_id(after.id, claim)));
            }
        }
    }
}

fn attempt_id(task: TaskId, claim: &Claim) -> AttemptId {
    AttemptId { task, key: claim.key, attempt: claim.attempt, claim: claim.number }
}
