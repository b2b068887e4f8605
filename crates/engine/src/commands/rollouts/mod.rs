//! Rollouts: starting, pausing, aborting and removing them, and what happened to them.
//!
//! A rollout is a record of the store. Its devices are started and counted by
//! [`RolloutKeeper`](crate::services::RolloutKeeper), on the server that leads.

mod history;
pub(crate) mod starting;
pub(crate) mod stored;

use std::{collections::BTreeMap, sync::Arc};

use windlass_core::{
    Actor, AlarmCommand, AlarmId, AlarmKind, Name, Rollout, RolloutCommand, RolloutDefinition,
    RolloutRejection, TaskId, uses_device,
};
use windlass_store::{Change, Leadership, Now, RecordChange, RecordKind, StoreError};

use crate::{
    Engine, EngineError,
    deciding::inbox::{Item, Reply},
};

pub use history::{RolloutEntry, RolloutEvent};
pub use stored::decode as decode_rollout;

/// The maximum number of rollouts of a store, ended ones included: the leading server reads all of them each second.
pub const ROLLOUTS_MAX: usize = 200;

/// The maximum number of rollouts that have not ended.
pub const ROLLOUTS_OPEN_MAX: usize = 20;

/// How often a change of a rollout is tried again that conflicts with other changes. The leader changes it with each portion
/// of devices.
const TRIES_MAX: usize = 16;

/// A rollout as it is on disk.
#[derive(Debug, Clone)]
pub struct RolloutReport {
    /// The rollout.
    pub rollout: Arc<Rollout>,
    /// The number of its open tasks that wait for an operator. Lists do not look for them.
    pub waiting: u64,
}

/// A rollout as it was read, for a change to build on.
#[derive(Debug, Clone)]
pub(crate) struct ReadRollout {
    pub(crate) rollout: Arc<Rollout>,
    /// The state of the store before it was read.
    pub(crate) generation: u64,
}

impl Engine {
    /// Starts a rollout. Returns it, and whether it is new: one that was started before with the same definition is returned as
    /// it is now.
    ///
    /// # Errors
    /// When the definition cannot work, the flow does not exist or does the same for all devices, no device has the
    /// labels, another rollout has the name, there are too many rollouts, or the store fails.
    pub async fn start_rollout(
        &self,
        name: Name,
        definition: RolloutDefinition,
        by: Option<Actor>,
        now: Now,
    ) -> Result<(RolloutReport, bool), EngineError> {
        definition.check()?;
        let exists = |found: ReadRollout| match found.rollout.definition == definition {
            true => Ok((report(found.rollout), false)),
            false => Err(EngineError::RolloutExists(name.clone())),
        };
        if let Some(found) = self.find_rollout(&name).await? {
            return exists(found);
        }
        let flow = self.flow(&definition.flow, None).await?.flow;
        if !uses_device(&flow) {
            return Err(EngineError::RolloutIgnoresDevice(flow.name.clone()));
        }
        flow.check_secret_params(&definition.params)?;
        let others = self.store.records(RecordKind::Rollout, None, ROLLOUTS_MAX).await?;
        let is_open = |record| stored::decode(record).is_ok_and(|rollout| !rollout.is_ended());
        let open = others.iter().filter(|record| is_open(record)).count();
        if others.len() >= ROLLOUTS_MAX || open >= ROLLOUTS_OPEN_MAX {
            return Err(EngineError::TooManyRollouts { all: others.len(), open });
        }
        let matched = self.matched(&definition).await?;
        if matched.is_empty() {
            return Err(EngineError::NoDevices);
        }
        let rollout =
            Rollout::new(name.clone(), (definition.clone(), flow.version), matched, by.clone(), now.wall);
        if !self.put_rollout(None, None, &rollout).await? {
            // Another call was faster.
            return match self.find_rollout(&name).await? {
                Some(found) => exists(found),
                None => Err(EngineError::Conflict),
            };
        }
        self.rollouts_changed.set();
        let message = format!("{} devices have the labels", rollout.total().matched);
        let entry =
            RolloutEntry { by, message: Some(message.into()), ..RolloutEntry::new(RolloutEvent::Started) };
        self.note_rollout(None, &name, &[entry], now.wall).await?;
        Ok((report(Arc::new(rollout)), true))
    }

    /// The number of devices that a rollout has now, by group.
    async fn matched(
        &self,
        definition: &RolloutDefinition,
    ) -> Result<BTreeMap<Option<Box<str>>, u64>, EngineError> {
        let (mut matched, mut last) = (BTreeMap::new(), None);
        loop {
            let selected = self.select_devices(&definition.selector, last.as_ref(), usize::MAX).await?;
            for device in &selected.devices {
                *matched.entry(starting::group_of(definition, &device.labels)).or_default() += 1;
            }
            if selected.is_end {
                return Ok(matched);
            }
            last = selected.last;
        }
    }

    /// Rollouts by name, after the one with this name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn rollouts(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<RolloutReport>, EngineError> {
        let records = self.on_disk(|| self.store.records(RecordKind::Rollout, after, limit)).await?;
        // A damaged one harms itself alone: it is found by its name.
        let readable = records.iter().filter_map(|record| stored::decode(record).ok());
        Ok(readable.map(|rollout| report(Arc::new(rollout))).collect())
    }

    /// The rollout with this name.
    ///
    /// # Errors
    /// When it does not exist or cannot be read, or the store fails.
    pub async fn rollout(&self, name: &Name) -> Result<RolloutReport, EngineError> {
        let rollout = self.read_rollout(name).await?.rollout;
        let ids: Vec<TaskId> = rollout.open.iter().map(|device| device.1).collect();
        let tasks = if ids.is_empty() { Vec::new() } else { self.tasks_by_id(&ids).await? };
        let is_waiting = |loaded: &&windlass_store::Loaded| loaded.task.state.stuck.is_some();
        let waiting = tasks.iter().flatten().filter(is_waiting).count() as u64;
        Ok(RolloutReport { rollout, waiting })
    }

    /// Changes a rollout on behalf of an operator: pauses, resumes or aborts it.
    ///
    /// # Errors
    /// When it does not exist or its state does not allow it, or the store fails.
    pub async fn tell_rollout(
        &self,
        name: &Name,
        command: RolloutCommand,
        by: Option<Actor>,
        now: Now,
    ) -> Result<RolloutReport, EngineError> {
        let entry = |event, message: &Option<Box<str>>| RolloutEntry {
            by: by.clone(),
            message: message.clone(),
            ..RolloutEntry::new(event)
        };
        let entry = match &command {
            RolloutCommand::Pause { reason, .. } => entry(RolloutEvent::Paused, reason),
            RolloutCommand::Abort { reason, .. } => entry(RolloutEvent::Aborted, reason),
            _ => entry(RolloutEvent::Resumed, &None),
        };
        for _ in 0..TRIES_MAX {
            let read = self.read_rollout(name).await?;
            let next = read.rollout.apply(command.clone(), now.wall)?;
            if self.put_rollout(None, Some(&read), &next).await? {
                self.rollouts_changed.set();
                self.note_rollout(None, name, &[entry], now.wall).await?;
                return Ok(report(Arc::new(next)));
            }
        }
        Err(EngineError::Conflict)
    }

    /// Removes a rollout that has ended. Its tasks stay.
    ///
    /// # Errors
    /// When it does not exist or has not ended, or the store fails.
    pub async fn remove_rollout(
        &self,
        name: &Name,
        by: Option<Actor>,
        now: Now,
    ) -> Result<RolloutReport, EngineError> {
        for _ in 0..TRIES_MAX {
            let read = match self.read_rollout(name).await {
                Err(error @ EngineError::Store(StoreError::Damaged(_))) => {
                    // Nobody can know what it was: the caller gets the error, and the record is deleted.
                    let generation = self.store.generation();
                    let names = std::slice::from_ref(name);
                    let records = self.store.records_by_name(RecordKind::Rollout, names).await?;
                    for record in records.iter().flatten() {
                        let change = RecordChange::delete(record).decided_in(generation);
                        self.commit_rollout(None, change).await?;
                    }
                    return Err(error);
                }
                read => read?,
            };
            if !read.rollout.is_ended() {
                return Err(RolloutRejection::NotEnded.into());
            }
            if self.delete_rollout(None, &read).await? {
                let entry = RolloutEntry { by, ..RolloutEntry::new(RolloutEvent::Removed) };
                self.note_rollout(None, name, &[entry], now.wall).await?;
                let alarm = AlarmId::new(AlarmKind::RolloutAborted, TaskId::NONE, Some(name));
                // Mostly there is none.
                let _ = self.tell_alarm(alarm, AlarmCommand::Resolve { by: None }).await;
                return Ok(report(read.rollout));
            }
        }
        Err(EngineError::Conflict)
    }

    /// Deletes the record of a rollout. Returns false if it has changed since it was read.
    pub(crate) async fn delete_rollout(
        &self,
        led: Option<Leadership>,
        read: &ReadRollout,
    ) -> Result<bool, EngineError> {
        let change = RecordChange {
            kind: RecordKind::Rollout,
            name: read.rollout.name.clone(),
            before: read.rollout.version,
            generation: read.generation,
            version: read.rollout.version + 1,
            body: None,
        };
        self.commit_rollout(led, change).await
    }

    async fn read_rollout(&self, name: &Name) -> Result<ReadRollout, EngineError> {
        self.find_rollout(name).await?.ok_or_else(|| EngineError::UnknownRollout(name.clone()))
    }

    async fn find_rollout(&self, name: &Name) -> Result<Option<ReadRollout>, EngineError> {
        let generation = self.store.generation();
        let names = std::slice::from_ref(name);
        let mut records = self.on_disk(|| self.store.records_by_name(RecordKind::Rollout, names)).await?;
        let Some(record) = records.pop().flatten() else { return Ok(None) };
        Ok(Some(ReadRollout { rollout: Arc::new(stored::decode(&record)?), generation }))
    }

    /// Writes the next state of a rollout. Returns false if it has changed since it was read. `led`: the caller is the
    /// leader of a service.
    pub(crate) async fn put_rollout(
        &self,
        led: Option<Leadership>,
        before: Option<&ReadRollout>,
        next: &Rollout,
    ) -> Result<bool, EngineError> {
        let change = RecordChange {
            kind: RecordKind::Rollout,
            name: next.name.clone(),
            before: before.map_or(0, |read| read.rollout.version),
            generation: before.map_or_else(|| self.store.generation(), |read| read.generation),
            version: next.version,
            body: Some(stored::encode(next)),
        };
        self.commit_rollout(led, change).await
    }

    async fn commit_rollout(
        &self,
        led: Option<Leadership>,
        change: RecordChange,
    ) -> Result<bool, EngineError> {
        let reply = self.inbox.decide_as(led, vec![Item::Change(Change::Record(change))]).await?.pop();
        Ok(matches!(reply, Some(Reply::Done)))
    }
}

fn report(rollout: Arc<Rollout>) -> RolloutReport {
    RolloutReport { rollout, waiting: 0 }
}
