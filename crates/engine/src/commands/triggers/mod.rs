//! Triggers: applying, firing, pausing and removing them, and what they did.
//!
//! A trigger is a record of the store. Its schedule is followed by
//! [`TriggerKeeper`](crate::services::TriggerKeeper), on the server that leads.

pub(crate) mod firing;
mod history;
pub(crate) mod stored;

use std::sync::{Arc, atomic::Ordering};

use windlass_core::{Actor, Instants as _, Name, Timestamp, Trigger, TriggerCommand, TriggerDefinition};
use windlass_schedule::Schedule;
use windlass_store::{Change, JournalKind, JournalQuery, Leadership, Now, RecordChange, RecordKind};

use crate::{
    Engine, EngineError,
    deciding::inbox::{Item, Reply},
};

pub use firing::{Occasion, TriggerStart};
pub use history::{TriggerCause, TriggerEntry, TriggerEntryTask, TriggerOutcome};
pub use stored::decode as decode_trigger;

/// The maximum number of triggers of a store: the leading server looks at all of them each second.
pub const TRIGGERS_MAX: usize = 1_000;

/// How often a change of a trigger is tried again that conflicts with other changes.
const TRIES_MAX: usize = 8;

/// A trigger as it is on disk.
#[derive(Debug, Clone)]
pub struct TriggerReport {
    /// The trigger.
    pub trigger: Arc<Trigger>,
    /// When it fires next by itself; `None` = not by itself, or it is paused.
    pub next_at: Option<Timestamp>,
}

/// The result of applying a trigger.
#[derive(Debug, Clone)]
pub struct TriggerApplication {
    /// The trigger as it is now.
    pub report: TriggerReport,
    /// What has changed.
    pub change: TriggerChange,
}

/// What applying a trigger has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerChange {
    /// There was none with this name.
    Created,
    /// It had another definition.
    Updated,
    /// Nothing.
    Unchanged,
}

/// A trigger as it was read, for a change to build on.
#[derive(Debug, Clone)]
pub(crate) struct ReadTrigger {
    pub(crate) trigger: Arc<Trigger>,
    /// The state of the store before it was read.
    pub(crate) generation: u64,
}

impl Engine {
    /// Creates a trigger, or gives one another definition.
    ///
    /// # Errors
    /// When the definition cannot work, there are too many triggers, or the store fails.
    pub async fn apply_trigger(
        &self,
        name: Name,
        definition: TriggerDefinition,
        now: Now,
    ) -> Result<TriggerApplication, EngineError> {
        definition.check()?;
        if let Some(schedule) = definition.schedule() {
            Schedule::of(&schedule.timing, now.wall)?;
        }
        for flow in &definition.flows {
            // A flow may be applied after its triggers.
            if let Some(stored) = self.store.flow(&flow.flow, None).await? {
                stored.flow.check_secret_params(&flow.params)?;
            }
        }
        for _ in 0..TRIES_MAX {
            let found = self.find_trigger(&name).await;
            let (next, before, change) = match &found {
                // A record that cannot be read is replaced.
                Err(EngineError::Store(windlass_store::StoreError::Damaged(_))) => {
                    self.delete_damaged(&name).await?;
                    continue;
                }
                Err(error) => return Err(error.clone()),
                Ok(Some(read)) => {
                    let command = TriggerCommand::Define(definition.clone());
                    let next = read.trigger.apply(&command, now.wall)?;
                    let change = match next.version == read.trigger.version {
                        true => TriggerChange::Unchanged,
                        false => TriggerChange::Updated,
                    };
                    (next, Some(read), change)
                }
                Ok(None) => {
                    let all = self.store.records(RecordKind::Trigger, None, TRIGGERS_MAX).await?;
                    if all.len() >= TRIGGERS_MAX {
                        return Err(EngineError::TooManyTriggers);
                    }
                    let new = Trigger::new(name.clone(), definition.clone(), now.wall);
                    (new, None, TriggerChange::Created)
                }
            };
            let is_written =
                change == TriggerChange::Unchanged || self.put_trigger(None, before, &next).await?;
            if is_written {
                return Ok(TriggerApplication { report: report(Arc::new(next), now.wall), change });
            }
        }
        Err(EngineError::Conflict)
    }

    /// Triggers by name, after the one with this name.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn triggers(
        &self,
        after: Option<&Name>,
        limit: usize,
        now: Now,
    ) -> Result<Vec<TriggerReport>, EngineError> {
        let records = self.on_disk(|| self.store.records(RecordKind::Trigger, after, limit)).await?;
        // A damaged one harms itself alone: it is found by its name.
        let readable = records.iter().filter_map(|record| stored::decode(record).ok());
        Ok(readable.map(|trigger| report(Arc::new(trigger), now.wall)).collect())
    }

    /// The trigger with this name.
    ///
    /// # Errors
    /// When it does not exist or cannot be read, or the store fails.
    pub async fn trigger(&self, name: &Name, now: Now) -> Result<TriggerReport, EngineError> {
        Ok(report(self.read_trigger(name).await?.trigger, now.wall))
    }

    /// Pauses a trigger: it fires no more by itself, and refuses requests.
    ///
    /// # Errors
    /// When it does not exist or is paused already, or the store fails.
    pub async fn pause_trigger(
        &self,
        name: &Name,
        by: Option<Actor>,
        now: Now,
    ) -> Result<TriggerReport, EngineError> {
        self.change_trigger(name, &TriggerCommand::Pause { by }, now).await
    }

    /// Resumes a paused trigger. The instants of its pause are not fired.
    ///
    /// # Errors
    /// When it does not exist or is not paused, or the store fails.
    pub async fn resume_trigger(&self, name: &Name, now: Now) -> Result<TriggerReport, EngineError> {
        self.change_trigger(name, &TriggerCommand::Resume, now).await
    }

    /// Removes a trigger. The tasks that it has started go on.
    ///
    /// # Errors
    /// When it does not exist, or the store fails.
    pub async fn remove_trigger(&self, name: &Name, now: Now) -> Result<TriggerReport, EngineError> {
        for _ in 0..TRIES_MAX {
            let read = match self.read_trigger(name).await {
                Err(error @ EngineError::Store(windlass_store::StoreError::Damaged(_))) => {
                    // Nobody can know what it was: the caller gets the error, and the record is deleted.
                    self.delete_damaged(name).await?;
                    return Err(error);
                }
                read => read?,
            };
            let change = RecordChange {
                kind: RecordKind::Trigger,
                name: name.clone(),
                before: read.trigger.version,
                generation: read.generation,
                version: read.trigger.version + 1,
                body: None,
            };
            if self.commit_record(None, change).await? {
                return Ok(report(read.trigger, now.wall));
            }
        }
        Err(EngineError::Conflict)
    }

    /// What a trigger did, newest first, each with its number. `before`: only entries with lower numbers.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn trigger_history(
        &self,
        name: &Name,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, Timestamp, TriggerEntry)>, EngineError> {
        let subject = Some(name.clone());
        let query = JournalQuery { kind: JournalKind::TriggerFired, subject, before, limit };
        let entries = self.on_disk(|| self.store.journal(&query)).await?;
        let read = |(number, entry): (u64, windlass_store::JournalEntry)| {
            Some((number, entry.at, history::decode(&entry.body)?))
        };
        Ok(entries.into_iter().filter_map(read).collect())
    }

    /// The trigger with this name, for a change to build on.
    pub(crate) async fn read_trigger(&self, name: &Name) -> Result<ReadTrigger, EngineError> {
        self.find_trigger(name).await?.ok_or_else(|| EngineError::UnknownTrigger(name.clone()))
    }

    async fn find_trigger(&self, name: &Name) -> Result<Option<ReadTrigger>, EngineError> {
        let generation = self.store.generation();
        let names = std::slice::from_ref(name);
        let mut records = self.on_disk(|| self.store.records_by_name(RecordKind::Trigger, names)).await?;
        let Some(record) = records.pop().flatten() else { return Ok(None) };
        Ok(Some(ReadTrigger { trigger: Arc::new(stored::decode(&record)?), generation }))
    }

    async fn change_trigger(
        &self,
        name: &Name,
        command: &TriggerCommand,
        now: Now,
    ) -> Result<TriggerReport, EngineError> {
        for _ in 0..TRIES_MAX {
            let read = self.read_trigger(name).await?;
            let next = read.trigger.apply(command, now.wall)?;
            if self.put_trigger(None, Some(&read), &next).await? {
                return Ok(report(Arc::new(next), now.wall));
            }
        }
        Err(EngineError::Conflict)
    }

    /// Writes the next state of a trigger. Returns false if it has changed since it was read. `led`: the caller is the
    /// leader of a service.
    pub(crate) async fn put_trigger(
        &self,
        led: Option<Leadership>,
        before: Option<&ReadTrigger>,
        next: &Trigger,
    ) -> Result<bool, EngineError> {
        let change = RecordChange {
            kind: RecordKind::Trigger,
            name: next.name.clone(),
            before: before.map_or(0, |read| read.trigger.version),
            generation: before.map_or_else(|| self.store.generation(), |read| read.generation),
            version: next.version,
            body: Some(stored::encode(next)),
        };
        self.commit_record(led, change).await
    }

    async fn commit_record(
        &self,
        led: Option<Leadership>,
        change: RecordChange,
    ) -> Result<bool, EngineError> {
        let item = Item::Change(Change::Record(change));
        let reply = self.inbox.decide_as(led, vec![item]).await?.pop();
        let is_done = matches!(reply, Some(Reply::Done));
        if is_done {
            self.triggers_changed.set();
            self.topics_changed.store(true, Ordering::Relaxed);
        }
        Ok(is_done)
    }

    /// Deletes the record of a trigger that cannot be read.
    async fn delete_damaged(&self, name: &Name) -> Result<(), EngineError> {
        let generation = self.store.generation();
        let records = self.store.records_by_name(RecordKind::Trigger, std::slice::from_ref(name)).await?;
        let Some(record) = records.into_iter().flatten().next() else { return Ok(()) };
        match self.commit_record(None, RecordChange::delete(&record).decided_in(generation)).await? {
            true => Ok(()),
            false => Err(EngineError::Conflict),
        }
    }
}

/// A trigger with the time at which it fires next.
fn report(trigger: Arc<Trigger>, now: Timestamp) -> TriggerReport {
    let schedule = schedule(&trigger).filter(|_| trigger.paused.is_none());
    let next = schedule.and_then(|schedule| schedule.next_after(trigger.decided.max(now)));
    TriggerReport { next_at: next.map(|next| next + trigger.jitter(next)), trigger }
}

/// The instants of a trigger, if it has a schedule. It was checked when the trigger was applied.
pub(crate) fn schedule(trigger: &Trigger) -> Option<Schedule> {
    Schedule::of(&trigger.definition.schedule()?.timing, trigger.since).ok()
}
