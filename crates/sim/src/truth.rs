//! What is on disk, put together from what stores have written: the truth that everything told is held against.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use windlass_core::{Alarm, AlarmId, Event, Task, TaskId, evolve};
use windlass_engine::ports::{Change, TaskChange};

use crate::{
    judge::{Seen, Violation},
    world::World,
};

/// What is on disk.
#[derive(Default)]
pub(crate) struct Truth {
    pub(crate) tasks: BTreeMap<TaskId, Known>,
    pub(crate) alarms: BTreeMap<AlarmId, Alarm>,
    unfinished: Vec<TaskId>,
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
            Seen::Written(Change::Task(change)) => self.see_task(change, world),
            Seen::Written(Change::Alarm(change)) => {
                if let Some(alarm) = &change.alarm {
                    self.alarms.insert(alarm.id.clone(), alarm.clone());
                }
                Ok(())
            }
            _ => Ok(()),
        }
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
        if !self.tasks.contains_key(&id) {
            self.unfinished.push(id);
        }
        if task.is_ended() {
            self.unfinished.retain(|other| *other != id);
        }
        let key = match &change.submit_key {
            Some(key) => Some(key.scope),
            None => self.tasks.get(&id).and_then(|known| known.key),
        };
        let known = Known { task: Rc::new(task), before, events: change.events.clone(), key };
        self.tasks.insert(id, known);
        Ok(())
    }

    pub(crate) fn unfinished(&self) -> Vec<Rc<Task>> {
        self.unfinished.iter().filter_map(|id| self.tasks.get(id)).map(|known| known.task.clone()).collect()
    }

    /// Whether every task has come to its end.
    pub(crate) fn is_all_ended(&self) -> bool {
        self.unfinished.is_empty()
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

    pub(crate) fn any_alarm(&self, world: &World) -> Option<AlarmId> {
        let ids: Vec<AlarmId> = self.alarms.keys().cloned().collect();
        world.choose(&ids).cloned()
    }
}
