//! The truth on disk, built from the writes of stores: everything that servers answer is checked against it.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use windlass_core::{
    ActState, Alarm, AlarmId, AlarmKind, Event, Lock, LockHolder, Name, OpenDevice, Rollout, Task, TaskId,
    evolve,
};
use windlass_store::{AttemptId, Change, Limit, RecordKind, TaskChange, memory::Row};

use crate::{
    damage::Damage,
    judge::{Seen, Violation},
    rows::{Post, Rollouts, Rules},
    world::World,
};

/// The state on disk.
#[derive(Default)]
pub(crate) struct Truth {
    pub(crate) tasks: BTreeMap<TaskId, Known>,
    pub(crate) alarms: BTreeMap<AlarmId, Alarm>,
    pub(crate) post: Post,
    pub(crate) rollouts: Rollouts,
    /// The rules that servers apply now; those on disk may differ.
    pub(crate) rules: Rules,
    /// Grows with every change of the stored state.
    pub(crate) version: u64,
    rules_on_disk: Rules,
    /// Tasks as the server uses them, while their changes are on their way to the disk.
    staged: BTreeMap<TaskId, Arc<Task>>,
    unfinished: Vec<TaskId>,
    /// Tasks whose rows are damaged.
    damage: Damage,
    /// Tasks with damaged announcements: their events behind these are not published.
    unannounceable: BTreeSet<TaskId>,
    /// The last published event of each task.
    announced: BTreeMap<TaskId, u64>,
    /// Tasks with unpublished events.
    unannounced: BTreeSet<TaskId>,
    /// The last published event, before the newest one, of the task published last.
    announced_before: u64,
}

/// A task on disk.
pub(crate) struct Known {
    pub(crate) task: Rc<Task>,
    /// The task before the last change.
    pub(crate) before: Rc<Task>,
    /// The events of the last change.
    pub(crate) events: Vec<Event>,
    pub(crate) key: Option<[u8; 32]>,
}

impl Truth {
    pub(crate) fn see(&mut self, seen: &Seen, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(change) => self.see_written(change, world),
            Seen::NotMoved(message) => Err(Violation::new("moved store", message.clone())),
            Seen::Moved(tasks) => {
                self.see_moved(tasks);
                Ok(())
            }
            Seen::Damaged(row) => {
                self.see_damaged(row);
                Ok(())
            }
            Seen::Staged(batch) => {
                self.version += 1;
                for change in &batch.changes {
                    if let Change::Limit(change) = change {
                        world.tell(|| format!("limit {}: {:?}", change.name, change.limit));
                    }
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
                    world.tell(|| {
                        format!("alarm {}: {:?}, raised {} times", alarm.id, alarm.state, alarm.raised)
                    });
                    self.alarms.insert(alarm.id.clone(), alarm.clone());
                }
            }
            Change::Record(change) if change.kind == RecordKind::Rollout => {
                self.rollouts.apply(change, world)?;
            }
            Change::Queue(change) => {
                world.tell(|| format!("queue {}: paused {:?}", change.name, change.paused))
            }
            _ => {}
        }
        Ok(())
    }

    /// The task as servers use it, on disk or staged.
    pub(crate) fn task_now(&self, id: TaskId) -> Option<&Task> {
        let staged = self.staged.get(&id).map(|task| &**task);
        staged.or_else(|| self.tasks.get(&id).map(|known| &*known.task))
    }

    /// Whether a worker may have this attempt: as far as servers know, it has no result yet.
    pub(crate) fn is_current(&self, id: &AttemptId) -> bool {
        let act = self.task_now(id.task).and_then(|task| task.act(id.key));
        act.is_some_and(|act| act.state == ActState::Ready && act.attempt == id.attempt)
    }

    /// The replay law: the events of a task, replayed, give its state.
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
        // A succeeded child becomes active again when it is rolled back.
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

    /// A rollout that must end and has not ended. One that waits for a task with damaged rows may never end: a server has
    /// that task in memory, where it may be paused.
    pub(crate) fn open_rollout(&self) -> Option<&Rollout> {
        let waits =
            |rollout: &&Rollout| rollout.open.iter().any(|OpenDevice(_, task, _)| self.is_spoiled(*task));
        self.rollouts.all().find(|rollout| !rollout.is_ended() && !waits(rollout))
    }

    /// Tasks that still must end: all except those with damaged rows, and those that wait for these.
    pub(crate) fn unfinished(&self) -> Vec<Rc<Task>> {
        let is_sound = |id: &&TaskId| !self.is_spoiled(**id);
        let sound = self.unfinished.iter().filter(is_sound).filter_map(|id| self.tasks.get(id));
        sound.map(|known| known.task.clone()).collect()
    }

    /// Readable tasks that have not ended, including those that may never end.
    pub(crate) fn readable(&self) -> Vec<Rc<Task>> {
        let readable = self.unfinished.iter().filter(|id| !self.is_damaged(**id));
        readable.filter_map(|id| self.tasks.get(id)).map(|known| known.task.clone()).collect()
    }

    /// An import keeps the states of tasks. It leaves out the unique key of a task beside an older one with the same key.
    fn see_moved(&mut self, tasks: &[Arc<Task>]) {
        self.version += 1;
        self.rollouts.move_to_another_store();
        for task in tasks {
            if let Some(known) = self.tasks.get_mut(&task.id).filter(|known| known.task.input != task.input) {
                known.task = Rc::new(Task { input: task.input.clone(), ..Task::clone(&known.task) });
            }
        }
    }

    /// A row became unreadable. A damaged lock is closed, and a damaged limit closes its queue.
    fn see_damaged(&mut self, row: &Row) {
        self.version += 1;
        match row {
            Row::Task(task) => self.damage.add(*task),
            Row::Announcement(announced) => drop(self.unannounceable.insert(announced.task)),
            Row::Lock(name) => {
                if let Some(lock) = self.post.locks.get_mut(name) {
                    (lock.holder, lock.leader) = (Some(LockHolder::unknown(lock.version)), None);
                }
            }
            Row::Limit(name) => {
                for rules in [&mut self.rules, &mut self.rules_on_disk] {
                    if let Some(limit) = rules.limits.get_mut(name) {
                        let (name, queue) = (limit.name.clone(), limit.queue.clone());
                        let running = Some(0);
                        *limit = Limit { name, queue, command: None, per_key: false, running, starts: None };
                    }
                }
            }
        }
    }

    /// Whether the rows of any task are damaged: an enqueued task that is a duplicate of it waits until they are repaired
    /// (world 1795490517620297).
    pub(crate) fn has_damaged_tasks(&self) -> bool {
        !self.damage.is_empty()
    }

    /// Whether the rows of a task are damaged.
    pub(crate) fn is_damaged(&self, task: TaskId) -> bool {
        self.damage.has(task)
    }

    /// Whether the rows of a task are damaged, or those of a task that it waits for.
    pub(crate) fn is_spoiled(&self, task: TaskId) -> bool {
        self.damage.concerns(task, &self.tasks)
    }

    /// Locks that cannot be released, because their rows are damaged, those of their holders, or of tasks that
    /// these wait for.
    pub(crate) fn spoiled_locks(&self) -> Vec<Name> {
        let is_spoiled = |lock: &&Lock| {
            lock.is_closed() || lock.holder.is_some_and(|holder| self.is_spoiled(holder.owner.task))
        };
        self.post.locks.values().filter(is_spoiled).map(|lock| lock.name.clone()).collect()
    }

    /// Limits that close their queues, because their rows are damaged.
    pub(crate) fn closed_limits(&self) -> Vec<Name> {
        let closed = self.rules.limits.values().filter(|limit| limit.running == Some(0));
        closed.map(|limit| limit.name.clone()).collect()
    }

    /// The number of alarms about tasks with damaged rows.
    pub(crate) fn damage_alarms(&self) -> usize {
        self.alarms.values().filter(|alarm| alarm.kind == AlarmKind::DamagedRow).count()
    }

    /// The last published event, before the newest one, of the task published last.
    pub(crate) fn announced_before(&self) -> u64 {
        self.announced_before
    }

    /// A task with unpublished events.
    pub(crate) fn unannounced(&self) -> Option<TaskId> {
        let is_sound = |task: &&TaskId| !self.damage.has(**task) && !self.unannounceable.contains(*task);
        self.unannounced.iter().find(is_sound).copied()
    }

    /// Whether every task has ended.
    pub(crate) fn is_all_ended(&self) -> bool {
        self.unfinished.iter().all(|task| self.is_spoiled(*task))
    }

    /// A random task, mostly one that has not ended.
    pub(crate) fn any_task(&self, world: &World) -> Option<Rc<Task>> {
        let id = if world.chance(800) { world.choose(&self.unfinished).copied() } else { None };
        let id = id.or_else(|| {
            let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
            world.choose(&ids).copied()
        });
        id.and_then(|id| self.tasks.get(&id)).map(|known| known.task.clone())
    }

    /// A random task that has ended.
    pub(crate) fn any_ended(&self, world: &World) -> Option<Rc<Task>> {
        let ended: Vec<&Known> = self.tasks.values().filter(|known| known.task.is_ended()).collect();
        world.choose(&ended).map(|known| known.task.clone())
    }

    pub(crate) fn any_alarm(&self, world: &World) -> Option<AlarmId> {
        let ids: Vec<AlarmId> = self.alarms.keys().cloned().collect();
        world.choose(&ids).cloned()
    }
}
