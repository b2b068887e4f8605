//! Building the state in memory from what the sink has: at a start, and after a failed write.

use std::collections::BTreeSet;

use windlass_core::{
    ActKey, Millis, Task, TaskId, Timestamp, Wakeup,
    planted::{Bug, is_planted},
    waits,
};

use super::{
    Line, LinePlace, Recovered, RestPolicy,
    bodies::Bodies,
    claims::Held,
    damaged_locks::HeldAtRest,
    entry::{Entry, may_have_been_handed_out},
    limits::LimitUse,
    rest::ready_act,
    scheduler::Scheduler,
};
use crate::port::{Quarantine, StoreError, StoredFlow};

impl Scheduler {
    /// The state in memory for what was recovered. Ready attempts wait in `recovered` for the adoption grace. Damaged
    /// tasks are left out, and are in `quarantine` from then on. `at_rest` are the locks of tasks that are not recovered.
    pub(super) fn recover(
        recovered: Recovered,
        at_rest: &[HeldAtRest],
        quarantine: &Quarantine,
        policy: &RestPolicy,
    ) -> Result<Self, StoreError> {
        let mut scheduler = Self { bodies: Bodies::new(policy), ..Self::default() };
        let mut flows = recovered.flows;
        flows.sort_by(|one, other| {
            (&one.flow.name, one.flow.version).cmp(&(&other.flow.name, other.flow.version))
        });
        for stored in flows {
            scheduler.flows.entry(stored.flow.name.clone()).or_default().push(stored);
        }
        for (name, version) in recovered.damaged_flows {
            scheduler.damaged_flows.entry(name).or_default().insert(version);
        }
        for queue in recovered.queues {
            scheduler.queues.set_paused(&queue.name, queue.paused);
        }
        for limit in recovered.limits {
            scheduler.queues.set_limit(LimitUse::new(limit));
        }
        let records = recovered.records.into_iter();
        scheduler.records = records.map(|record| ((record.kind, record.name.clone()), record)).collect();
        scheduler.messages =
            recovered.messages.into_iter().map(|envelope| (envelope.id.clone(), envelope)).collect();
        scheduler.lock_floor = recovered.lock_floor;
        scheduler.locks = recovered.locks.into_iter().map(|lock| (lock.name.clone(), lock)).collect();
        for line in recovered.lines {
            scheduler.queues.recover_line(&line);
        }
        for row in recovered.tasks {
            let (id, rests, is_body_away) = (row.id, row.never_handed_out, row.is_body_away);
            let flow = |name: &str, version: u32| scheduler.flow(name, Some(version));
            let task = row.into_task(|name, version| flow(name, version).map(|stored| stored.flow));
            if let Some(task) = quarantine.readable(id, task)? {
                scheduler.recover_task(task, rests, is_body_away);
            }
        }
        recovered.damaged.into_iter().for_each(|damaged| quarantine.add(damaged));
        scheduler.close_locks(&recovered.damaged_locks, at_rest, quarantine);
        scheduler.queues.awaits_holders = !scheduler.recovered.is_empty();
        Ok(scheduler)
    }

    fn recover_task(&mut self, task: Task, rests: bool, is_body_away: bool) {
        let id = task.id;
        let waits = waits(&task);
        let handed_out = may_have_been_handed_out(&task);
        let mut entry = Entry::read(task, is_body_away, handed_out);
        // Its attempt may be in somebody's hands, so the limit of its line stays behind it.
        entry.rests_on_disk = rests;
        for (_, ready) in waits.iter().filter_map(ready_act).filter(|_| rests) {
            self.queues.keep_limit_behind(&Line::of(ready), LinePlace { rank: ready.rank, task: id });
        }
        self.enter(id, entry);
        for wait in waits {
            match (wait.key, &wait.ready) {
                (Wakeup::Act(_), Some(_)) if is_planted(Bug::ReadyForgotten) => {}
                (Wakeup::Deadline, _) if is_planted(Bug::TaskDeadlineForgotten) => {}
                (Wakeup::Act(key), Some(_)) => {
                    self.recovered.insert((id, key), wait.attempt);
                }
                _ => self.publish_wait(id, &wait),
            }
        }
    }

    /// The adoption grace is over: what nobody named is handed out. Of a task of which a change is on its way to the
    /// disk it waits for that: what is to become of it may be another then.
    pub(super) fn end_grace(&mut self) {
        self.queues.awaits_holders = false;
        let tasks: BTreeSet<TaskId> = self.recovered.keys().map(|(id, _)| *id).collect();
        tasks.into_iter().for_each(|id| self.end_grace_of(id));
    }

    /// Publishes what nobody named of a task, once the grace is over and the task is on disk as it is in memory.
    pub(super) fn end_grace_of(&mut self, id: TaskId) {
        let under_way = self.active.get(&id).is_some_and(|entry| entry.under_way > 0);
        if self.recovered.is_empty() || self.queues.awaits_holders || under_way {
            return;
        }
        let of_task = self.recovered.range((id, ActKey::forward(0))..).take_while(|((of, _), _)| *of == id);
        let unnamed: Vec<(ActKey, u32)> = of_task.map(|((_, key), attempt)| (*key, *attempt)).collect();
        for (key, attempt) in unnamed {
            self.recovered.remove(&(id, key));
            let act = self.active.get(&id).and_then(|entry| entry.task.act(key));
            if act.is_some_and(|act| act.attempt == attempt) {
                self.publish_ready(id, key);
            }
        }
    }

    /// Puts the ready attempt of an act into its queue.
    pub(super) fn publish_ready(&mut self, id: TaskId, key: ActKey) {
        let wait =
            self.active.get(&id).and_then(|entry| windlass_core::waiting(&entry.task, Wakeup::Act(key)));
        if let Some(wait) = wait {
            self.publish_wait(id, &wait);
        }
    }

    /// Takes over what workers had before a failed write, as far as it is still current. `dropped` are claims
    /// that changes ended which were not written: their workers report again.
    pub(super) fn take_over(&mut self, before: Self, dropped: impl Iterator<Item = (TaskId, Held)>) {
        self.generation = before.generation + 1;
        self.sessions = before.sessions;
        // Reads go on; what was read before is void.
        self.reads = before.reads;
        self.queues.take_over_starts(before.queues);
        // What was in memory may rest by now, and the other way round.
        self.woken = before.woken + 1;
        for (task, mut held) in before.claims.into_all().chain(dropped) {
            let entry = self.active.get(&task);
            if entry.is_some_and(|entry| entry.task.has_ready(held.key, held.attempt)) {
                self.sessions.hold_again(held.session, task, held.key, held.at, Millis(0));
                self.queues.hold(&held);
                held.keep_at = held.keep_at.filter(|_| self.begins_deadline(task, held.key));
                self.claims.insert(task, held);
            } else {
                self.sessions.drop_hold(held.session, task, held.key);
            }
        }
    }

    /// The flow with this name: that version, or the newest.
    pub(super) fn flow(&self, name: &str, version: Option<u32>) -> Option<StoredFlow> {
        let versions = self.flows.get(name)?;
        match version {
            None => versions.last().cloned(),
            Some(version) => {
                let is_wanted = |stored: &&StoredFlow| stored.flow.version == version;
                let at = usize::try_from(version).ok()?.checked_sub(1)?;
                // It is elsewhere where an older version is damaged.
                versions.get(at).filter(is_wanted).or_else(|| versions.iter().find(is_wanted)).cloned()
            }
        }
    }

    /// As [`Scheduler::flow`]. A damaged version is not replaced by another: no task starts with an older version than
    /// the newest, and its number is not used again.
    pub(super) fn readable_flow(
        &self,
        name: &str,
        version: Option<u32>,
    ) -> Result<Option<StoredFlow>, StoreError> {
        let found = self.flow(name, version);
        let damaged = self.damaged_flows.get(name).into_iter().flatten().find(|damaged| match version {
            Some(version) => found.is_none() && **damaged == version,
            None => found.as_ref().is_none_or(|stored| stored.flow.version < **damaged),
        });
        match damaged {
            Some(damaged) => Err(StoreError::Damaged(format!("flow {name} version {damaged}"))),
            None => Ok(found),
        }
    }

    /// The latest time anything active has seen.
    pub(super) fn latest_at(&self) -> Timestamp {
        self.active.values().map(|entry| entry.task.input.created_at).max().unwrap_or_default()
    }
}
