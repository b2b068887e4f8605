//! Locks whose rows are damaged: no step gets them until an operator opens them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{Flow, Lock, LockName, Name, Task, TaskId, version_after_damage};

use super::{DamagedLocks, Params, Recovered, RowSink, bodies::LOADED_AT_ONCE, scheduler::Scheduler};
use crate::port::{DamagedTask, Quarantine, StoreError};

/// Tasks at rest that are looked at together. Only those whose flows have locks are read whole.
const PAGE: usize = 1_000;

/// A lock that a task at rest has, and its fence.
pub(super) type HeldAtRest = (LockName, u64);

/// The locks that tasks at rest have. They are read only where a lock's row is damaged: the name in such a row may be
/// another one than was written.
pub(super) async fn held_at_rest(
    sink: &dyn RowSink,
    recovered: &Recovered,
) -> Result<Vec<HeldAtRest>, StoreError> {
    let mut held = Vec::new();
    if recovered.damaged_locks.is_empty() {
        return Ok(held);
    }
    let has_locks =
        |flow: &Flow| flow.exclusive.is_some() || flow.steps.iter().any(|step| !step.locks.is_empty());
    let flows = recovered.flows.iter().map(|stored| &stored.flow).filter(|flow| has_locks(flow));
    let flows: BTreeMap<(&str, u32), &Arc<Flow>> =
        flows.map(|flow| ((flow.name.as_str(), flow.version), flow)).collect();
    let mut before = TaskId(u128::MAX);
    loop {
        let page = sink.resting_page(before, PAGE, Params::LeftOut).await?;
        let mut wanted = Vec::new();
        // The id of a damaged row may be any: the next page begins behind the last sound one.
        let sound = || page.iter().filter_map(|read| read.as_ref().ok());
        for row in sound().filter(|row| flows.contains_key(&(row.flow.as_str(), row.version))) {
            wanted.push(row.id);
        }
        let is_last = page.len() < PAGE || sound().next().is_none();
        before = sound().map(|row| row.id).fold(before, TaskId::min);
        for some in wanted.chunks(LOADED_AT_ONCE) {
            // A damaged task is reported when it wakes.
            for row in sink.load(some).await?.into_iter().flatten().flatten() {
                let flow = |name: &str, version| flows.get(&(name, version)).map(|flow| Arc::clone(flow));
                if let Ok(task) = row.into_task(flow) {
                    held.extend(held_by(&task));
                }
            }
        }
        if is_last {
            return Ok(held);
        }
    }
}

/// The exclusive queue of a task and the locks that its steps have, with their fences.
fn held_by(task: &Task) -> Vec<HeldAtRest> {
    let queue = task.queue_fence().map(|(name, fence)| (name.clone(), fence));
    let acts = task.open_acts();
    let locks = acts.flat_map(|(_, act)| act.locks().to_vec()).filter(|lock| lock.is_held());
    queue.into_iter().chain(locks.map(|lock| (lock.name, lock.fence.unwrap_or(0)))).collect()
}

impl Scheduler {
    /// Closes the locks whose rows are damaged, with fences above all that they may have had. The name in such a row may be
    /// another one than was written. So those locks are closed as well that are not stored, though a task has them.
    pub(super) fn close_locks(
        &mut self,
        damaged: &DamagedLocks,
        at_rest: &[HeldAtRest],
        quarantine: &Quarantine,
    ) {
        if !damaged.is_empty() {
            let mut closed: BTreeMap<&Name, &str> = BTreeMap::new();
            let active = self.active.values().flat_map(|entry| held_by(&entry.task));
            let has: BTreeSet<HeldAtRest> = active.chain(at_rest.iter().cloned()).collect();
            let missing = has.iter().filter(|(name, _)| !self.locks.contains_key(name));
            closed.extend(missing.map(|(name, _)| (name, "a task has it, and it is not stored")));
            closed.extend(damaged.iter().filter_map(|(name, fault)| Some((name.as_ref()?, fault.as_str()))));
            let fences = self.locks.values().filter_map(|lock| lock.holder).map(|holder| holder.fence);
            let places = self.locks.values().filter_map(Lock::last_place);
            let versions = self.locks.values().map(|lock| lock.version);
            let known = versions.chain(fences).chain(places).chain(has.iter().map(|(_, fence)| *fence));
            let version = version_after_damage(known.chain([self.lock_floor]));
            // No task names a lock that a leader has: if its row has another name now, the lock counts as not stored.
            self.lock_floor = self.lock_floor.max(version);
            for (name, fault) in closed {
                quarantine.add(DamagedTask::closed_lock(name, Some(fault)));
                let lock = self.locks.entry(name.clone()).or_insert_with(|| Lock::new(name.clone(), 0));
                lock.close(version);
            }
        }
        // One that was closed before, and changed since, has a sound row.
        for lock in self.locks.values().filter(|lock| lock.is_closed()) {
            quarantine.add(DamagedTask::closed_lock(&lock.name, None));
        }
    }
}
