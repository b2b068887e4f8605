//! Fires the triggers whose topics messages have.
//!
//! A message is acknowledged after it has fired its triggers, so none is missed; one that comes again after a crash fires
//! them again, unless the trigger computes an `id` from it.

use std::sync::{Arc, atomic::Ordering};

use futures_util::future::join_all;
use serde_json::{Value, value::RawValue};
use windlass_brokers::DeviceMessage;
use windlass_core::{EvaluationBudget, Expression, Millis, Trigger, TriggerSource, TriggerTopic};
use windlass_store::{Now, RecordKind};

use super::DeviceKeeper;
use crate::{
    EngineError, TRIGGERS_MAX, TriggerCause, TriggerEntry, TriggerOutcome,
    commands::{
        Occasion,
        triggers::{
            firing::{EVALUATION_STEPS_MAX, TriggerStart, scope},
            stored,
        },
    },
    services::leading::Led,
};

/// How often triggers are read again while messages come: other servers may have changed them.
const READ_EVERY: Millis = Millis::from_secs(2);

/// The longest id of a message, in bytes.
const ID_BYTES_MAX: usize = 255;

/// The triggers that messages of devices fire.
#[derive(Default)]
pub(super) struct Topics {
    triggers: Vec<Arc<Trigger>>,
    read_at: Option<Millis>,
}

/// What expressions read of a message.
struct Content {
    /// Members of a JSON object.
    members: String,
    /// The payload, if it is an object.
    params: Option<Box<RawValue>>,
}

impl DeviceKeeper {
    /// Fires triggers. Messages that the broker had kept for new subscribers fire none.
    ///
    /// # Errors
    /// When the store fails: the messages must come again.
    pub(super) async fn fire(
        &self,
        led: Led,
        messages: &[DeviceMessage],
        now: Now,
    ) -> Result<(), EngineError> {
        let triggers = self.topics(now).await?;
        if triggers.is_empty() {
            return Ok(());
        }
        let mut firings = Vec::new();
        for message in messages.iter().filter(|message| !message.retained) {
            for trigger in &triggers {
                if let TriggerSource::Mqtt(topic) = &trigger.definition.source
                    && topic.filter.matches(&message.topic)
                {
                    firings.push(self.fire_one(led, trigger, topic, message, now));
                }
            }
        }
        join_all(firings).await.into_iter().collect()
    }

    /// The triggers that messages fire and that are not paused.
    async fn topics(&self, now: Now) -> Result<Vec<Arc<Trigger>>, EngineError> {
        let is_changed = self.engine.topics_changed.swap(false, Ordering::Relaxed);
        {
            let state = self.state();
            let is_fresh = state.topics.read_at.is_some_and(|at| now.mono.0 < at.0 + READ_EVERY.0);
            if is_fresh && !is_changed {
                return Ok(state.topics.triggers.clone());
            }
        }
        let records = self.engine.store.records(RecordKind::Trigger, None, TRIGGERS_MAX).await;
        let records = records.inspect_err(|_| self.engine.topics_changed.store(true, Ordering::Relaxed))?;
        // A damaged one does not fire; `doctor` and `trigger show` say so.
        let triggers = records.iter().filter_map(|record| stored::decode(record).ok());
        let fires = |trigger: &Trigger| {
            trigger.paused.is_none() && matches!(trigger.definition.source, TriggerSource::Mqtt(_))
        };
        let triggers: Vec<_> = triggers.filter(fires).map(Arc::new).collect();
        self.state().topics = Topics { triggers: triggers.clone(), read_at: Some(now.mono) };
        Ok(triggers)
    }

    async fn fire_one(
        &self,
        led: Led,
        trigger: &Trigger,
        topic: &TriggerTopic,
        message: &DeviceMessage,
        now: Now,
    ) -> Result<(), EngineError> {
        let Content { members, params } = content(message);
        let (members, params) = (members.as_str(), params.as_deref());
        let id = match &topic.id {
            Some(id) => computed(id, trigger, members),
            None => Ok(self.engine.next_task_id(now).to_string()),
        };
        let starts = match id {
            Ok(id) => {
                let occasion = Occasion::Message { id: &id, members, params };
                self.engine.start_led(led, trigger, occasion, now).await?
            }
            Err(message) => refusals(trigger, &message),
        };
        if starts.iter().all(|start| matches!(start.result, Ok((_, Some(_))))) {
            return Ok(());
        }
        let entry = TriggerEntry {
            cause: TriggerCause::Message,
            instant: None,
            outcome: TriggerOutcome::Fired,
            missed: 0,
            tasks: starts.iter().map(TriggerStart::entry).collect(),
            by: None,
        };
        self.engine.note_trigger(led.lease, &trigger.name, &entry, now.wall).await?;
        let occasion = format!("for a message on {}", message.topic);
        self.engine.tell_trigger(led, &trigger.name, &starts, &occasion).await
    }
}

/// The id of a message.
fn computed(id: &Expression, trigger: &Trigger, members: &str) -> Result<String, String> {
    let scope = scope(trigger, &Occasion::Message { id: "", members, params: None });
    let id = id.text_within(&scope, &EvaluationBudget::new(EVALUATION_STEPS_MAX));
    let id = id.map_err(|error| format!("`mqtt.id`: {error}"))?;
    match id.len() {
        1..=ID_BYTES_MAX => Ok(id.into()),
        bytes => Err(format!("`mqtt.id` gives {bytes} bytes: it must give 1 to {ID_BYTES_MAX}")),
    }
}

fn refusals(trigger: &Trigger, message: &str) -> Vec<TriggerStart> {
    let refusal = |flow: &windlass_core::TriggeredFlow| TriggerStart {
        flow: flow.flow.clone(),
        result: Err(EngineError::TriggerParams { flow: flow.flow.clone(), message: message.to_owned() }),
    };
    trigger.definition.flows.iter().map(refusal).collect()
}

/// The payload is what its JSON says; anything else is a string.
fn content(message: &DeviceMessage) -> Content {
    let text = String::from_utf8_lossy(&message.payload);
    let json: Option<Box<RawValue>> = serde_json::from_str(&text).ok();
    let string = Value::from(&*text).to_string();
    let payload = json.as_deref().map_or(string.as_str(), RawValue::get);
    let levels = Value::from_iter(message.topic.split('/'));
    let topic = Value::from(message.topic.as_str());
    let members = format!(r#""topic":{topic},"levels":{levels},"payload":{payload}"#);
    Content { members, params: json.filter(|json| json.get().starts_with('{')) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content_of(topic: &str, payload: &[u8]) -> (String, bool) {
        let message =
            DeviceMessage { topic: topic.to_owned(), payload: payload.to_vec(), retained: false, receipt: 0 };
        let Content { members, params } = content(&message);
        assert!(serde_json::from_str::<Value>(&format!("{{{members}}}")).is_ok(), "{members}");
        (members, params.is_some())
    }

    #[test]
    fn what_expressions_read_of_a_message() {
        let expected = r#""topic":"site/7/alarm","levels":["site","7","alarm"],"payload":{"level": 3}"#;
        assert_eq!(content_of("site/7/alarm", br#"{"level": 3}"#), (expected.to_owned(), true));
        let expected = r#""topic":"a","levels":["a"],"payload":21.50"#;
        assert_eq!(content_of("a", b"21.50"), (expected.to_owned(), false));
        let expected = r#""topic":"/a","levels":["","a"],"payload":"on \"fire\"""#;
        assert_eq!(content_of("/a", br#"on "fire""#), (expected.to_owned(), false));
        assert_eq!(
            content_of("a", b"\xff{").0,
            "\"topic\":\"a\",\"levels\":[\"a\"],\"payload\":\"\u{fffd}{\""
        );
        assert_eq!(content_of("a", b"").0, r#""topic":"a","levels":["a"],"payload":"""#);
    }
}
