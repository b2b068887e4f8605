//! Fires triggers at the instants of their schedules.
//!
//! ```text
//! due instant ─▶ submit under (trigger, instant, flow) ─▶ the record advances ─▶ history, alarm
//!                        │ dies here                 │ dies here
//!                        ▼                           ▼
//!              the next leader submits again:   an entry of the history is missing
//!              the same tasks, by their keys
//! ```
//!
//! One server does this at a time. If two do so for a moment, the store refuses what the one writes that has lost its
//! lease, and the version of the record refuses what was decided on an old state.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_core::{
    Actor, Command, Decision, Firing, Millis, Name, TaskId, Timestamp, Trigger, TriggerCommand,
};
use windlass_schedule::{Schedule, rfc3339};
use windlass_store::{Leadership, Now, RecordKind, Service};

use super::leading::Led;
use crate::{
    Engine, EngineError, RoundsOf, TRIGGERS_MAX, TriggerEntry, TriggerOutcome,
    commands::Occasion,
    commands::triggers::{ReadTrigger, firing::TriggerStart, schedule, stored},
    deciding::inbox::Item,
};

/// How often all triggers are read: other servers may have changed them.
pub const TRIGGERS_READ_EVERY: Millis = Millis(1_000);

/// The most instants of a trigger that are decided in a round, so that a trigger with a long backlog does not delay others.
const DECISIONS_MAX: usize = 100;

/// Fires triggers at the instants of their schedules.
pub struct TriggerKeeper {
    engine: Arc<Engine>,
    known: Mutex<Known>,
}

/// The triggers with schedules, as they were read or changed last. Every change is checked by the version of its record.
#[derive(Default)]
struct Known {
    /// When they were read, and under which leadership.
    read: Option<(Millis, Option<Leadership>)>,
    triggers: BTreeMap<Name, Kept>,
}

/// A trigger with a schedule.
#[derive(Clone)]
struct Kept {
    read: ReadTrigger,
    schedule: Arc<Schedule>,
    /// When something is to be done next.
    look_at: Timestamp,
}

impl TriggerKeeper {
    /// A trigger keeper of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, known: Mutex::default() }
    }

    /// Fires what is due. Returns the time until something is due again, at most [`TRIGGERS_READ_EVERY`].
    ///
    /// # Errors
    /// When the store fails; what is due stays due.
    pub async fn run_once(&self, now: Now) -> Result<Millis, EngineError> {
        let round = |led| async move { self.round(led, now).await.map(Some) };
        let pause = self.engine.round_of(RoundsOf::TriggerKeeper, Service::Timekeeping, now, round).await?;
        Ok(pause.unwrap_or(TRIGGERS_READ_EVERY))
    }

    /// Returns when triggers were changed on this server.
    pub async fn changed(&self) {
        self.engine.triggers_changed.wait().await;
        self.known().read = None;
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn round(&self, led: Led, now: Now) -> Result<Millis, EngineError> {
        self.read(led, now).await?;
        let due: Vec<Kept> =
            self.known().triggers.values().filter(|kept| kept.look_at <= now.wall).cloned().collect();
        let mut failed = None;
        for kept in due {
            let name = kept.read.trigger.name.clone();
            match self.keep(led, kept, now).await {
                Ok(Some(kept)) => drop(self.known().triggers.insert(name, kept)),
                // It was changed meanwhile.
                Ok(None) => self.known().read = None,
                // One trigger that cannot be fired does not hold back the others.
                Err(error) => {
                    if let Some(kept) = self.known().triggers.get_mut(&name) {
                        kept.look_at = now.wall + TRIGGERS_READ_EVERY;
                    }
                    failed = Some(error);
                }
            }
        }
        if let Some(error) = failed {
            self.known().read = None;
            return Err(error);
        }
        let known = self.known();
        let next = known.triggers.values().map(|kept| kept.look_at - now.wall).min();
        let is_read = known.read.is_some();
        Ok(next.filter(|_| is_read).map_or(Millis(0), |next| next).min(TRIGGERS_READ_EVERY))
    }

    /// Reads the triggers, if that was long ago.
    async fn read(&self, led: Led, now: Now) -> Result<(), EngineError> {
        let is_fresh = |(at, lease): (Millis, Option<Leadership>)| {
            lease == led.lease && now.mono.0 < at.0.saturating_add(TRIGGERS_READ_EVERY.0)
        };
        if self.known().read.is_some_and(is_fresh) {
            return Ok(());
        }
        let generation = self.engine.store.generation();
        let records = self.engine.store.records(RecordKind::Trigger, None, TRIGGERS_MAX).await?;
        let mut known = self.known();
        let mut before = std::mem::take(&mut known.triggers);
        for record in records {
            let kept = before.remove(&record.name).filter(|kept| {
                (kept.read.trigger.version, kept.read.generation) == (record.version, generation)
            });
            // A damaged one does not fire; `doctor` and `trigger show` say so.
            let kept = kept.or_else(|| {
                let trigger = stored::decode(&record).ok()?;
                let schedule = Arc::new(schedule(&trigger)?);
                let read = ReadTrigger { trigger: Arc::new(trigger), generation };
                Some(Kept { read, schedule, look_at: now.wall })
            });
            known.triggers.extend(kept.map(|kept| (record.name, kept)));
        }
        known.read = Some((now.mono, led.lease));
        Ok(())
    }

    /// Decides the due instants of a trigger. `None` = it was changed by others meanwhile.
    async fn keep(&self, led: Led, mut kept: Kept, now: Now) -> Result<Option<Kept>, EngineError> {
        for _ in 0..DECISIONS_MAX {
            let trigger = kept.read.trigger.clone();
            let runs = self.runs(&trigger).await?;
            let (command, entry, starts) = match trigger.decide(&*kept.schedule, runs, now.wall) {
                Decision::Wait(until) => {
                    let again = now.wall + TRIGGERS_READ_EVERY;
                    let is_waiting = !trigger.waiting.is_empty();
                    kept.look_at = until.filter(|until| !is_waiting || *until < again).unwrap_or(again);
                    return Ok(Some(kept));
                }
                Decision::Pass(missed) => {
                    let mut entry = TriggerEntry::of_instant(missed.until, TriggerOutcome::Missed);
                    entry.missed = missed.count;
                    (TriggerCommand::Pass(missed.until), entry, Vec::new())
                }
                Decision::Skip(instant) => {
                    let entry = TriggerEntry::of_instant(instant, TriggerOutcome::Skipped);
                    (TriggerCommand::Skip(instant), entry, Vec::new())
                }
                Decision::Queue(instant) => {
                    let entry = TriggerEntry::of_instant(instant, TriggerOutcome::Queued);
                    (TriggerCommand::Queue(instant), entry, Vec::new())
                }
                Decision::Fire(firing) => {
                    let starts = self.fire(led, &trigger, firing, now).await?;
                    let started = |start: &TriggerStart| start.result.as_ref().ok().map(|(task, _)| *task);
                    let tasks = starts.iter().filter_map(started).collect();
                    let mut entry = TriggerEntry::of_instant(firing.instant, TriggerOutcome::Fired);
                    entry.missed = firing.missed;
                    entry.tasks = starts.iter().map(TriggerStart::entry).collect();
                    (TriggerCommand::Fired { instant: firing.instant, tasks }, entry, starts)
                }
            };
            // The decision was made on this very state, so it fits.
            let Ok(next) = trigger.apply(&command, now.wall) else { return Ok(None) };
            if !self.engine.put_trigger(led.lease, Some(&kept.read), &next).await? {
                return Ok(None);
            }
            kept.read.trigger = Arc::new(next);
            self.engine.note_trigger(led.lease, &trigger.name, &entry, now.wall).await?;
            if !starts.is_empty() {
                let instant = entry.instant.map(rfc3339).unwrap_or_default();
                self.engine.tell_trigger(led, &trigger.name, &starts, &format!("at {instant}")).await?;
            }
        }
        kept.look_at = now.wall;
        Ok(Some(kept))
    }

    /// Whether a task that the schedule started last has not ended.
    async fn runs(&self, trigger: &Trigger) -> Result<bool, EngineError> {
        if trigger.started.is_empty() {
            return Ok(false);
        }
        let tasks = self.engine.tasks_by_id(&trigger.started).await?;
        Ok(tasks.iter().flatten().any(|loaded| !loaded.task.is_ended()))
    }

    async fn fire(
        &self,
        led: Led,
        trigger: &Trigger,
        firing: Firing,
        now: Now,
    ) -> Result<Vec<TriggerStart>, EngineError> {
        if firing.cancels {
            let by = Actor { name: format!("trigger {}", trigger.name).into(), claimed: false };
            let cancel = |id: &TaskId| {
                let command = Command::Cancel { by: Some(by.clone()) };
                Item::Task { id: *id, command, claim: None, logs: Vec::new() }
            };
            let items = trigger.started.iter().map(cancel).collect();
            // Tasks that have ended meanwhile refuse it.
            self.engine.inbox.decide_as(led.lease, items).await?;
        }
        self.engine.start_led(led, trigger, Occasion::Instant(firing.instant), now).await
    }
}
