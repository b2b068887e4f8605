//! Alarms about devices: one that a task has for too long, and one that becomes online and offline again and again. They are
//! resolved when that is over.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{
    Alarm, AlarmCommand, AlarmId, AlarmKind, DEVICE_LOCKS, Lock, LockHolder, LockName, Millis, Name, TaskId,
    device_of_lock,
};
use windlass_store::Now;

use super::{
    DeviceKeeper,
    fleet::{FLAPPING_WITHIN, FLAPS_MAX},
};
use crate::{EngineError, services::leading::Led};

/// The maximum number of alarms of each kind that are open at a time: after that the operator knows.
const ALARMS_MAX: usize = 100;

/// Locks and alarms read at once.
const PAGE: usize = 1_000;

/// How often the service looks for devices that are locked for too long.
const LOOK_EVERY: Millis = Millis::from_secs(30);

/// The alarms that are open, by their devices.
#[derive(Default)]
pub(super) struct Alarms {
    /// With the task that has the device.
    locked: BTreeMap<Name, TaskId>,
    flapping: BTreeSet<Name>,
    looked_at: Option<Millis>,
}

impl DeviceKeeper {
    /// Knows the alarms that the last server has raised.
    pub(super) async fn go_on_with_alarms(&self, now: Now) -> Result<(), EngineError> {
        let open = self.engine.store.alarms(false, PAGE).await?;
        let mut state = self.state();
        state.alarms = Alarms::default();
        for alarm in open {
            match (alarm.kind, alarm.id.device(alarm.kind)) {
                (AlarmKind::DeviceFlapping, Some(device)) => {
                    state.alarms.flapping.insert(device.clone());
                    state.fleet.is_known_to_flap(device, now);
                }
                (AlarmKind::DeviceLockedTooLong, Some(device)) => {
                    state.alarms.locked.insert(device, alarm.task);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Raises and resolves alarms about devices.
    pub(super) async fn watch(&self, led: Led, now: Now) -> Result<(), EngineError> {
        self.watch_flapping(led, now).await?;
        let every = LOOK_EVERY.min(self.locked_too_long);
        let is_time = self.state().alarms.looked_at.is_none_or(|at| now.mono.0 >= at.0 + every.0);
        if is_time {
            self.watch_locks(led, now).await?;
            self.state().alarms.looked_at = Some(now.mono);
        }
        Ok(())
    }

    async fn watch_flapping(&self, led: Led, now: Now) -> Result<(), EngineError> {
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        {
            let state = self.state();
            let open = &state.alarms.flapping;
            for (device, goes_on) in state.fleet.flapping(now) {
                if !goes_on {
                    ended.push(device.clone());
                } else if !open.contains(device) && open.len() + begun.len() < ALARMS_MAX {
                    begun.push(device.clone());
                }
            }
        }
        for device in begun {
            let message = format!(
                "the device {device} became online and offline more than {FLAPS_MAX} times within {FLAPPING_WITHIN}: \
                 check its connection, and that no other client uses its client id; `windlass device log {device}`"
            );
            self.raise(led, AlarmKind::DeviceFlapping, &device, TaskId::NONE, None, message).await?;
            self.state().alarms.flapping.insert(device);
        }
        for device in ended {
            let is_open = self.state().alarms.flapping.contains(&device);
            if is_open {
                self.resolve(led, AlarmKind::DeviceFlapping, &device).await?;
            }
            let mut state = self.state();
            state.alarms.flapping.remove(&device);
            state.fleet.flaps_no_more(&device);
        }
        Ok(())
    }

    async fn watch_locks(&self, led: Led, now: Now) -> Result<(), EngineError> {
        let mut found = BTreeMap::new();
        let mut after = LockName::new(DEVICE_LOCKS).ok();
        while let Some(last) = after {
            let page = self.engine.store.locks(Some(&last), PAGE).await?;
            after = page.last().filter(|_| page.len() == PAGE).map(|lock| lock.name.clone());
            for lock in page {
                let Some(device) = device_of_lock(&lock.name) else {
                    // The names of all locks of devices begin alike.
                    after = None;
                    break;
                };
                if let Some(holder) = too_long(&lock, self.locked_too_long, now) {
                    found.insert(device, holder);
                }
            }
        }
        let ended: Vec<Name> = {
            let locked = &self.state().alarms.locked;
            locked.keys().filter(|device| !found.contains_key(*device)).cloned().collect()
        };
        for device in ended {
            self.resolve(led, AlarmKind::DeviceLockedTooLong, &device).await?;
            self.state().alarms.locked.remove(&device);
        }
        for (device, LockHolder { owner, since, .. }) in found {
            let task = owner.task;
            let (known, open) = {
                let locked = &self.state().alarms.locked;
                (locked.get(&device).copied(), locked.len())
            };
            if known == Some(task) || known.is_none() && open >= ALARMS_MAX {
                continue;
            }
            let step = self.engine.store.load_heads(&[task]).await?.pop().flatten();
            let step = step.and_then(|loaded| Some(loaded.task.flow.steps.get(owner.key.step)?.name.clone()));
            let offline = match self.state().fleet.is_online(&device, now) {
                true => "",
                false => ", and the device is offline",
            };
            let message = format!(
                "task {task} has had the device {device} for {}{offline}: `windlass task why {task}` says why; \
                 `windlass device unlock {device}` gives it to the next task",
                Millis::from_secs((now.wall - since).0 / 1000)
            );
            self.raise(led, AlarmKind::DeviceLockedTooLong, &device, task, step, message).await?;
            self.state().alarms.locked.insert(device, task);
        }
        Ok(())
    }

    async fn raise(
        &self,
        led: Led,
        kind: AlarmKind,
        device: &Name,
        task: TaskId,
        step: Option<Name>,
        message: String,
    ) -> Result<Alarm, EngineError> {
        let command = AlarmCommand::Raise { kind, task, step, message: message.into() };
        self.engine.tell_alarm_as(led.lease, AlarmId::of_device(kind, device), command).await
    }

    async fn resolve(&self, led: Led, kind: AlarmKind, device: &Name) -> Result<(), EngineError> {
        let id = AlarmId::of_device(kind, device);
        match self.engine.tell_alarm_as(led.lease, id, AlarmCommand::Resolve { by: None }).await {
            Ok(_) | Err(EngineError::UnknownAlarm(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The task that has a device, if it has had it for too long.
fn too_long(lock: &Lock, limit: Millis, now: Now) -> Option<LockHolder> {
    lock.holder.filter(|holder| !holder.owner.is_leader() && holder.since + limit <= now.wall)
}
