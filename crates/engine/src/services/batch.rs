//! A batch in the making: the tasks and alarms its items are about, as they become by one item after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{
    ActKey, ActState, Alarm, AlarmCommand, AlarmId, Attempt, Command, Context, Effect, EventKind, Message,
    Rejection, Task, TaskId, Transition, apply, is_to_stop,
};

use crate::{
    Engine,
    inbox::{Item, Reply},
    ports::{
        AlarmChange, AttemptId, Change, Claim, Envelope, Loaded, MessageId, Now, SessionId, StoreError,
        StoredAlarm, TaskChange,
    },
};

/// Where an item stands: index of its operation, index in it.
pub(super) type Place = (usize, usize);

/// The tasks and alarms of a batch, as they become by its items.
pub(super) struct Batch {
    now: Now,
    pub(super) tasks: BTreeMap<TaskId, TaskWork>,
    pub(super) alarms: BTreeMap<AlarmId, AlarmWork>,
    pub(super) others: Vec<(Place, Change)>,
}

/// A task and what is done to it.
pub(super) struct TaskWork {
    /// The task as it is by now; nothing when it is not there.
    task: Option<Arc<Task>>,
    pub(super) claims: Vec<Claim>,
    handed_out: BTreeSet<ActKey>,
    generation: u64,
    pub(super) change: Option<TaskChange>,
    pub(super) places: Vec<Place>,
    /// Attempts that workers are to stop.
    pub(super) stops: Vec<(SessionId, AttemptId)>,
}

/// An alarm and what is done to it.
pub(super) struct AlarmWork {
    stored: Option<StoredAlarm>,
    pub(super) change: Option<AlarmChange>,
    pub(super) places: Vec<Place>,
}

impl Batch {
    pub(super) async fn load<'a>(
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
                Item::Message(Envelope { message: Message::Alarm { id, .. }, .. }) => {
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
    pub(super) fn decide(&mut self, item: &Item, place: Place) -> Option<Reply> {
        match item {
            Item::Submit { task, key } => {
                let mut work = TaskWork::new(None);
                let context = Context::at(self.now.wall);
                match apply(task, &Command::Accept, &context) {
                    Ok(transition) => work.take(task, transition, place),
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
            Item::Message(Envelope { id, message: Message::Alarm { id: alarm, command } }) => {
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
        command: &AlarmCommand,
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
        let (task, claims, handed_out, generation) = match loaded {
            Some(loaded) => (Some(loaded.task), loaded.claims, loaded.handed_out, loaded.generation),
            None => (None, Vec::new(), BTreeSet::new(), 0),
        };
        Self { task, claims, handed_out, generation, change: None, places: Vec::new(), stops: Vec::new() }
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
            return Some(Reply::Task(Loaded {
                task,
                claims,
                handed_out: BTreeSet::new(),
                generation: self.generation,
            }));
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
            generation: self.generation,
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
            act.is_some_and(|act| act.state == ActState::Ready && act.attempt == claim.attempt)
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
