//! A broker that takes nothing: when it is tried again, and who is told.

use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_brokers::BrokerError;
use windlass_core::{AlarmCommand, AlarmId, AlarmKind, Millis, TaskId, Timestamp};

use crate::{Engine, EngineError, ports::Now};

/// A broker that was away for so long is worth an alarm.
const ALARM_AFTER: Millis = Millis::from_secs(5);

/// The time to the second try; it doubles from try to try.
const RETRY_AFTER: Millis = Millis(100);
const RETRY_AFTER_MAX: Millis = Millis::from_secs(5);

/// Whether a broker takes what it is given, as far as its user knows.
#[derive(Default)]
pub(super) struct Trouble {
    state: Mutex<Option<State>>,
}

/// What is wrong, since when, and what was done about it.
struct State {
    since: Now,
    message: String,
    tries: u32,
    retry_at: Millis,
    is_over: bool,
    is_told: bool,
}

impl Trouble {
    /// The broker failed, perhaps once more. Tells whether this is the first time.
    pub(super) fn goes_on(&self, error: &BrokerError, now: Now) -> bool {
        let mut state = self.state();
        let before = state.take();
        let is_first = before.is_none();
        let tries = before.as_ref().filter(|before| !before.is_over).map_or(0, |before| before.tries + 1);
        let wait = RETRY_AFTER.0.saturating_mul(1 << tries.min(10)).min(RETRY_AFTER_MAX.0);
        let is_told = before.as_ref().is_some_and(|before| before.is_told);
        *state = Some(State {
            since: before.map_or(now, |before| before.since),
            message: error.to_string(),
            tries,
            retry_at: Millis(now.mono.0 + wait),
            is_over: false,
            is_told,
        });
        is_first
    }

    /// It went well. Where people were told of trouble, they are to be told of that.
    pub(super) fn ends(&self) {
        let mut state = self.state();
        match &mut *state {
            Some(told) if told.is_told => (told.is_over, told.retry_at) = (true, Millis(0)),
            _ => *state = None,
        }
    }

    /// Whether there is any, or people are still to be told that it is over.
    pub(super) fn is_known(&self) -> bool {
        self.state().is_some()
    }

    /// Whether the broker takes nothing.
    pub(super) fn is_away(&self) -> bool {
        self.state().as_ref().is_some_and(|state| !state.is_over)
    }

    /// For how long the broker is not to be tried; nothing = it may be tried now.
    pub(super) fn rest(&self, now: Now) -> Option<Millis> {
        let retry_at = self.state().as_ref()?.retry_at;
        (now.mono < retry_at).then(|| Millis(retry_at.0 - now.mono.0))
    }

    /// Whether it has been so for long.
    pub(super) fn is_long(&self, now: Now) -> bool {
        self.state().as_ref().is_some_and(|state| state.is_long(now))
    }

    /// Since when the broker takes nothing, and what it says.
    pub(super) fn told(&self) -> Option<(Timestamp, String)> {
        let state = self.state();
        let state = state.as_ref().filter(|state| !state.is_over)?;
        Some((state.since.wall, state.message.clone()))
    }

    /// Raises the alarm when it was long, and resolves it when it is over. `describe` makes the alarm's message of what
    /// the broker says.
    pub(super) async fn tell(
        &self,
        engine: &Engine,
        id: AlarmId,
        describe: impl FnOnce(&str) -> String,
        now: Now,
    ) -> Result<(), EngineError> {
        let command = self.state().as_ref().and_then(|state| state.alarm(describe, now));
        let Some(command) = command else { return Ok(()) };
        let is_over = matches!(command, AlarmCommand::Resolve { .. });
        match engine.tell_alarm(id, command).await {
            Ok(_) | Err(EngineError::UnknownAlarm(_)) => {}
            Err(error) => return Err(error),
        }
        let mut state = self.state();
        if is_over {
            state.take_if(|state| state.is_over);
        } else if let Some(state) = &mut *state {
            state.is_told = true;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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
