//! Makes what a message asks for: a task, or the body that a trigger gets.

use serde_json::{Value, value::RawValue};
use windlass_api::TRACEPARENT_HEADER;
use windlass_brokers::Message;

use super::{pointer::Pointer, settings::IntakeSettings};
use crate::http::{KEY_BYTES_MAX, TaskMessage, request::SUBMIT_BYTES_MAX};

impl IntakeSettings {
    /// The task that a message asks for.
    ///
    /// # Errors
    /// When the body is not JSON, or the configured place has no value.
    pub(super) fn document(&self, message: &Message) -> Result<TaskMessage, String> {
        let (params, key) = self.parts(message)?;
        let text = match &self.flow {
            // The parameters are passed on unchanged, digit for digit.
            Some(flow) => format!(r#"{{"flow":{},"params":{}}}"#, Value::from(flow.as_str()), params.get()),
            None => params.get().to_owned(),
        };
        let traceparent = message.header(TRACEPARENT_HEADER).map(str::to_owned);
        Ok(TaskMessage { text, key, traceparent })
    }

    /// The parameters in a message, or the whole, and its key.
    ///
    /// # Errors
    /// When the body is not JSON, or the configured place has no value.
    pub(super) fn parts<'m>(&self, message: &'m Message) -> Result<(&'m RawValue, Option<String>), String> {
        if message.body.len() > SUBMIT_BYTES_MAX {
            return Err(format!("it has {} bytes: the limit is {SUBMIT_BYTES_MAX}", message.body.len()));
        }
        let text = std::str::from_utf8(&message.body).map_err(|error| format!("it is not UTF-8: {error}"))?;
        let whole: &RawValue =
            serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let key = match &self.key {
            Some(pointer) => Some(key(pointer, at(pointer, whole)?)?),
            None => Some(message.id.clone()).filter(|id| !id.is_empty()),
        };
        let params = match &self.params {
            Some(pointer) => at(pointer, whole)?,
            None => whole,
        };
        Ok((params, key))
    }
}

/// The value at a place that the configuration names.
fn at<'t>(pointer: &Pointer, whole: &'t RawValue) -> Result<&'t RawValue, String> {
    let found = pointer.find(whole).map_err(|error| format!("it cannot be read up to {pointer}: {error}"))?;
    found.ok_or_else(|| format!("it has nothing at {pointer}, which the configuration names"))
}

/// Reads an idempotency key: a string, or a number with its digits unchanged. Other values and the empty
/// string are refused, because messages that differ could share them.
fn key(pointer: &Pointer, value: &RawValue) -> Result<String, String> {
    let text = value.get();
    let key = match text.as_bytes().first() {
        Some(b'"') => serde_json::from_str(text).map_err(|error| format!("its key at {pointer}: {error}"))?,
        Some(b'-' | b'0'..=b'9') => text.to_owned(),
        _ => String::new(),
    };
    if key.is_empty() {
        return Err(format!("its value at {pointer} is not a key: use a non-empty string or a number"));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(format!("its key at {pointer} has {} bytes: the limit is {KEY_BYTES_MAX}", key.len()));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brokers::settings::{IntakeSection, taken_in};

    fn intake(flow: Option<&str>, params: Option<&str>, key: Option<&str>) -> IntakeSettings {
        let section = IntakeSection {
            broker: "redis://h".to_owned(),
            queue: "orders".to_owned(),
            kind: None,
            flow: flow.map(str::to_owned),
            trigger: None,
            params: params.map(str::to_owned),
            key: key.map(str::to_owned),
            leader: None,
        };
        taken_in(section).unwrap()
    }

    fn document(settings: &IntakeSettings, body: &str) -> Result<TaskMessage, String> {
        settings.document(&Message::new("7-0", "", body.to_owned()))
    }

    #[test]
    fn a_message_is_a_document_or_the_parameters_of_a_flow() {
        let body = r#"{"id":12,"data":{"disk":"a"}}"#;
        let whole = document(&intake(None, None, None), body).unwrap();
        assert_eq!((whole.text.as_str(), whole.key.as_deref()), (body, Some("7-0")));
        let traced = Message::new("7-0", "", body.to_owned()).with_header("traceparent", "00-1-2-01");
        let traced = intake(None, None, None).document(&traced).unwrap();
        assert_eq!(traced.traceparent.as_deref(), Some("00-1-2-01"));
        let part = document(&intake(Some("ship"), Some("/data"), Some("/id")), body).unwrap();
        assert_eq!(part.text, r#"{"flow":"ship","params":{"disk":"a"}}"#);
        assert_eq!(part.key.as_deref(), Some("12"));
    }

    #[test]
    fn a_trigger_stands_in_place_of_a_flow() {
        let with = |flow: Option<&str>, trigger: &str| {
            let section = IntakeSection {
                broker: "redis://h".to_owned(),
                queue: "orders".to_owned(),
                kind: None,
                flow: flow.map(str::to_owned),
                trigger: Some(trigger.to_owned()),
                params: Some("/data".to_owned()),
                key: None,
                leader: None,
            };
            taken_in(section)
        };
        let settings = with(None, "order").unwrap();
        let message = Message::new("7-0", "", r#"{"data": [1.10]}"#);
        let (body, key) = settings.parts(&message).unwrap();
        assert_eq!((body.get(), key.as_deref()), ("[1.10]", Some("7-0")));
        let error = with(Some("ship"), "order").unwrap_err().to_string();
        assert!(error.contains("a trigger names its flows itself"), "{error}");
        let error = with(None, "no name").unwrap_err().to_string();
        assert!(error.contains("`trigger`: "), "{error}");
    }

    #[test]
    fn what_is_at_a_pointer_goes_on_as_it_came() {
        let data = r#"{"z":12345678901234567890123,"price":1.10,"a":1e400}"#;
        let body = format!(r#"{{"data":{data},"id":98765432109876543210}}"#);
        let part = document(&intake(Some("ship"), Some("/data"), Some("/id")), &body).unwrap();
        assert_eq!(part.text, format!(r#"{{"flow":"ship","params":{data}}}"#));
        assert_eq!(part.key.as_deref(), Some("98765432109876543210"));
        let whole = document(&intake(Some("ship"), None, None), data).unwrap();
        assert_eq!(whole.text, format!(r#"{{"flow":"ship","params":{data}}}"#));
    }

    #[test]
    fn a_key_tells_messages_apart() {
        let settings = intake(Some("ship"), None, Some("/id"));
        let key = |id: &str| document(&settings, &format!(r#"{{"id":{id}}}"#)).map(|document| document.key);
        assert_eq!(key(r#""a\u0062""#), Ok(Some("ab".to_owned())));
        for none in ["null", "true", "{}", "[1]", r#""""#] {
            assert!(key(none).unwrap_err().contains("at /id is not a key"), "{none}");
        }
        let long = |bytes: usize| format!("{:?}", "k".repeat(bytes));
        assert!(key(&long(255)).is_ok());
        assert!(key(&long(256)).unwrap_err().contains("has 256 bytes: the limit is 255"));
        assert!(key(r#""\ud83d""#).unwrap_err().contains("its key at /id"));
        let nameless = intake(Some("ship"), None, None).document(&Message::new("", "", "{}"));
        assert_eq!(nameless.unwrap().key, None);
    }

    #[test]
    fn what_is_not_where_it_is_looked_for_is_said() {
        let settings = intake(Some("ship"), Some("/order"), None);
        let error = document(&settings, "{}").unwrap_err();
        assert!(error.contains("nothing at /order"), "{error}");
        let error = document(&settings, "{").unwrap_err();
        assert!(error.contains("not JSON"), "{error}");
        let large = " ".repeat(SUBMIT_BYTES_MAX + 1);
        assert!(document(&settings, &large).unwrap_err().contains("limit is 2097152"));
    }
}
