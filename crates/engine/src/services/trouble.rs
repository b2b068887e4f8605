//! A broker that takes nothing: when it is tried again, and who is told.

use std::{
    fmt::Display,
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_core::{AlarmCommand, AlarmId, AlarmKind, Millis, TaskId, Timestamp};
use windlass_store::Now;

use crate::{Engine, EngineError};

/// A broker that was away for so long is worth an alarm.
const ALARM_AFTER: Millis = Millis::from_secs(5);

/// The time to the second try; it doubles from try to try.
const RETRY_AFTER: Millis = Millis(100);
const RETRY_AFTER_MAX: Millis = Millis::from_secs(5);

/// How often it is looked whether an alarm still stands while the broker is away: another server, or a person, may have taken
/// it for over.
const LOOK_EVERY: Millis = Millis::from_secs(30);

/// Whether a broker takes what it is given, as far as its user knows.
#[derive(Default)]
pub struct Trouble {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What is wrong, or was until now.
    known: Option<Known>,
    /// No alarm stands that a server has raised which is gone.
    is_clear: bool,
}

/// What is wrong, since when, and what was done about it.
struct Known {
    since: Now,
    message: String,
    tries: u32,
    retry_at: Millis,
    is_over: bool,
    is_told: bool,
    looked_at: Millis,
}

impl Trouble {
    /// The broker failed, perhaps once more. Tells whether this is the first time.
    pub fn goes_on(&self, error: &dyn Display, now: Now) -> bool {
        let known = &mut self.state().known;
        let before = known.take().filter(|before| !before.is_over || before.is_told);
        let is_first = before.is_none();
        let tries = before.as_ref().filter(|before| !before.is_over).map_or(0, |before| before.tries + 1);
        let wait = RETRY_AFTER.0.saturating_mul(1 << tries.min(10)).min(RETRY_AFTER_MAX.0);
        let is_told = before.as_ref().is_some_and(|before| before.is_told);
        *known = Some(Known {
            since: before.as_ref().map_or(now, |before| before.since),
            message: error.to_string(),
            tries,
            retry_at: Millis(now.mono.0 + wait),
            is_over: false,
            is_told,
            looked_at: before.map_or(now.mono, |before| before.looked_at),
        });
        is_first
    }

    /// It went well. Where people were told of trouble, they are to be told of that.
    pub fn ends(&self) {
        let mut state = self.state();
        let may_be_told = !state.is_clear;
        match &mut state.known {
            Some(told) if told.is_told => (told.is_over, told.retry_at) = (true, Millis(0)),
            known => *known = may_be_told.then(Known::over),
        }
    }

    /// Others have to do with the broker by now: nothing is known of it.
    pub(super) fn forget(&self) {
        *self.state() = State::default();
    }

    /// Whether there is any, or people are still to be told that it is over.
    pub fn is_known(&self) -> bool {
        self.state().known.is_some()
    }

    /// Whether the broker takes nothing.
    pub fn is_away(&self) -> bool {
        self.state().known.as_ref().is_some_and(|known| !known.is_over)
    }

    /// For how long the broker is not to be tried; nothing = it may be tried now.
    pub(super) fn rest(&self, now: Now) -> Option<Millis> {
        let retry_at = self.state().known.as_ref()?.retry_at;
        (now.mono < retry_at).then(|| Millis(retry_at.0 - now.mono.0))
    }

    /// Whether it has been so for long.
    pub(super) fn is_long(&self, now: Now) -> bool {
        self.state().known.as_ref().is_some_and(|known| known.is_long(now))
    }

    /// Since when the broker takes nothing, and what it says.
    pub(super) fn told(&self) -> Option<(Timestamp, String)> {
        let state = self.state();
        let known = state.known.as_ref().filter(|known| !known.is_over)?;
        Some((known.since.wall, known.message.clone()))
    }

    /// Raises the alarm when it was long, and resolves it when it is over. `describe` makes the alarm's message of what
    /// the broker says.
    ///
    /// # Errors
    /// When the store fails; it is to be told again.
    pub async fn tell(
        &self,
        engine: &Engine,
        id: AlarmId,
        describe: impl FnOnce(&str) -> String,
        now: Now,
    ) -> Result<(), EngineError> {
        if self.is_to_look(now)
            && !engine.alarm_stands(&id).await?
            && let Some(known) = &mut self.state().known
        {
            known.is_told = false;
        }
        let command = self.state().known.as_ref().and_then(|known| known.alarm(describe, now));
        let Some(command) = command else { return Ok(()) };
        let is_over = matches!(command, AlarmCommand::Resolve { .. });
        match engine.tell_alarm(id, command).await {
            Ok(_) | Err(EngineError::UnknownAlarm(_)) => {}
            Err(error) => return Err(error),
        }
        let mut state = self.state();
        if is_over {
            state.known.take_if(|known| known.is_over);
            state.is_clear = true;
        } else if let Some(known) = &mut state.known {
            known.is_told = true;
        }
        Ok(())
    }

    /// Whether it is time to look if an alarm that was raised still stands.
    fn is_to_look(&self, now: Now) -> bool {
        let mut state = self.state();
        let Some(known) = state.known.as_mut().filter(|known| known.is_told && !known.is_over) else {
            return false;
        };
        let is_time = now.mono.0 >= known.looked_at.0 + LOOK_EVERY.0;
        if is_time {
            known.looked_at = now.mono;
        }
        is_time
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// It is over, whatever a server before this one has told.
    fn over() -> Self {
        let since = Now { wall: Timestamp(0), mono: Millis(0) };
        let (message, tries, retry_at) = (String::new(), 0, Millis(0));
        Self { since, message, tries, retry_at, is_over: true, is_told: false, looked_at: Millis(0) }
    }

    /// Whether people are to hear of it.
    fn is_long(&self, now: Now) -> bool {
        now.mono.0 >= self.since.mono.0 + ALARM_AFTER.0
    }

    /// What the alarm is to be told now.
    fn alarm(&self, describe: impl FnOnce(&str) -> String, now: Now) -> Option<AlarmCommand> {
        match (self.is_over, self.is_told) {
            (true, _) => Some(AlarmCommand::Resolve { by: None }),
            (false, false) if self.is_long(now) => Some(AlarmCommand::Raise {
                kind: AlarmKind::BrokerAway,
                task: TaskId::NONE,
                step: None,
                message: describe(&self.message).into(),
            }),
            _ => None,
        }
    }
}
