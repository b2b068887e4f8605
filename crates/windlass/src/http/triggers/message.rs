//! Messages of queues that fire triggers.

use serde_json::value::RawValue;
use windlass_core::{Name, TriggerSource};
use windlass_engine::{Occasion, services::Unreadable};

use crate::http::{App, answer::problem::Refused};

impl App {
    /// Fires a trigger for a message, once for each id: flows that it started before are not started again.
    ///
    /// # Errors
    /// [`Unreadable::Later`] while the trigger is paused, and [`Unreadable::Refused`] when there is no such trigger or one of
    /// its flows cannot be started.
    pub(crate) async fn fire_by_message(
        &self,
        name: &Name,
        body: &RawValue,
        id: Option<&str>,
        by: &str,
    ) -> Result<(), Unreadable> {
        let Some(id) = id else {
            return Err(Unreadable::Refused(
                "the message has no id to recognize it by: set `key` in the configuration".to_owned(),
            ));
        };
        let now = self.now();
        let trigger = self.engine.trigger(name, now).await.map_err(Refused::from)?.trigger;
        if trigger.definition.source != TriggerSource::Intake {
            return Err(Unreadable::Refused(format!(
                "messages of queues do not fire the trigger {name}: apply it with `intake: true`"
            )));
        }
        if trigger.paused.is_some() {
            return Err(Unreadable::Later(format!("the trigger {name} is paused: resume it")));
        }
        let members = format!(r#""body":{}"#, body.get());
        let occasion = Occasion::Message { id, members: &members, params: Some(body) };
        let starts = self.engine.fire_trigger(&trigger, occasion, None, now).await.map_err(Refused::from)?;
        let mut failure = None;
        for start in starts {
            let is_failure = start.is_failure();
            match start.result {
                Ok((task, existing)) => {
                    self.metrics.submitted(existing.is_some());
                    tracing::debug!(%task, by, existing = existing.is_some(), "a message fired a trigger");
                }
                // One that must wait comes again, and the others are not started again.
                Err(error) if is_failure => {
                    let refusal = Unreadable::from(Refused::from(error));
                    if failure.is_none() || matches!(refusal, Unreadable::Later(_)) {
                        failure = Some(refusal);
                    }
                }
                Err(error) => tracing::info!(by, %error, "a message started no task"),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}
