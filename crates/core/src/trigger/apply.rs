//! Changes of a trigger.

use thiserror::Error;

use crate::{Actor, Overlap, TaskId, Timestamp, Trigger, TriggerDefinition, TriggerPause};

/// A change of a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TriggerCommand {
    /// It gets another definition.
    Define(TriggerDefinition),
    /// It fires no more by itself, and refuses requests.
    Pause {
        /// Who asked for it.
        by: Option<Actor>,
    },
    /// It goes on. Instants of the pause are not fired.
    Resume,
    /// Instants until this one are missed.
    Pass(Timestamp),
    /// This instant is skipped.
    Skip(Timestamp),
    /// This instant waits for the end of earlier tasks.
    Queue(Timestamp),
    /// This instant was fired.
    Fired {
        /// The instant.
        instant: Timestamp,
        /// The tasks that were started.
        tasks: Vec<TaskId>,
    },
}

/// Why a change of a trigger is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TriggerRejection {
    /// The instant was decided before.
    #[error("this instant was decided before")]
    Decided,
    /// It is paused already.
    #[error("it is paused already")]
    Paused,
    /// It is not paused.
    #[error("it is not paused")]
    NotPaused,
}

impl Trigger {
    /// The trigger after `command`; the same version = nothing changed.
    ///
    /// # Errors
    /// When the command does not fit the state; nothing has changed then.
    pub fn apply(&self, command: &TriggerCommand, now: Timestamp) -> Result<Self, TriggerRejection> {
        let mut next = Self { version: self.version + 1, ..self.clone() };
        match command {
            TriggerCommand::Define(definition) if *definition == self.definition => return Ok(self.clone()),
            TriggerCommand::Define(definition) => next.define(definition, now),
            TriggerCommand::Pause { .. } if self.paused.is_some() => return Err(TriggerRejection::Paused),
            TriggerCommand::Pause { by } => next.paused = Some(TriggerPause { at: now, by: by.clone() }),
            TriggerCommand::Resume if self.paused.is_none() => return Err(TriggerRejection::NotPaused),
            TriggerCommand::Resume => {
                next.paused = None;
                next.decided = self.decided.max(now);
            }
            TriggerCommand::Pass(until) => next.advance(*until)?,
            TriggerCommand::Skip(instant) => next.advance(*instant)?,
            TriggerCommand::Queue(instant) => {
                next.advance(*instant)?;
                next.waiting.push(*instant);
            }
            TriggerCommand::Fired { instant, tasks } => {
                match next.waiting.first() == Some(instant) {
                    true => drop(next.waiting.remove(0)),
                    false => next.advance(*instant)?,
                }
                next.fired = Some(*instant);
                next.started = match next.definition.schedule().map(|schedule| schedule.overlap) {
                    // Nothing is asked of them.
                    None | Some(Overlap::Allow) => Vec::new(),
                    Some(_) => tasks.clone(),
                };
            }
        }
        Ok(next)
    }

    fn define(&mut self, definition: &TriggerDefinition, now: Timestamp) {
        let timing =
            |definition: &TriggerDefinition| definition.schedule().map(|schedule| schedule.timing.clone());
        if timing(&self.definition) != timing(definition) {
            self.since = now;
            self.decided = self.decided.max(now);
        }
        if definition.schedule().is_none_or(|schedule| schedule.overlap != Overlap::Queue) {
            self.waiting.clear();
        }
        self.definition = definition.clone();
        self.changed_at = now;
    }

    fn advance(&mut self, instant: Timestamp) -> Result<(), TriggerRejection> {
        if instant <= self.decided {
            return Err(TriggerRejection::Decided);
        }
        self.decided = instant;
        Ok(())
    }
}
