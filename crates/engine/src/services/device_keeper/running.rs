//! Jobs that devices have, as far as they end before the store ends them: the store adds the settle time of the flow to every
//! timeout, and devices that return `attempt` need none ([`windlass_core::Device::needs_settle`]).

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, Attempt, Command, Millis, Name, Task, Timestamp};
use windlass_store::{AttemptId, Claimed, Now, SessionId};

use super::{DeviceKeeper, device_of};
use crate::{EngineError, deciding::inbox::Item, services::leading::Led};

/// The maximum number of jobs that are ended in one round.
const ENDED_MAX: usize = 1_000;

/// Jobs read at once.
const PAGE: usize = 1_000;

/// A job that a device has.
#[derive(Clone, Copy)]
struct Job {
    id: AttemptId,
    since: Timestamp,
    /// When its timeout has passed, without a settle time.
    until: Millis,
}

/// One job of each device: it has one at a time.
#[derive(Default)]
pub(super) struct Running {
    jobs: BTreeMap<Name, Job>,
    by_time: BTreeSet<(Millis, Name)>,
}

impl Running {
    fn add(&mut self, device: Name, id: AttemptId, since: Timestamp, until: Millis) {
        self.remove(&device);
        self.by_time.insert((until, device.clone()));
        self.jobs.insert(device, Job { id, since, until });
    }

    fn remove(&mut self, device: &Name) {
        if let Some(job) = self.jobs.remove(device) {
            self.by_time.remove(&(job.until, device.clone()));
        }
    }

    /// This job of the device was answered.
    pub(super) fn has_ended(&mut self, device: &Name, id: &AttemptId) {
        if self.jobs.get(device).is_some_and(|job| (job.id.task, job.id.attempt) == (id.task, id.attempt)) {
            self.remove(device);
        }
    }

    /// The next job whose timeout has passed.
    fn pop(&mut self, now: Now) -> Option<(Name, Job)> {
        let device = self.by_time.first().filter(|(until, _)| *until <= now.mono)?.1.clone();
        let job = self.jobs.get(&device).copied()?;
        self.remove(&device);
        Some((device, job))
    }
}

impl DeviceKeeper {
    /// A device has this job since `since`. `timeout` is that of [`timeout_without_settle`].
    pub(super) fn note_running(
        &self,
        id: AttemptId,
        device: &Name,
        timeout: Option<Millis>,
        since: Timestamp,
        now: Now,
    ) {
        let Some(timeout) = timeout else { return };
        let left = timeout.0.saturating_sub((now.wall - since).0);
        let until = Millis(now.mono.0.saturating_add(left));
        self.state().running.add(device.clone(), id, since, until);
    }

    /// The jobs that devices got from the last server, or from this one before it was restarted.
    pub(super) async fn go_on_with_running(&self, now: Now) -> Result<(), EngineError> {
        for held in self.engine.store.held(SessionId::AFAR).await?.chunks(PAGE) {
            let ids: Vec<AttemptId> = held.iter().map(|claimed| claimed.id).collect();
            let tasks = self.engine.heads_of(&ids).await?;
            for Claimed { id, at, .. } in held {
                let Some(task) = tasks.get(&id.task).map(|loaded| &loaded.task) else { continue };
                if let Some(device) = device_of(task, id.key) {
                    self.note_running(*id, &device, timeout_without_settle(task, id.key), *at, now);
                }
            }
        }
        Ok(())
    }

    /// Ends jobs whose timeout has passed, of devices that return `attempt`. The store ends the others after the settle time.
    pub(super) async fn time_out(&self, led: Led, now: Now) -> Result<(), EngineError> {
        let mut items = Vec::new();
        {
            let mut state = self.state();
            while items.len() < ENDED_MAX
                && let Some((device, Job { id, since, .. })) = state.running.pop(now)
            {
                if state.fleet.device(&device).is_some_and(|device| !device.needs_settle()) {
                    let attempt = Attempt { key: id.key, number: id.attempt, started_at: Some(since) };
                    let command = Command::TimeOut(attempt);
                    items.push(Item::Task { id: id.task, command, claim: None, logs: Vec::new() });
                }
            }
        }
        if !items.is_empty() {
            // One that has ended meanwhile is refused, and nothing else follows from that.
            self.engine.inbox.decide_as(led.lease, items).await?;
        }
        Ok(())
    }
}

/// The timeout of a job whose flow has a settle time, without that time.
pub(super) fn timeout_without_settle(task: &Task, key: ActKey) -> Option<Millis> {
    let action = task.action(key)?;
    action.device_job().filter(|job| job.settle > Millis(0)).map(|_| action.timeout)
}
