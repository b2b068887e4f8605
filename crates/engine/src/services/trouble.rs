//! A failing broker: when it is tried again, and its alarm.

use std::{
    fmt::Display,
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_core::{AlarmCommand, AlarmId, AlarmKind, Millis, TaskId, Timestamp};
use windlass_store::{Leadership, Now};

use crate::{Engine, EngineError};

/// A failure of this duration raises an alarm.
const ALARM_AFTER: Millis = Millis::from_secs(5);

/// The time until the second try; it doubles from try to try.
pub(super) const RETRY_AFTER: Millis = Millis(100);
pub(super) const RETRY_AFTER_MAX: Millis = Millis::from_secs(5);

/// How often the server checks whether its alarm is still open while the broker fails: another server or an operator
/// may have resolved it.
const LOOK_EVERY: Millis = Millis::from_secs(30);

/// Whether a broker works, as seen by its user.
#[derive(Default)]
pub struct Trouble {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The current failure, or one that has just ended.
    known: Option<Known>,
    /// No open alarm can be left from a server that is gone.
    is_clear: bool,
}

/// A failure: its start, its message, and the state of its alarm.
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
    /// Records a failure of the broker. Returns whether it is the first one in a row.
    pub fn goes_on(&self, error: &dyn Display, now: Now) -> bool {
        let known = &mut self.state().known;
        let before = known.take().filter(|before| !before.is_over || before.is_told);
        let is_first = before.is_none();
        let tries = before.as_ref().filter(|before| !before.is_over).map_or(0, |before| before.tries + 1);
        let wait = RETRY_AFTER.doubled(tries).min(RETRY_AFTER_MAX);
        let is_told = before.as_ref().is_some_and(|before| before.is_told);
        *known = Some(Known {
            since: before.as_ref().map_or(now, |before| before.since),
            message: error.to_string(),
            tries,
            retry_at: Millis(now.mono.0 + wait.0),
            is_over: false,
            is_told,
            looked_at: before.map_or(now.mono, |before| before.looked_at),
        });
        is_first
    }

    /// Records a success. If an alarm was raised, it must be resolved.
    pub fn ends(&self) {
        let mut state = self.state();
        let may_be_told = !state.is_clear;
        match &mut state.known {
            Some(told) if told.is_told => (told.is_over, told.retry_at) = (true, Millis(0)),
            known => *known = may_be_told.then(Known::over),
        }
    }

    /// Forgets everything, because another server uses the broker now.
    pub(super) fn forget(&self) {
        *self.state() = State::default();
    }

    /// Whether there is a failure, or one whose alarm must still be resolved.
    pub fn is_known(&self) -> bool {
        self.state().known.is_some()
    }

    /// Whether the broker fails.
    pub fn is_away(&self) -> bool {
        self.state().known.as_ref().is_some_and(|known| !known.is_over)
    }

    /// How long the broker must not be tried; `None` = it may be tried now.
    pub(super) fn rest(&self, now: Now) -> Option<Millis> {
        let retry_at = self.state().known.as_ref()?.retry_at;
        (now.mono < retry_at).then(|| Millis(retry_at.0 - now.mono.0))
    }

    /// Whether the failure has lasted long enough for an alarm.
    pub(super) fn is_long(&self, now: Now) -> bool {
        self.state().known.as_ref().is_some_and(|known| known.is_long(now))
    }

    /// Since when the broker fails, and its error message.
    pub(super) fn told(&self) -> Option<(Timestamp, String)> {
        let state = self.state();
        let known = state.known.as_ref().filter(|known| !known.is_over)?;
        Some((known.since.wall, known.message.clone()))
    }

    /// Raises the alarm when the failure lasts, and resolves it when the failure is over. `describe` turns the broker's
    /// error message into the alarm's message.
    ///
    /// # Errors
    /// When the store fails; call it again.
    pub async fn tell(
        &self,
        engine: &Engine,
        id: AlarmId,
        describe: impl FnOnce(&str) -> String,
        now: Now,
    ) -> Result<(), EngineError> {
        self.tell_as(None, engine, id, describe, now).await
    }

    /// The same for a user of the broker that leads a service: `led` is its leadership.
    pub(super) async fn tell_as(
        &self,
        led: Option<Leadership>,
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
        match engine.tell_alarm_as(led, id, command).await {
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

    /// Whether it is time to check if a raised alarm is still open.
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
    /// A failure that is over, to resolve an alarm that an earlier server may have raised.
    fn over() -> Self {
        let since = Now { wall: Timestamp(0), mono: Millis(0) };
        let (message, tries, retry_at) = (String::new(), 0, Millis(0));
        Self { since, message, tries, retry_at, is_over: true, is_told: false, looked_at: Millis(0) }
    }

    /// Whether it lasts long enough for an alarm.
    fn is_long(&self, now: Now) -> bool {
        now.mono.0 >= self.since.mono.0 + ALARM_AFTER.0
    }

    /// The command to send to the alarm now.
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
