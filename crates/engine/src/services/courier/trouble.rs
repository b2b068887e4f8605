//! A broker that takes nothing: when it is tried again, and who is told.

use windlass_brokers::BrokerError;
use windlass_core::{AlarmCommand, AlarmId, AlarmKind, Millis, TaskId, Timestamp};

use super::Courier;
use crate::{EngineError, ports::Now};

/// A broker that was away for so long is worth an alarm.
const ALARM_AFTER: Millis = Millis::from_secs(5);

/// The time to the second try; it doubles from try to try.
const RETRY_AFTER: Millis = Millis(100);
const RETRY_AFTER_MAX: Millis = Millis::from_secs(5);

/// What is wrong, since when, and what was done about it.
pub(super) struct Trouble {
    since: Now,
    message: String,
    tries: u32,
    pub(super) retry_at: Millis,
    pub(super) is_over: bool,
    is_told: bool,
}

impl Trouble {
    /// It failed, perhaps once more.
    pub(super) fn goes_on(trouble: &mut Option<Self>, error: &BrokerError, now: Now) {
        let before = trouble.take();
        let tries = before.as_ref().filter(|before| !before.is_over).map_or(0, |before| before.tries + 1);
        let wait = RETRY_AFTER.0.saturating_mul(1 << tries.min(10)).min(RETRY_AFTER_MAX.0);
        let is_told = before.as_ref().is_some_and(|before| before.is_told);
        *trouble = Some(Self {
            since: before.map_or(now, |before| before.since),
            message: error.to_string(),
            tries,
            retry_at: Millis(now.mono.0 + wait),
            is_over: false,
            is_told,
        });
    }

    /// It went well. Where people were told of trouble, they are to be told of that.
    pub(super) fn ends(trouble: &mut Option<Self>) {
        match trouble {
            Some(told) if told.is_told => (told.is_over, told.retry_at) = (true, Millis(0)),
            _ => *trouble = None,
        }
    }

    /// Whether people are to hear of it.
    pub(super) fn is_long(&self, now: Now) -> bool {
        now.mono.0 >= self.since.mono.0 + ALARM_AFTER.0
    }

    fn told(&self) -> (Timestamp, String) {
        (self.since.wall, self.message.clone())
    }
}

impl Courier {
    /// Raises the alarm about a broker that is away, and resolves it when it is there again.
    pub(super) async fn tell_trouble(&self, now: Now) -> Result<(), EngineError> {
        let module = &self.settings.module;
        let (command, told) = {
            let state = self.state();
            let trouble = state.trouble.as_ref();
            let told = trouble.filter(|trouble| !trouble.is_over).map(Trouble::told);
            let command = trouble.and_then(|trouble| {
                let is_long = trouble.is_long(now);
                match (trouble.is_over, trouble.is_told) {
                    (true, _) => Some(AlarmCommand::Resolve { by: None }),
                    (false, false) if is_long => Some(AlarmCommand::Raise {
                        kind: AlarmKind::BrokerAway,
                        task: TaskId::NONE,
                        step: None,
                        message: self.message_of(&trouble.message).into(),
                    }),
                    _ => None,
                }
            });
            (command, told)
        };
        self.engine.offering.note(module, told);
        let Some(command) = command else { return Ok(()) };
        let is_over = matches!(command, AlarmCommand::Resolve { .. });
        let id = AlarmId(format!("{}.{module}", AlarmKind::BrokerAway.as_str()).into());
        match self.engine.tell_alarm(id, command).await {
            Ok(_) | Err(EngineError::UnknownAlarm(_)) => {}
            Err(error) => return Err(error),
        }
        let mut state = self.state();
        if is_over {
            state.trouble.take_if(|trouble| trouble.is_over);
        } else if let Some(trouble) = state.trouble.as_mut() {
            trouble.is_told = true;
        }
        Ok(())
    }

    fn message_of(&self, error: &str) -> String {
        let (module, queue, broker) = (&self.settings.module, &self.settings.queue, self.broker.name());
        format!("the steps of {module} cannot be offered in the queue {queue} of {broker}: {error}")
    }
}
