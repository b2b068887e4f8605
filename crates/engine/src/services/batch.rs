//! A batch in the making: the tasks and alarms its items are about, as they become by one item after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{
    AlarmCommand, AlarmId, Effect, Event, Message, TaskId,
    planted::{Bug, is_planted},
};

use super::{alarm_work::AlarmWork, task_work::TaskWork};
use crate::{
    Engine,
    inbox::{Item, Reply},
    ports::{
        AttemptId, Change, Envelope, Loaded, LogLine, MessageId, Now, SessionId, StoreError, SubmitKey, TaskChange,
    },
};

/// Where an item stands: index of its operation, index in it.
pub(super) type Place = (usize, usize);

/// An item that waits for the outcome of a change: it is part of it, or was decided on what it makes.
pub(super) struct Pending {
    pub(super) place: Place,
    /// What the item is answered once the change is on disk; nothing = what the change came to.
    pub(super) reply: Option<Reply>,
}

/// The tasks and alarms of a batch, as they become by its items.
pub(super) struct Batch {
    now: Now,
    tasks: BTreeMap<TaskId, TaskWork>,
    alarms: BTreeMap<AlarmId, AlarmWork>,
    others: Vec<(Change, Place)>,
}

/// Who waits for the outcome of a change, and what it was about.
pub(super) struct Part {
    pub(super) pending: Vec<Pending>,
    /// Of a task's change: what is needed once it is on disk.
    pub(super) task: Option<TaskPart>,
    /// What attempts wrote, for those who watch.
    pub(super) logs: Option<Logged>,
}

/// Lines that attempts of a task wrote.
pub(super) struct Logged {
    pub(super) task: TaskId,
    /// The lines, if anybody watched when they came.
    pub(super) lines: Option<Arc<[LogLine]>>,
}

impl Logged {
    fn of(lines: &[LogLine], watched: bool) -> Option<Self> {
        let task = lines.first()?.task;
        Some(Self { task, lines: watched.then(|| lines.into()) })
    }
}

/// What of a task's change is needed once it is on disk.
pub(super) struct TaskPart {
    /// The task afterwards.
    pub(super) loaded: Loaded,
    /// What happened, if anybody watched when it was decided.
    pub(super) events: Option<Vec<Event>>,
    /// It waits for a time, or has sent a message.
    pub(super) has_timer: bool,
    /// Attempts that workers are to stop.
    pub(super) stops: Vec<(SessionId, AttemptId)>,
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
            alarms.insert(id, AlarmWork::new(stored));
        }
        Ok(Self { now, tasks, alarms, others: Vec::new() })
    }

    /// Decides one item. Gives the reply where it waits for no change.
    pub(super) fn decide(&mut self, item: &Item, place: Place) -> Option<Reply> {
        match item {
            Item::Submit { task, done, key } => {
                match TaskWork::accept(task, done, kept(key.as_ref()), place, self.now) {
                    Ok(work) => {
                        self.tasks.insert(task.id, work);
                        None
                    }
                    Err(rejection) => Some(Reply::Rejected(rejection)),
                }
            }
            Item::Task { id, command, claim, logs } => {
                self.tasks.get_mut(id)?.decide(command, *claim, logs, place, self.now)
            }
            Item::Message(Envelope { id, message: Message::Alarm { id: alarm, command } }) => {
                self.decide_alarm(alarm, command, Some(*id), place)
            }
            Item::Alarm { id, command } => self.decide_alarm(id, command, None, place),
            Item::Change(change) => {
                self.others.push((change.clone(), place));
                None
            }
        }
    }

    fn decide_alarm(
        &mut self,
        id: &AlarmId,
        command: &AlarmCommand,
        consumes: Option<MessageId>,
        place: Place,
    ) -> Option<Reply> {
        self.alarms.get_mut(id)?.decide(id, command, consumes, place, self.now.wall)
    }

    /// What is to be committed, and who waits for the outcome of each. Events are kept where somebody watches.
    pub(super) fn into_changes(self, watched: bool) -> (Vec<Change>, Vec<Part>) {
        let (mut changes, mut parts) = (Vec::new(), Vec::new());
        for work in self.tasks.into_values() {
            let TaskWork { loaded, change, pending, stops } = work;
            let (Some(loaded), Some(change)) = (loaded, change) else {
                debug_assert!(pending.is_empty(), "only a change has an outcome to wait for");
                continue;
            };
            let events = watched.then(|| change.events.clone());
            let logs = Logged::of(&change.logs, watched);
            let task = TaskPart { loaded, events, has_timer: has_timer(&change), stops };
            changes.push(Change::Task(Box::new(change)));
            parts.push(Part { pending, task: Some(task), logs });
        }
        for (change, pending) in self.alarms.into_values().flat_map(|work| work.changes) {
            changes.push(Change::Alarm(change));
            parts.push(Part { pending, task: None, logs: None });
        }
        for (change, place) in self.others {
            let logs = match &change {
                Change::Logs(lines) => Logged::of(lines, watched),
                _ => None,
            };
            changes.push(change);
            let pending = vec![Pending { place, reply: Some(Reply::Done) }];
            parts.push(Part { pending, task: None, logs });
        }
        (changes, parts)
    }
}

fn has_timer(change: &TaskChange) -> bool {
    let timer = |effect: &Effect| matches!(effect, Effect::Wait(waiting) if waiting.due_at.is_some());
    change.waits.iter().any(timer) || !change.messages.is_empty()
}

/// The key a task is submitted under.
fn kept(key: Option<&SubmitKey>) -> Option<&SubmitKey> {
    key.filter(|_| !is_planted(Bug::NoSubmitKey))
}
