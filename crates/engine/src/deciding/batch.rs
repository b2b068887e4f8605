//! A batch under construction: its tasks, locks and alarms, each in its state after the items decided so far.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{
    AlarmCommand, AlarmId, ChildCommand, Command, Flow, LockCommand, LockName, Message, Name, TaskId,
    planted::{Bug, is_planted},
};
use windlass_store::{Change, Envelope, MessageId, Now, StoreError};

use crate::{
    Engine,
    deciding::{
        alarm_work::AlarmWork,
        inbox::{Item, NewTask, Reply},
        lock_work::LockWork,
        part::{Logged, Part, Pending, TaskPart, has_timer},
        task_work::{Refusal, TaskStep, TaskWork},
    },
    queries::observer::Observed,
};

/// The position of an item: the index of its operation, and its index in that operation.
pub(super) type Place = (usize, usize);

/// The tasks, locks and alarms of a batch, each in its state after the items decided so far.
pub(super) struct Batch {
    pub(super) now: Now,
    pub(super) tasks: BTreeMap<TaskId, TaskWork>,
    alarms: BTreeMap<AlarmId, AlarmWork>,
    pub(super) locks: BTreeMap<LockName, LockWork>,
    /// The newest versions of the flows whose tasks the batch starts.
    pub(super) flows: BTreeMap<Name, Arc<Flow>>,
    /// Messages that start a child task whose unique key belongs to another task, with that task. Found in an earlier
    /// round.
    pub(super) duplicates: BTreeMap<Place, TaskId>,
    /// Tasks taken from the task cache instead of the store.
    recalled: BTreeSet<TaskId>,
    /// Tasks that could not be read because their rows are damaged.
    damaged: BTreeMap<TaskId, StoreError>,
    /// Tasks that were not loaded: those before them are as many as memory is to hold at once.
    pub(super) unloaded: BTreeSet<TaskId>,
    others: Vec<(Change, Place)>,
    /// Messages of this batch that are delivered in its commit.
    pub(super) followed: BTreeSet<MessageId>,
    /// The number of steps that evaluating expressions took so far.
    pub(super) evaluated: u64,
}

/// The source of the tasks that decisions are based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Basis {
    /// The task cache of this server, as far as it has them.
    Known,
    /// The store.
    Stored,
}

impl Batch {
    pub(super) async fn load<'a>(
        engine: &Engine,
        items: impl Iterator<Item = &'a Item>,
        basis: Basis,
        now: Now,
    ) -> Result<Self, StoreError> {
        let (mut ids, mut known) = (Vec::new(), BTreeMap::new());
        let (mut alarm_ids, mut lock_names, mut flow_names) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for item in items {
            match item {
                Item::Task { id, command: Command::Report(report), claim: Some(claim), .. }
                    if basis == Basis::Known =>
                {
                    match engine.task_cache.reported(*id, &report.attempt, *claim) {
                        Some(loaded) => drop(known.insert(*id, loaded)),
                        None => ids.push(*id),
                    }
                }
                Item::Task { id, .. } => ids.push(*id),
                Item::Lost { claimed, .. } => ids.push(claimed.id.task),
                Item::Alarm { id, .. } => drop(alarm_ids.insert(id.clone())),
                Item::Lock { name, .. } => drop(lock_names.insert(name.clone())),
                Item::Message(Envelope { message, .. }) => match message {
                    Message::Alarm { id, .. } => drop(alarm_ids.insert(id.clone())),
                    Message::Lock { name, .. } => drop(lock_names.insert(name.clone())),
                    Message::Granted { owner, name, .. } => {
                        ids.push(owner.task);
                        lock_names.insert(name.clone());
                    }
                    Message::Seized { owner, .. } => ids.push(owner.task),
                    Message::Child { child, parent, command } => {
                        ids.extend([*child, parent.task]);
                        if let ChildCommand::Start(start) = command {
                            flow_names.insert(start.flow.clone());
                        }
                    }
                    Message::ChildEnded { parent, .. } => ids.push(*parent),
                },
                Item::Submit(_) | Item::Change(_) => {}
            }
        }
        // The store may load only the first ones: those of the oldest items, so that all are decided in their turn.
        let mut listed = BTreeSet::new();
        ids.retain(|id| listed.insert(*id));
        known.retain(|id, _| !listed.contains(id));
        let loaded = if ids.is_empty() { Vec::new() } else { engine.store.load_first(&ids).await? };
        let unloaded = ids.split_off(loaded.len()).into_iter().collect();
        let is_there = loaded.iter().map(Option::is_some);
        let missing = ids.iter().zip(is_there).filter(|(_, is_there)| !is_there).map(|(id, _)| *id);
        let damaged = missing.filter_map(|id| Some((id, engine.store.quarantine().error(id)?))).collect();
        let recalled = known.keys().copied().collect();
        let known = known.into_iter().map(|(id, loaded)| (id, TaskWork::new(Some(loaded))));
        if basis == Basis::Stored {
            // Changes of a task whose queue has moved on are conflicts.
            let tasks = loaded.iter().flatten().map(|loaded| &loaded.task);
            lock_names.extend(tasks.filter_map(|task| task.queue_fence()).map(|(name, _)| name.clone()));
        }
        let tasks = ids.into_iter().zip(loaded.into_iter().map(TaskWork::new)).chain(known).collect();
        let alarms = load_alarms(engine, alarm_ids.into_iter().collect()).await?;
        let locks = load_locks(engine, lock_names.into_iter().collect()).await?;
        let mut flows = BTreeMap::new();
        for name in flow_names {
            let stored = match engine.store.flow(&name, None).await {
                // Only tasks that name this flow are refused.
                Err(StoreError::Damaged(_)) => None,
                found => found?,
            };
            flows.extend(stored.map(|stored| (name, stored.flow)));
        }
        // Loaded state may have been decided after this batch began. The time of the next events must not be before
        // that.
        let now = engine.latest.not_before(now);
        let duplicates = BTreeMap::new();
        let (others, followed, evaluated) = (Vec::new(), BTreeSet::new(), 0);
        Ok(Self {
            now,
            tasks,
            alarms,
            locks,
            flows,
            duplicates,
            recalled,
            damaged,
            unloaded,
            others,
            followed,
            evaluated,
        })
    }

    /// Whether an item is for a task that was not loaded, as too much was loaded before it.
    pub(super) fn is_on_unloaded(&self, item: &Item) -> bool {
        !self.unloaded.is_empty()
            && item.looks_at().into_iter().flatten().any(|id| self.unloaded.contains(&id))
    }

    /// Whether an item is decided on the task cache alone, without reading the store.
    pub(super) fn is_on_recalled(&self, item: &Item) -> bool {
        matches!(item, Item::Task { id, .. } if self.recalled.contains(id))
    }

    /// Decides one item. Returns the reply if it does not depend on a change of this batch.
    pub(super) fn decide(&mut self, item: &Item, place: Place) -> Option<Reply> {
        if let Some(error) = self.damage(item) {
            return Some(Reply::Damaged(error));
        }
        for id in item.looks_at().into_iter().flatten() {
            self.update_queue(id, place);
        }
        match item {
            // Another new task of this batch has the id. Once that task is on disk, the store refuses this one.
            Item::Submit(new) if self.task(new.task.id).is_some() => Some(Reply::Conflict),
            Item::Submit(new) => self.accept(new, None, place).err().map(Reply::from),
            Item::Task { id, command, claim, logs } => {
                self.on_task(*id, |task, now| task.decide(command, *claim, logs, place, now))?
            }
            Item::Lost { claimed, loss } => {
                self.on_task(claimed.id.task, |task, now| task.lose(claimed, *loss, place, now))?
            }
            Item::Message(envelope) => self.deliver(envelope, place),
            Item::Alarm { id, command } => self.decide_alarm(id, command, None, place),
            Item::Lock { name, command } => self.locks.get_mut(name)?.decide(command, place, self.now.wall),
            Item::Change(change) => {
                self.others.push((change.clone(), place));
                None
            }
        }
    }

    /// Adds a new task to the batch. `consumes` is the message by which another task started it.
    pub(super) fn accept(
        &mut self,
        new: &NewTask,
        consumes: Option<&MessageId>,
        place: Place,
    ) -> Result<(), Refusal> {
        let parent = new.task.input.parent.and_then(|parent| self.task(parent.task)).cloned();
        let mut work =
            TaskWork::accept(new, parent.as_deref(), consumes, place, self.now, &mut self.evaluated)?;
        self.evaluated += work.take_evaluated();
        self.tasks.insert(new.task.id, work);
        Ok(())
    }

    /// Applies `act` to a task of the batch. Returns `None` if the batch does not have the task.
    pub(super) fn on_task<T>(&mut self, id: TaskId, act: impl FnOnce(&mut TaskWork, Now) -> T) -> Option<T> {
        let task = self.tasks.get_mut(&id)?;
        let came_to = act(task, self.now);
        self.evaluated += task.take_evaluated();
        Some(came_to)
    }

    /// The flow of a task of the batch.
    pub(super) fn flow_of(&self, id: TaskId) -> Option<&Flow> {
        self.tasks.get(&id).and_then(TaskWork::task).map(|task| &*task.flow)
    }

    /// The error that prevents an item from being decided: a task it concerns cannot be read. A message for that task
    /// waits until an operator repairs the rows.
    fn damage(&self, item: &Item) -> Option<StoreError> {
        if self.damaged.is_empty() {
            return None;
        }
        item.tasks().into_iter().flatten().find_map(|id| self.damaged.get(&id)).cloned()
    }

    /// Decides a message. A message that finds nothing to do is consumed anyway. If that is because of an earlier
    /// decision of this batch, the message waits until that decision is committed: the result may differ then.
    fn deliver(&mut self, Envelope { id, message }: &Envelope, place: Place) -> Option<Reply> {
        let found = match message {
            Message::Alarm { id: alarm, command } => {
                return self.decide_alarm(alarm, command, Some(id.clone()), place);
            }
            Message::Lock { name, command } => self.tell_lock(name, command, id, place),
            Message::Granted { owner, name, .. }
                if self.rests_on_changes(message) && !self.is_wanted(owner, name)
                    || owner.is_task() && self.is_lock_changed(name) && !self.followed.contains(id) =>
            {
                return Some(Reply::Conflict);
            }
            // The parent must not rely on an end that this batch has only decided. If the same message is in the batch
            // twice, the first one rolls the child back, and the second one would report that to the parent under the
            // same message id.
            Message::Child { child, command: ChildCommand::Undo, .. } if self.is_changed(child) => {
                return Some(Reply::Conflict);
            }
            Message::Granted { owner, name, fence } => self.grant(*owner, name, *fence, id, place),
            Message::Seized { owner, .. } if owner.is_task() && !self.is_in_queue(owner) => false,
            Message::Seized { owner, name, fence, reason, by } => {
                let (name, reason, by) = (name.clone(), reason.clone(), by.clone());
                let command = Command::Seized { key: owner.key, name, fence: *fence, reason, by };
                self.tell_task(owner.task, &command, id, place)
            }
            Message::Child { child, parent, command } => self.tell_child(*child, *parent, command, id, place),
            Message::ChildEnded { parent, key, child, end } => {
                self.tell_parent(*parent, *key, *child, end.clone(), id, place)
            }
        };
        if !found {
            if self.rests_on_changes(message) {
                return Some(Reply::Conflict);
            }
            self.others.push((Change::Consume(id.clone()), place));
        }
        None
    }

    /// Whether this batch has changed a task.
    fn is_changed(&self, id: &TaskId) -> bool {
        self.tasks.get(id).is_some_and(|work| !work.steps.is_empty())
    }

    /// Whether this batch has changed a lock.
    fn is_lock_changed(&self, name: &LockName) -> bool {
        self.locks.get(name).is_some_and(|work| !work.changes.is_empty())
    }

    /// Whether this batch has changed the receiver of the message.
    fn rests_on_changes(&self, message: &Message) -> bool {
        let is_changed = |id: &TaskId| self.is_changed(id);
        match message {
            Message::Alarm { .. } => false,
            Message::Lock { name, .. } => self.is_lock_changed(name),
            Message::Granted { owner, .. } | Message::Seized { owner, .. } => is_changed(&owner.task),
            Message::Child { child, parent, .. } => is_changed(child) || is_changed(&parent.task),
            Message::ChildEnded { parent, .. } => is_changed(parent),
        }
    }

    pub(super) fn tell_task(
        &mut self,
        id: TaskId,
        command: &Command,
        message: &MessageId,
        place: Place,
    ) -> bool {
        self.on_task(id, |task, now| task.consume(command, message, place, now)).unwrap_or(false)
    }

    pub(super) fn tell_lock(
        &mut self,
        name: &LockName,
        command: &LockCommand,
        message: &MessageId,
        place: Place,
    ) -> bool {
        let (lock, now) = (self.locks.get_mut(name), self.now.wall);
        lock.is_some_and(|lock| lock.consume(command, message, place, now))
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

    /// The changes to commit, each with the items that wait for its outcome: what sends a message before what consumes
    /// it ([`follow_ups`](super::follow_ups)). Events are kept only for watchers.
    /// Changes are marked for the event outbox only if the server announces events.
    /// What was accepted and what ended is kept only for observers.
    pub(super) fn into_changes(
        self,
        watched: bool,
        announces: bool,
        observed: bool,
    ) -> (Vec<Change>, Vec<Part>) {
        let (mut changes, mut parts) = (Vec::new(), Vec::new());
        let (firsts, follow_ups): (Vec<_>, Vec<_>) =
            self.tasks.into_values().map(TaskWork::into_steps).unzip();
        let put_task = |step: TaskStep, changes: &mut Vec<Change>, parts: &mut Vec<Part>| {
            let TaskStep { mut change, loaded, pending, stops } = step;
            change.announces = announces && !(change.consumes.is_some() && is_planted(Bug::OutboxForgotten));
            let events = watched.then(|| change.events.clone());
            let seen = observed.then(|| Observed::of(&change.events));
            let logs = Logged::of(&change.logs, watched);
            let (has_timer, sends) = (has_timer(&change), !change.messages.is_empty());
            changes.push(Change::Task(Box::new(change)));
            let task = Some(TaskPart { loaded, events, seen, stops });
            parts.push(Part { pending, task, logs, has_timer, sends });
        };
        firsts.into_iter().flatten().for_each(|step| put_task(step, &mut changes, &mut parts));
        for (change, pending) in self.locks.into_values().flat_map(|work| work.changes) {
            let sends = !change.messages.is_empty();
            changes.push(Change::Lock(change));
            parts.push(Part { pending, task: None, logs: None, has_timer: false, sends });
        }
        follow_ups.into_iter().flatten().for_each(|step| put_task(step, &mut changes, &mut parts));
        for (change, pending) in self.alarms.into_values().flat_map(|work| work.changes) {
            changes.push(Change::Alarm(change));
            parts.push(Part { pending, task: None, logs: None, has_timer: false, sends: false });
        }
        for (change, place) in self.others {
            let logs = match &change {
                Change::Logs(lines) => Logged::of(lines, watched),
                _ => None,
            };
            changes.push(change);
            let pending = vec![Pending { place, reply: None }];
            parts.push(Part { pending, task: None, logs, has_timer: false, sends: false });
        }
        (changes, parts)
    }
}

async fn load_alarms(engine: &Engine, ids: Vec<AlarmId>) -> Result<BTreeMap<AlarmId, AlarmWork>, StoreError> {
    let stored = if ids.is_empty() { Vec::new() } else { engine.store.alarms_by_id(&ids).await? };
    Ok(ids.into_iter().zip(stored.into_iter().map(AlarmWork::new)).collect())
}

pub(super) async fn load_locks(
    engine: &Engine,
    names: Vec<LockName>,
) -> Result<BTreeMap<LockName, LockWork>, StoreError> {
    // Before they are read: what is read is of this generation or a later one.
    let generation = engine.store.generation();
    let locks = if names.is_empty() { Vec::new() } else { engine.store.locks_by_name(&names).await? };
    let work = locks.into_iter().map(|lock| LockWork::new(lock, generation));
    Ok(names.into_iter().zip(work).collect())
}
