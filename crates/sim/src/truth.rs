//! What is on disk, put together from what stores have written: the truth that everything told is held against.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use windlass_core::{ActState, Alarm, AlarmId, AlarmKind, Event, Lock, Name, Task, TaskId, evolve};
use windlass_store::{AttemptId, Change, TaskChange};

use crate::{
    damage::Damage,
    judge::{Seen, Violation},
    rows::{Post, Rules},
    world::World,
};

/// What is on disk.
#[derive(Default)]
pub(crate) struct Truth {
    pub(crate) tasks: BTreeMap<TaskId, Known>,
    pub(crate) alarms: BTreeMap<AlarmId, Alarm>,
    pub(crate) post: Post,
    /// What servers go by now; on disk it may be another.
    pub(crate) rules: Rules,
    /// Grows with everything that happens to what is stored.
    pub(crate) version: u64,
    rules_on_disk: Rules,
    /// Tasks as the server goes by them, as long as that is on its way to the disk.
    staged: BTreeMap<TaskId, Arc<Task>>,
    unfinished: Vec<TaskId>,
    /// Tasks whose rows are damaged.
    damage: Damage,
    /// Up to which event tasks are announced.
    announced: BTreeMap<TaskId, u64>,
    /// Tasks of which that is not the last.
    unannounced: BTreeSet<TaskId>,
    /// Up to which event the task that was announced last had been before.
    announced_before: u64,
}

/// A task on disk.
pub(crate) struct Known {
    pub(crate) task: Rc<Task>,
    /// Before the last change.
    pub(crate) before: Rc<Task>,
    /// What happened in the last change.
    pub(crate) events: Vec<Event>,
    pub(crate) key: Option<[u8; 32]>,
}

impl Truth {
    pub(crate) fn see(&mut self, seen: &Seen, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(change) => self.see_written(change, world),
            Seen::Staged(batch) => {
                self.version += 1;
                for change in &batch.changes {
                    self.rules.apply(change);
                    if let Change::Task(change) = change {
                        self.staged.insert(change.task.id, change.task.clone());
                    }
                }
                Ok(())
            }
            Seen::Announced { task, n } => {
                let announced = self.announced.entry(*task).or_default();
                self.announced_before = *announced;
                *announced = (*announced).max(*n);
                if self.tasks.get(task).is_some_and(|known| known.task.state.events == *announced) {
                    self.unannounced.remove(task);
                }
                Ok(())
            }
            Seen::Recovered => {
                self.version += 1;
                self.rules = self.rules_on_disk.clone();
                self.staged.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn see_written(&mut self, change: &Change, world: &World) -> Result<(), Violation> {
        self.version += 1;
        self.post.apply(change);
        self.rules_on_disk.apply(change);
        if world.config.shared {
            self.rules.apply(change);
        }
        match change {
            Change::Task(change) => {
                self.see_task(change, world)?;
                let id = change.task.id;
                if self.staged.get(&id).is_some_and(|staged| Arc::ptr_eq(staged, &change.task)) {
                    self.staged.remove(&id);
                }
            }
            Change::Alarm(change) => {
                if let Some(alarm) = &change.alarm {
                    self.alarms.insert(alarm.id.clone(), alarm.clone());
                }
            }
            Change::Queue(change) => {
                world.tell(|| format!("queue {}: paused {:?}", change.name, change.paused))
            }
            _ => {}
        }
        Ok(())
    }

    /// The task as servers go by it, on disk or on its way there.
    pub(crate) fn task_now(&self, id: TaskId) -> Option<&Task> {
        let staged = self.staged.get(&id).map(|task| &**task);
        staged.or_else(|| self.tasks.get(&id).map(|known| &*known.task))
    }

    /// Whether this attempt is one that a worker may have: as far as servers know nothing came of it yet.
    pub(crate) fn is_current(&self, id: &AttemptId) -> bool {
        let act = self.task_now(id.task).and_then(|task| task.act(id.key));
        act.is_some_and(|act| act.state == ActState::Ready && act.attempt == id.attempt)
    }

    /// Law: what happened to a task, replayed, gives the task.
    fn see_task(&mut self, change: &TaskChange, world: &World) -> Result<(), Violation> {
        let id = change.task.id;
        let broken = |message: String| Violation { task: Some(id), ..Violation::new("replay", message) };
        let before = match self.tasks.get(&id) {
            Some(known) => known.task.clone(),
            None => Rc::new(Task::new(id, Arc::clone(&change.task.flow), Arc::clone(&change.task.input))),
        };
        if before.state.events != change.before {
            return Err(broken(format!(
                "task {id} has {} events on disk and was changed as if it had {}",
                before.state.events, change.before
            )));
        }
        let mut task = Task::clone(&before);
        for event in &change.events {
            world.tell(|| format!("task {id}: {:?}", event.kind));
            evolve(&mut task, event);
        }
        if task != *change.task {
            return Err(broken(format!("the events of task {id} do not give its state")));
        }
        // A child that had succeeded goes on when it is undone.
        if !self.tasks.contains_key(&id) || before.is_ended() && !task.is_ended() {
            self.unfinished.push(id);
        }
        if task.is_ended() {
            self.unfinished.retain(|other| *other != id);
        }
        let key = match &change.submit_key {
            Some(key) => Some(key.scope),
            None => self.tasks.get(&id).and_then(|known| known.key),
        };
        self.unannounced.insert(id);
        let known = Known { task: Rc::new(task), before, events: change.events.clone(), key };
        self.tasks.insert(id, known);
        Ok(())
    }

    /// Tasks that must come to their end still: all but those whose rows are damaged, and those that wait for these.
    pub(crate) fn unfinished(&self) -> Vec<Rc<Task>> {
        let is_sound = |id: &&TaskId| !self.is_spoiled(**id);
        let sound = self.unfinished.iter().filter(is_sound).filter_map(|id| self.tasks.get(id));
        sound.map(|known| known.task.clone()).collect()
    }

    /// Tasks that have not ended and can be read, also those that may never end.
    pub(crate) fn readable(&self) -> Vec<Rc<Task>> {
        let readable = self.unfinished.iter().filter(|id| !self.is_damaged(**id));
        readable.filter_map(|id| self.tasks.get(id)).map(|known| known.task.clone()).collect()
    }

    /// The rows of a task cannot be read any more.
    pub(crate) fn damage(&mut self, task: TaskId) {
        self.version += 1;
        self.damage.add(task);
    }

    /// Whether the rows of a task are damaged.
    pub(crate) fn is_damaged(&self, task: TaskId) -> bool {
        self.damage.has(task)
    }

    /// Whether the rows of a task are damaged, or those of one that it waits for.
    pub(crate) fn is_spoiled(&self, task: TaskId) -> bool {
        self.damage.concerns(task, &self.tasks)
    }

    /// Locks that nobody may give back, because the rows of their holders are damaged, or of tasks that these wait for.
    pub(crate) fn spoiled_locks(&self) -> Vec<Name> {
        let is_spoiled = |lock: &&Lock| lock.holder.is_some_and(|holder| self.is_spoiled(holder.owner.task));
        self.post.locks.values().filter(is_spoiled).map(|lock| lock.name.clone()).collect()
    }

    /// How many alarms name a task with damaged rows.
    pub(crate) fn damage_alarms(&self) -> usize {
        self.alarms.values().filter(|alarm| alarm.kind == AlarmKind::DamagedRow).count()
    }

    /// Up to which event the task that was announced last had been before.
    pub(crate) fn announced_before(&self) -> u64 {
        self.announced_before
    }

    /// A task of which not every event is announced.
    pub(crate) fn unannounced(&self) -> Option<TaskId> {
        self.unannounced.iter().find(|task| !self.damage.has(**task)).copied()
    }

    /// Whether every task has come to its end.
    pub(crate) fn is_all_ended(&self) -> bool {
        self.unfinished.iter().all(|task| self.is_spoiled(*task))
    }

    /// Any task, mostly one that has not ended.
    pub(crate) fn any_task(&self, world: &World) -> Option<Rc<Task>> {
        let id = if world.chance(800) { world.choose(&self.unfinished).copied() } else { None };
        let id = id.or_else(|| {
            let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
            world.choose(&ids).copied()
        });
        id.and_then(|id| self.tasks.get(&id)).map(|known| known.task.clone())
    }

    /// Any task that has ended.
    pub(crate) fn any_ended(&self, world: &World) -> Option<Rc<Task>> {
        let ended: Vec<&Known> = self.tasks.values().filter(|known| known.task.is_ended()).collect();
        world.choose(&ended).map(|known| known.task.clone())
    }

    pub(crate) fn any_alarm(&self, world: &World) -> Option<AlarmId> {
        let ids: Vec<AlarmId> = self.alarms.keys().cloned().collect();
        world.choose(&ids).cloned()
    }
}
