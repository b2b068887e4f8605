//! Which jobs this service has: what it claims, and what it gives back.

use windlass_core::{
    DEVICE_MODULE, Failure, Free, Name, Outcome, TaskId, WhileOffline,
    planted::{Bug, is_planted},
    when_free,
};
use windlass_store::{AttemptId, ClaimOutcome, ClaimRequest, Leave, Loaded, Now, SessionId};

use super::{
    DeviceKeeper, HELD_EVERY, HELD_MANY, ROUND_MAX, WAITING_MAX, device_of, has_device,
    running::timeout_without_settle, waiting::Waiting,
};
use crate::{EngineError, Said, WorkerReport};

/// The maximum number of waiting jobs of which the service checks at once whether they must not run any more.
const LOOK_MAX: usize = 1_000;

impl DeviceKeeper {
    /// Claims ready jobs. Returns their number.
    pub(super) async fn claim(&self, now: Now) -> Result<usize, EngineError> {
        let room = WAITING_MAX.saturating_sub(self.state().waiting.len()).min(ROUND_MAX);
        let free = u32::try_from(room.min(self.engine.store.loads_at_once())).unwrap_or(u32::MAX);
        let Ok(module) = Name::new(DEVICE_MODULE) else { return Ok(0) };
        if free == 0 {
            return Ok(0);
        }
        let request = ClaimRequest { module: module.clone(), commands: None, free };
        let (now, leave) = (self.engine.latest.not_before(now), Leave::default());
        let claimed = self.engine.store.claim(self.session, &[request], &leave, now).await?;
        let ClaimOutcome::Claimed(claimed) = claimed else {
            self.stirred.set();
            return Ok(0);
        };
        let tasks = self.engine.tasks_of_claimed(&claimed).await?;
        self.engine.rates.note(claimed.iter().map(|_| &module), now.mono);
        for claimed in &claimed {
            if let Some(loaded) = tasks.get(&claimed.id.task) {
                self.accept(claimed.id, loaded, now).await?;
            }
        }
        Ok(claimed.len())
    }

    /// Accepts the jobs that are claimed for this service and that this server does not know: those of the last server, and
    /// those that a server claimed after another one had taken over, because its store was slow.
    pub(super) async fn accept_held(&self, now: Now) -> Result<(), EngineError> {
        self.state().held_at = Some(now.mono);
        if is_planted(Bug::JobsStranded) {
            return Ok(());
        }
        let held = self.engine.store.held(self.session).await?;
        let ids: Vec<AttemptId> = {
            let waiting = &self.state().waiting;
            held.into_iter().map(|claimed| claimed.id).filter(|id| !waiting.contains(id)).collect()
        };
        for ids in ids.chunks(LOOK_MAX) {
            let tasks = self.engine.tasks_of(ids).await?;
            for id in ids {
                if let Some(loaded) = tasks.get(&id.task) {
                    self.accept(*id, loaded, now).await?;
                }
            }
        }
        Ok(())
    }

    /// The same from time to time.
    pub(super) async fn accept_held_again(&self, now: Now) -> Result<(), EngineError> {
        let is_time = {
            let state = self.state();
            let every = HELD_EVERY.0 * (1 + state.waiting.len() / HELD_MANY) as u64;
            state.held_at.is_none_or(|at| now.mono.0 >= at.0 + every)
        };
        if is_time { self.accept_held(now).await } else { Ok(()) }
    }

    /// A job is to be published as soon as its device is online. One that cannot be fails, and one that must not run now is
    /// released.
    pub(super) async fn accept(&self, id: AttemptId, loaded: &Loaded, now: Now) -> Result<(), EngineError> {
        // The task may have changed after the claim and before it was loaded: `let_go` looks only at what changes after now. What
        // this server remembers of it may also be older than the claim.
        let is_free = |loaded: &Loaded| when_free(&loaded.task, id.key) == Free::HandOut;
        let read;
        let loaded = if is_free(loaded) {
            loaded
        } else {
            read = self.engine.tasks_of(&[id]).await?;
            match read.get(&id.task).filter(|loaded| is_free(loaded)) {
                Some(loaded) => loaded,
                None => return self.release(id, now).await,
            }
        };
        let task = &loaded.task;
        let (device, message) = match (device_of(task, id.key), task.job_message(id.key)) {
            (Some(device), Some(Ok(message))) => (device, message),
            (_, Some(Err(message))) => return self.refuse(id, &message, now).await,
            (None, _) => {
                let message =
                    "the step does not have the lock of its device, because the device is not known";
                return self.refuse(id, message, now).await;
            }
            // Nothing but jobs is in this queue.
            (_, None) => return Ok(()),
        };
        if !has_device(task, id.key) {
            return self.fail_without_device(id, &device, now).await;
        }
        let is_known = self.state().fleet.knows(&device) || self.look_up(&device, now).await?;
        if !is_known {
            return self.refuse_without_device(id, &device, now).await;
        }
        let job = task.action(id.key).and_then(|action| action.device_job());
        let fails_offline = job.is_some_and(|job| job.offline == WhileOffline::Fail);
        if fails_offline && !self.state().fleet.is_online(&device, now) {
            let failure = Failure::new(&format!("the device {device} is offline"), 1, true);
            return self.fail(id, failure, now).await;
        }
        let (version, number) = (task.state.events, task.job_number(id.key, id.attempt));
        let timeout = timeout_without_settle(task, id.key);
        self.state().waiting.add(id, Waiting { device, version, number, message, timeout });
        Ok(())
    }

    /// Releases jobs that must not run now: their task was paused, or started rolling back. Forgets those that have ended.
    pub(super) async fn let_go(&self, now: Now) -> Result<(), EngineError> {
        let waiting = self.state().waiting.look(LOOK_MAX);
        if waiting.is_empty() {
            return Ok(());
        }
        self.let_go_of_removed(&waiting, now).await?;
        let tasks: Vec<TaskId> = waiting.iter().map(|(id, _)| id.task).collect();
        let versions = self.engine.store.versions(&tasks).await?;
        let changed = waiting.iter().zip(versions).filter(|((_, known), version)| Some(*known) != *version);
        let changed: Vec<AttemptId> = changed.map(|((id, _), _)| *id).collect();
        let tasks = self.engine.heads_of(&changed).await?;
        for id in changed {
            let Some(loaded) = tasks.get(&id.task) else {
                self.state().forget(&id);
                continue;
            };
            let is_current = loaded
                .claims
                .iter()
                .any(|claim| (claim.key, claim.number, claim.session) == (id.key, id.claim, self.session));
            if is_current && !has_device(&loaded.task, id.key) {
                self.state().forget(&id);
                if let Some(device) = device_of(&loaded.task, id.key) {
                    self.fail_without_device(id, &device, now).await?;
                }
                continue;
            }
            if is_current && when_free(&loaded.task, id.key) == Free::HandOut {
                if let Some(waiting) = self.state().waiting.get_mut(&id) {
                    waiting.version = loaded.task.state.events;
                }
                continue;
            }
            if is_current {
                self.release(id, now).await?;
            } else {
                self.state().forget(&id);
            }
        }
        Ok(())
    }

    /// Refuses those of these jobs whose devices were removed after they were accepted: no message could reach them.
    async fn let_go_of_removed(&self, waiting: &[(AttemptId, u64)], now: Now) -> Result<(), EngineError> {
        let removed: Vec<(AttemptId, Name)> = {
            let state = self.state();
            let device = |(id, _): &(AttemptId, u64)| Some((*id, state.waiting.device(id)?.clone()));
            let is_removed = |(_, device): &(AttemptId, Name)| !state.fleet.knows(device);
            waiting.iter().filter_map(device).filter(is_removed).collect()
        };
        for (id, device) in removed {
            if self.look_up(&device, now).await? {
                continue;
            }
            if self.state().maybe_published.contains(&id) {
                self.release(id, now).await?;
            } else {
                self.state().forget(&id);
                self.refuse_without_device(id, &device, now).await?;
            }
        }
        Ok(())
    }

    /// Gives a job back that was not published. The timers decide what becomes of it. One that may be published counts as
    /// running: it ends with the device's answer or its timeout, and its device has no other job until then.
    async fn release(&self, id: AttemptId, now: Now) -> Result<(), EngineError> {
        let may_be_published = {
            let mut state = self.state();
            state.waiting.remove(&id);
            state.maybe_published.remove(&id)
        };
        if may_be_published {
            self.engine.store.adopt(SessionId::AFAR, &[id], now).await?;
            let tasks = self.engine.heads_of(&[id]).await?;
            let task = tasks.get(&id.task).map(|loaded| &loaded.task);
            if let Some((task, device)) = task.and_then(|task| Some((task, device_of(task, id.key)?))) {
                self.note_running(id, &device, timeout_without_settle(task, id.key), now.wall, now);
            }
            return Ok(());
        }
        self.engine.store.release(self.session, id, None, now).await?;
        self.engine.timers.set();
        Ok(())
    }

    /// An operator gave the device to another task before the job was published. The next attempt requests the device again.
    async fn fail_without_device(&self, id: AttemptId, device: &Name, now: Now) -> Result<(), EngineError> {
        let message = format!("an operator has unlocked the device {device} for another task");
        self.fail(id, Failure::new(&message, 1, true), now).await
    }

    async fn refuse_without_device(&self, id: AttemptId, device: &Name, now: Now) -> Result<(), EngineError> {
        let message = format!("no device has the name {device}: declare it with `windlass device apply`");
        self.refuse(id, &message, now).await
    }

    /// The job cannot be given to any device: it fails without a retry.
    pub(super) async fn refuse(&self, id: AttemptId, message: &str, now: Now) -> Result<(), EngineError> {
        self.fail(id, Failure::new(message, 1, false), now).await
    }

    /// An attempt failed before it was published. If that does not reach the disk, the round fails, and the next one reads what
    /// is claimed.
    async fn fail(&self, id: AttemptId, failure: Failure, now: Now) -> Result<(), EngineError> {
        let token = self.engine.tokens.seal(&id);
        let report =
            WorkerReport { token, said: Ok(Said::Ended(Outcome::Failed(failure))), logs: Vec::new() };
        self.engine.hear_from_afar(vec![report], now).await?;
        Ok(())
    }
}
