//! Starts the devices of rollouts, counts how their tasks end, and rolls back after an abort.
//!
//! ```text
//! look: start what is recorded and not there, cancel or roll back ─▶ count the ends ─▶ decide ─▶ the record
//!   ▲                                                                                              │
//!   └──────────────────────────────────── the next round ◀─────────────────────────────────────────┘
//! ```
//!
//! A round acts only on what the record has, and adds to it only what the next round is to act on. So wherever a server dies,
//! the next leader finds in the record all tasks that may exist. A task is started under the id in the record and under an
//! idempotency key of rollout and device.
//!
//! One server does this at a time. If two do so for a moment, the store refuses what the one writes that has lost its
//! lease, and the version of the record refuses what was decided on an old state.

use std::{collections::BTreeMap, sync::Arc};

use windlass_core::{
    AbortCause, AbortLimit, AbortOf, AlarmCommand, AlarmId, AlarmKind, Command, Device, DeviceEnd,
    DeviceProgress, Millis, Name, OpenDevice, Phase, Rejection, Rollout, RolloutAbort, RolloutCommand,
    RolloutDecision, RolloutStage, TaskId, TaskStatus, Timestamp,
    planted::{Bug, is_planted},
};
use windlass_store::{Loaded, Now, RecordKind, Service, StoreError, TaskQuery, stored};

use super::leading::Led;
use crate::{
    Engine, EngineError, ROLLOUTS_MAX, RolloutEntry, RolloutEvent, RoundsOf,
    commands::rollouts::{ReadRollout, decode_rollout, starting},
    deciding::inbox::{Item, Reply},
};

/// The longest time between two looks at a rollout: other servers may have changed it.
const LOOK_EVERY: Millis = Millis(1_000);

/// The time between two looks while tasks are open, whose ends are to be counted.
const LOOK_AT_TASKS_EVERY: Millis = Millis(250);

/// Starts the devices of rollouts, and counts how their tasks end.
pub struct RolloutKeeper {
    engine: Arc<Engine>,
}

/// What was found out about the open devices of a rollout.
#[derive(Default)]
struct Looked {
    /// For each of them.
    progress: Vec<DeviceProgress>,
    /// For the history.
    entries: Vec<RolloutEntry>,
}

impl RolloutKeeper {
    /// A rollout keeper of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Makes each rollout go on. Returns the time until something is to be done again, at most a second.
    ///
    /// # Errors
    /// When the store fails; what is to be done stays so.
    pub async fn run_once(&self, now: Now) -> Result<Millis, EngineError> {
        let round = |led| async move { self.round(led, now).await.map(Some) };
        let pause = self.engine.round_of(RoundsOf::RolloutKeeper, Service::Timekeeping, now, round).await?;
        Ok(pause.unwrap_or(LOOK_EVERY))
    }

    /// Returns when rollouts were changed on this server.
    pub async fn changed(&self) {
        self.engine.rollouts_changed.wait().await;
    }

    async fn round(&self, led: Led, now: Now) -> Result<Millis, EngineError> {
        let generation = self.engine.store.generation();
        let records = self.engine.store.records(RecordKind::Rollout, None, ROLLOUTS_MAX).await?;
        // A damaged one does not go on; `doctor` and `rollout show` say so.
        let rollouts = records.iter().filter_map(|record| decode_rollout(record).ok());
        let (mut pause, mut failed) = (LOOK_EVERY, None);
        for rollout in rollouts.filter(|rollout| !rollout.is_ended()) {
            let read = ReadRollout { rollout: Arc::new(rollout), generation };
            match self.keep(led, &read, now).await {
                Ok(next) => pause = pause.min(next),
                // One rollout that cannot go on does not hold back the others.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(pause), Err)
    }

    /// Makes a rollout go on. Returns when to look at it again.
    async fn keep(&self, led: Led, read: &ReadRollout, now: Now) -> Result<Millis, EngineError> {
        let rollout = &*read.rollout;
        let Looked { progress, mut entries } = self.look(led, rollout, now).await?;
        let (settled, failing) = rollout.settle(&progress);
        let decision = settled.decide(&failing, now.wall);
        let command = match decision {
            RolloutDecision::Wait(_) => None,
            RolloutDecision::Start(most) => self.pick(&settled, most, now).await?,
            RolloutDecision::RollBack(most) => Some(self.list(&settled, most).await?),
            RolloutDecision::Abort(threshold) => Some(RolloutCommand::Trip(threshold)),
            RolloutDecision::Finish => Some(RolloutCommand::Finish),
        };
        let acts = command.is_some();
        let next = match command {
            // The decision was made on this very state, so it fits.
            Some(command) => settled.apply(command, now.wall)?,
            None => settled,
        };
        if rollout.stage == RolloutStage::Cancelling && next.stage != rollout.stage {
            // The server that has aborted it may have ended before it raised the alarm.
            self.raise(led, &next).await?;
        }
        if next.version != rollout.version {
            if !self.engine.put_rollout(led.lease, Some(read), &next).await? {
                // It was changed meanwhile.
                return Ok(Millis(0));
            }
            entries.extend(stage_entry(rollout, &next));
            self.engine.note_rollout(led.lease, &next.name, &entries, now.wall).await?;
            if let RolloutDecision::Abort(_) = decision {
                self.raise(led, &next).await?;
            }
        }
        let until = match decision {
            RolloutDecision::Wait(Some(until)) => until - now.wall,
            _ => LOOK_EVERY,
        };
        Ok(match next.open.is_empty() {
            _ if acts => Millis(0),
            true => until.min(LOOK_EVERY),
            false => until.min(LOOK_AT_TASKS_EVERY),
        })
    }

    /// Looks at the tasks of the open devices, and does to them what the stage asks for.
    async fn look(&self, led: Led, rollout: &Rollout, now: Now) -> Result<Looked, EngineError> {
        if rollout.open.is_empty() {
            return Ok(Looked::default());
        }
        let ids: Vec<TaskId> = rollout.open.iter().map(|device| device.1).collect();
        let tasks = self.engine.tasks_by_id(&ids).await?;
        let mut looked = Looked::default();
        let (mut missing, mut told) = (Vec::new(), Vec::new());
        for (place, (device, loaded)) in rollout.open.iter().zip(&tasks).enumerate() {
            looked.progress.push(match loaded {
                Some(Loaded { task, .. }) => {
                    if is_told(rollout.stage, task.state.phase) {
                        told.push(place);
                    }
                    rollout.progress_of(task)
                }
                None if self.engine.store.quarantine().error(device.1).is_some() => {
                    DeviceProgress::Ended(DeviceEnd::Gone)
                }
                None => match rollout.stage {
                    RolloutStage::Running => {
                        if !(is_planted(Bug::RecordedNotStarted) && rollout.next_at <= now.wall) {
                            missing.push(place);
                        }
                        DeviceProgress::Running
                    }
                    RolloutStage::Paused => {
                        if is_planted(Bug::PausedRolloutStarts) {
                            missing.push(place);
                        }
                        DeviceProgress::Running
                    }
                    RolloutStage::Cancelling => DeviceProgress::Ended(DeviceEnd::NotStarted),
                    RolloutStage::RollingBack | RolloutStage::Ended => DeviceProgress::Ended(DeviceEnd::Kept),
                },
            });
        }
        self.start(led, rollout, &missing, &mut looked, now).await?;
        self.tell(led, rollout, &told, &mut looked).await?;
        Ok(looked)
    }

    /// Starts the tasks of open devices that are not there.
    async fn start(
        &self,
        led: Led,
        rollout: &Rollout,
        missing: &[usize],
        looked: &mut Looked,
        now: Now,
    ) -> Result<(), EngineError> {
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<Name> = missing.iter().map(|place| rollout.open[*place].0.clone()).collect();
        let records = self.engine.store.records_by_name(RecordKind::Device, &names).await?;
        let (mut places, mut submissions) = (Vec::new(), Vec::new());
        for (place, record) in missing.iter().zip(records) {
            let device: Option<Device> = record.and_then(|record| stored::read_device(&record.body).ok());
            match device {
                Some(device) => {
                    submissions.push((rollout.open[*place].1, starting::submission(rollout, &device, now)));
                    places.push(*place);
                }
                None => looked.refuse(rollout, *place, "the device was removed"),
            }
        }
        let results = self.engine.submit_as(led.lease, submissions).await?;
        for (place, result) in places.into_iter().zip(results) {
            match result {
                Ok(accepted) if accepted.loaded.task.id == rollout.open[place].1 => {}
                Ok(accepted) => {
                    let other = accepted.loaded.task.id;
                    looked.refuse(rollout, place, &format!("task {other} has the same unique key"));
                }
                // It has ended and been deleted since it was started.
                Err(EngineError::KeyWithoutTask { task }) if task == rollout.open[place].1 => {
                    looked.progress[place] = DeviceProgress::Ended(DeviceEnd::Gone);
                }
                // It was refused in an earlier round, which could not write that down.
                Err(EngineError::KeyWithoutTask { task }) => {
                    looked.refuse(rollout, place, &format!("task {task} had the same unique key"));
                }
                // The next round tries again.
                Err(EngineError::Overloaded | EngineError::Conflict) => {}
                Err(EngineError::Store(error)) if !matches!(error, StoreError::Damaged(_)) => {
                    return Err(error.into());
                }
                Err(error) => looked.refuse(rollout, place, &error.to_string()),
            }
        }
        Ok(())
    }

    /// Cancels tasks of open devices, or rolls them back.
    async fn tell(
        &self,
        led: Led,
        rollout: &Rollout,
        places: &[usize],
        looked: &mut Looked,
    ) -> Result<(), EngineError> {
        if places.is_empty() {
            return Ok(());
        }
        let command = match rollout.stage {
            RolloutStage::RollingBack => Command::RollBack { rollout: rollout.name.clone() },
            _ => Command::Cancel { by: Some(starting::actor(&rollout.name)) },
        };
        let item = |place: &usize| {
            let id = rollout.open[*place].1;
            Item::Task { id, command: command.clone(), claim: None, logs: Vec::new() }
        };
        let items = places.iter().map(item).collect();
        let replies = self.engine.inbox.decide_as(led.lease, items).await?;
        for (place, reply) in places.iter().zip(replies) {
            match reply {
                Reply::Task(loaded) => looked.progress[*place] = rollout.progress_of(&loaded.task),
                Reply::Rejected(Rejection::NothingToRollBack) => {
                    looked.progress[*place] = DeviceProgress::Ended(DeviceEnd::Kept);
                }
                // The next round looks again.
                _ => {}
            }
        }
        Ok(())
    }

    /// The next devices to start; `None` = there is none now.
    async fn pick(
        &self,
        rollout: &Rollout,
        most: usize,
        now: Now,
    ) -> Result<Option<RolloutCommand>, EngineError> {
        let definition = &rollout.definition;
        let cursor = rollout.cursor.as_ref();
        let selected = self.engine.select_devices(&definition.selector, cursor, most).await?;
        let device = |device: Device| {
            let group = starting::group_of(definition, &device.labels);
            (device.name, self.engine.ids.next(now.wall), group)
        };
        let devices = selected.devices.into_iter().map(device).collect();
        Ok(match selected.last.filter(|last| Some(last) != cursor) {
            Some(cursor) => Some(RolloutCommand::Start { devices, cursor }),
            None if rollout.open.is_empty() => Some(RolloutCommand::Finish),
            // Devices that are declared before the last task has ended are started too.
            None => None,
        })
    }

    /// The next tasks to roll back.
    async fn list(&self, rollout: &Rollout, most: usize) -> Result<RolloutCommand, EngineError> {
        let query = TaskQuery {
            statuses: vec![TaskStatus::Succeeded],
            flow: Some(rollout.definition.flow.clone()),
            labels: BTreeMap::from([(starting::ROLLOUT_LABEL.to_owned(), rollout.name.to_string())]),
            since: Some(rollout.created_at),
            before: rollout.before,
            limit: most,
            brief: true,
            ..TaskQuery::default()
        };
        let page = self.engine.tasks(&query).await?;
        // Ids begin with the time: what is older than the rollout is none of its tasks.
        let before = page.next.filter(|id| accepted_after(*id, rollout.created_at));
        let device = |loaded: &Loaded| {
            let (device, group) = starting::device_of(rollout, &loaded.task)?;
            Some((device, loaded.task.id, group))
        };
        Ok(RolloutCommand::RollBack { devices: page.items.iter().filter_map(device).collect(), before })
    }

    /// Raises the alarm about a rollout that a threshold has aborted, unless it was raised since.
    async fn raise(&self, led: Led, rollout: &Rollout) -> Result<(), EngineError> {
        let Some(RolloutAbort { at, cause: AbortCause::Threshold(_) }) = &rollout.abort else {
            return Ok(());
        };
        let kind = AlarmKind::RolloutAborted;
        let id = AlarmId::new(kind, TaskId::NONE, Some(&rollout.name));
        if self.engine.store.alarm(&id).await?.is_some_and(|stored| stored.alarm.raised_at >= *at) {
            return Ok(());
        }
        let message = format!("the rollout {} was aborted: {}", rollout.name, abort_message(rollout));
        let command = AlarmCommand::Raise { kind, task: TaskId::NONE, step: None, message: message.into() };
        self.engine.tell_alarm_as(led.lease, id, command).await?;
        Ok(())
    }
}

impl Looked {
    /// The task of a device was refused.
    fn refuse(&mut self, rollout: &Rollout, place: usize, why: &str) {
        let OpenDevice(device, ..) = &rollout.open[place];
        let (device, message) = (Some(device.clone()), Some(why.into()));
        self.entries.push(RolloutEntry { device, message, ..RolloutEntry::new(RolloutEvent::Refused) });
        self.progress[place] = DeviceProgress::Ended(DeviceEnd::Refused);
    }
}

/// Whether the rollout has a command for a task in this phase.
fn is_told(stage: RolloutStage, phase: Phase) -> bool {
    match stage {
        RolloutStage::Cancelling => matches!(phase, Phase::Scheduled | Phase::Forward),
        RolloutStage::RollingBack => matches!(phase, Phase::Ended(windlass_core::Ending::Succeeded)),
        RolloutStage::Running | RolloutStage::Paused | RolloutStage::Ended => false,
    }
}

/// Whether a task with this id may have been accepted at or after this time: ids begin with the milliseconds of their time.
fn accepted_after(id: TaskId, time: Timestamp) -> bool {
    i64::try_from(id.0 >> 80).unwrap_or(i64::MAX) >= time.0
}

/// The entry of the history about a new stage.
fn stage_entry(before: &Rollout, after: &Rollout) -> Option<RolloutEntry> {
    let entry = |event, message: Option<String>| RolloutEntry {
        message: message.map(Into::into),
        ..RolloutEntry::new(event)
    };
    match after.stage {
        stage if stage == before.stage => None,
        RolloutStage::Cancelling => Some(entry(RolloutEvent::Aborted, Some(abort_message(after)))),
        RolloutStage::RollingBack => Some(entry(RolloutEvent::RollingBack, None)),
        RolloutStage::Ended => {
            let total = after.total();
            let message = format!("{} of {} devices succeeded", total.succeeded, total.started);
            Some(entry(RolloutEvent::Ended, Some(message)))
        }
        RolloutStage::Running | RolloutStage::Paused => None,
    }
}

/// Why a rollout was aborted by a threshold.
fn abort_message(rollout: &Rollout) -> String {
    let Some(AbortCause::Threshold(threshold)) = rollout.abort.as_ref().map(|abort| &abort.cause) else {
        return String::new();
    };
    let of = match threshold.of {
        AbortOf::Failed => "failed",
        AbortOf::TimedOut => "timed out",
        AbortOf::Any => "did not succeed",
    };
    match threshold.limit {
        AbortLimit::Count(count) => format!("{count} devices {of}"),
        AbortLimit::Percent(percent) => format!("{percent} % of the devices {of}"),
    }
}
