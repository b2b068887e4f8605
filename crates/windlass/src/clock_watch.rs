//! Watches for a machine's date that was set back: raises an alarm, and reports the difference to the engine.

use std::{sync::Arc, time::Duration};

use tokio::time;
use windlass_core::{AlarmCommand, AlarmId, AlarmKind, Millis, TaskId};
use windlass_engine::{Engine, EngineError};

use crate::clock::SystemClock;

/// The interval of the checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A date set back by less causes no alarm: clocks are corrected by small amounts all the time.
const ALARM_FROM: Millis = Millis::from_secs(5);

/// Checks the date while the server runs.
pub(crate) async fn watch(engine: Arc<Engine>, clock: Arc<SystemClock>) {
    // An earlier server may have raised the alarm.
    let mut is_raised = None;
    loop {
        let ahead = clock.ahead();
        engine.is_ahead(ahead);
        let told = match (is_raised, ahead) {
            (None | Some(false), ahead) if ahead > ALARM_FROM => {
                raise(&engine, ahead).await.map(|()| is_raised = Some(true))
            }
            (None | Some(true), Millis(0)) => resolve(&engine).await.map(|()| is_raised = Some(false)),
            _ => Ok(()),
        };
        if let Err(error) = told {
            tracing::warn!(%error, "cannot write the alarm about the clock; retrying");
        }
        time::sleep(LOOK_EVERY).await;
    }
}

async fn raise(engine: &Engine, ahead: Millis) -> Result<(), EngineError> {
    tracing::warn!(%ahead, "the clock of this machine was set back");
    let message = format!(
        "the clock of the server's machine was set back by {ahead}. Retries, timeouts and delays continue. Recorded times \
         are ahead of the clock until it has caught up, which takes 20 times as long"
    );
    let command = AlarmCommand::Raise {
        kind: AlarmKind::ClockSetBack,
        task: TaskId::NONE,
        step: None,
        message: message.into(),
    };
    engine.tell_alarm(id(), command).await.map(drop)
}

async fn resolve(engine: &Engine) -> Result<(), EngineError> {
    if !engine.alarm_stands(&id()).await? {
        return Ok(());
    }
    engine.tell_alarm(id(), AlarmCommand::Resolve { by: None }).await.map(drop)
}

fn id() -> AlarmId {
    AlarmId(AlarmKind::ClockSetBack.as_str().into())
}
