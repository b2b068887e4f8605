//! Jobs that were claimed and not published. Those of devices that are offline cost nothing until their devices are online.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use windlass_core::{JobMessage, Millis, Name};
use windlass_store::AttemptId;

/// A job that was claimed and not published.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) device: Name,
    /// The version of the task as it was last seen.
    pub(super) version: u64,
    /// What its device gets as the `attempt`.
    pub(super) number: u64,
    pub(super) message: JobMessage,
    /// See [`super::running::timeout_without_settle`].
    pub(super) timeout: Option<Millis>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Waiters {
    jobs: BTreeMap<AttemptId, Waiting>,
    /// The job of each device: it has one at a time.
    by_device: BTreeMap<Name, AttemptId>,
    /// Those whose devices may be online.
    sendable: BTreeSet<AttemptId>,
    /// Where the last look at some of them ended.
    looked_to: Option<AttemptId>,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn contains(&self, id: &AttemptId) -> bool {
        self.jobs.contains_key(id)
    }

    pub(super) fn add(&mut self, id: AttemptId, waiting: Waiting) {
        self.by_device.insert(waiting.device.clone(), id);
        self.jobs.insert(id, waiting);
        self.sendable.insert(id);
    }

    pub(super) fn remove(&mut self, id: &AttemptId) {
        self.sendable.remove(id);
        if let Some(waiting) = self.jobs.remove(id)
            && self.by_device.get(&waiting.device) == Some(id)
        {
            self.by_device.remove(&waiting.device);
        }
    }

    /// The device of a job.
    pub(super) fn device(&self, id: &AttemptId) -> Option<&Name> {
        self.jobs.get(id).map(|waiting| &waiting.device)
    }

    pub(super) fn get_mut(&mut self, id: &AttemptId) -> Option<&mut Waiting> {
        self.jobs.get_mut(id)
    }

    /// A device may be online from now on.
    pub(super) fn may_be_online(&mut self, device: &Name) {
        self.sendable.extend(self.by_device.get(device));
    }

    /// The devices were read again: any of them may be online.
    pub(super) fn may_all_be_online(&mut self) {
        self.sendable.extend(self.jobs.keys());
    }

    /// The next jobs whose devices are online. Those of devices that are not wait until they may be.
    pub(super) fn sendable(
        &mut self,
        limit: usize,
        is_online: impl Fn(&Name) -> bool,
    ) -> Vec<(AttemptId, Waiting)> {
        let (mut found, mut offline) = (Vec::new(), Vec::new());
        for id in &self.sendable {
            if found.len() == limit {
                break;
            }
            match self.jobs.get(id).filter(|waiting| is_online(&waiting.device)) {
                Some(waiting) => found.push((*id, waiting.clone())),
                None => offline.push(*id),
            }
        }
        for id in offline {
            self.sendable.remove(&id);
        }
        found
    }

    /// At most `limit` of them with the versions of their tasks: others than those of the last look, as far as there are any.
    pub(super) fn look(&mut self, limit: usize) -> Vec<(AttemptId, u64)> {
        let from = self.looked_to.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.jobs.range((from, Bound::Unbounded)).take(limit);
        let found: Vec<_> = rest.map(|(id, waiting)| (*id, waiting.version)).collect();
        self.looked_to = found.last().map(|(id, _)| *id).filter(|_| found.len() == limit);
        found
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{ActKey, Json, TaskId};

    use super::*;

    fn id(task: u128) -> AttemptId {
        AttemptId { task: TaskId(task), key: ActKey::forward(0), attempt: 1, claim: 1 }
    }

    fn waiting(device: &str) -> Waiting {
        let message = JobMessage { topic: "t".into(), args: Json::empty() };
        Waiting { device: Name::new(device).unwrap(), version: 1, number: 1, message, timeout: None }
    }

    fn tasks(found: &[(AttemptId, Waiting)]) -> Vec<u128> {
        found.iter().map(|(id, _)| id.task.0).collect()
    }

    #[test]
    fn jobs_of_devices_that_are_offline_are_looked_at_once() {
        let mut waiters = Waiters::default();
        for (task, device) in [(1, "off"), (2, "on"), (3, "other")] {
            waiters.add(id(task), waiting(device));
        }
        let looks = std::cell::Cell::new(0);
        let only = |wanted: &'static str| {
            let looks = &looks;
            move |device: &Name| {
                looks.set(looks.get() + 1);
                device.as_str() == wanted
            }
        };
        assert_eq!(tasks(&waiters.sendable(10, only("on"))), [2]);
        waiters.remove(&id(2));
        looks.set(0);
        assert!(waiters.sendable(10, only("off")).is_empty());
        assert_eq!(looks.get(), 0, "nobody said that it may be online");
        waiters.may_be_online(&Name::new("off").unwrap());
        assert_eq!(tasks(&waiters.sendable(10, only("off"))), [1]);
        waiters.remove(&id(1));
        waiters.may_be_online(&Name::new("off").unwrap());
        waiters.may_all_be_online();
        assert_eq!(tasks(&waiters.sendable(10, |_| true)), [3]);
        assert_eq!(waiters.len(), 1);
    }

    #[test]
    fn a_look_goes_on_where_the_last_one_ended() {
        let mut waiters = Waiters::default();
        for task in 1..=5 {
            waiters.add(id(task), waiting(&format!("d{task}")));
        }
        let mut look = || waiters.look(2).iter().map(|(id, _)| id.task.0).collect::<Vec<_>>();
        assert_eq!([look(), look(), look(), look()], [vec![1, 2], vec![3, 4], vec![5], vec![1, 2]]);
    }
}
