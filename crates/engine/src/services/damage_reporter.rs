//! Raises an alarm for each task whose rows are damaged, and keeps such tasks out of the rounds of other services.

use std::sync::Arc;

use windlass_core::{AlarmCommand, AlarmId, AlarmKind, TaskId};
use windlass_store::DamagedTask;

use crate::{Engine, EngineError, RoundsOf, deciding::inbox::Item};

/// The maximum number of alarms raised in one round: if a whole file is damaged, other work continues between rounds.
const ROUND_MAX: usize = 100;

/// Raises alarms about damaged rows.
pub struct DamageReporter {
    engine: Arc<Engine>,
}

impl DamageReporter {
    /// A reporter of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Raises a bounded number of alarms about tasks that the store could not read. Returns their number. An alarm that
    /// another server has raised, or this one before a restart, is not raised again.
    ///
    /// # Errors
    /// When the store fails; the next round tries again.
    pub async fn run_once(&self) -> Result<usize, EngineError> {
        self.engine.rounds.note(RoundsOf::DamageReporter, self.round().await)
    }

    async fn round(&self) -> Result<usize, EngineError> {
        let mut raised = 0;
        for damaged in self.engine.store.quarantine().unreported().into_iter().take(ROUND_MAX) {
            let id = alarm_id(&damaged);
            if !self.engine.alarm_stands(&id).await? {
                let reason = &damaged.reason;
                let message = if !damaged.row.is_empty() {
                    reason.to_string()
                } else if damaged.id == TaskId::NONE {
                    format!(
                        "rows in the store are damaged and are skipped: {reason}; run `windlass doctor`, then restore the rows from a backup"
                    )
                } else {
                    format!(
                        "rows in the store are damaged, and the task is skipped in all work: {reason}; run `windlass doctor`, then restore the rows or reverse the task's effects by hand"
                    )
                };
                let (kind, message) = (AlarmKind::DamagedRow, message.into());
                let raise = AlarmCommand::Raise { kind, task: damaged.id, step: None, message };
                self.engine.tell_alarm(id, raise).await?;
                raised += 1;
            }
            self.engine.store.quarantine().set_reported(&damaged);
        }
        Ok(raised)
    }
}

/// The alarm about a damaged task, or about a damaged row that belongs to no task.
fn alarm_id(damaged: &DamagedTask) -> AlarmId {
    if damaged.row.is_empty() {
        return AlarmId::new(AlarmKind::DamagedRow, damaged.id, None);
    }
    AlarmId(format!("{}.{}", AlarmKind::DamagedRow.as_str(), damaged.row).into())
}

impl Engine {
    /// The number of rows to read so that `count` remain after damaged tasks are left out.
    pub(super) fn beside_damaged(&self, count: usize) -> usize {
        count + self.store.quarantine().len()
    }

    /// The items that concern no damaged task. The others stay in the store, since no round could process them.
    pub(super) fn without_damaged(&self, items: impl Iterator<Item = Item>) -> Vec<Item> {
        let quarantine = self.store.quarantine();
        let is_sound = |item: &Item| !item.tasks().into_iter().flatten().any(|id| quarantine.contains(id));
        items.filter(is_sound).collect()
    }
}
