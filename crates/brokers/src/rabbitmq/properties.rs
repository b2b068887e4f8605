//! Converts messages to AMQP properties and back.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};

use crate::{BrokerError, Message, rabbitmq::kind};

/// Marks a message that survives a restart of the server.
const PERSISTENT: u8 = 2;

/// The header with the number of earlier deliveries from a quorum queue.
const DELIVERY_COUNT: &str = "x-delivery-count";

/// The header for which the protocol has a separate property.
const CONTENT_TYPE: &str = "content-type";

/// Headers added by servers.
const OF_SERVERS: [&str; 2] = [DELIVERY_COUNT, "x-acquired-count"];

/// The properties of a message. The key becomes the correlation id: the protocol has no keys, and messages
/// with the same key belong together.
pub(super) fn of(message: &Message) -> Result<BasicProperties, BrokerError> {
    let short = |what: &str, value: &str| {
        ShortString::try_new(value).map_err(|_| {
            BrokerError::Invalid(format!(
                "the {what} of a message has {} bytes: 255 are allowed",
                value.len()
            ))
        })
    };
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_priority(kind::priority_out(message.priority))
        .with_message_id(short("id", &message.id)?);
    if !message.key.is_empty() {
        properties = properties.with_correlation_id(short("key", &message.key)?);
    }
    let mut headers = FieldTable::default();
    for (name, value) in &message.headers {
        if name == CONTENT_TYPE {
            properties = properties.with_content_type(short("content type", value)?);
        } else {
            headers.insert(short("name of a header", name)?, AMQPValue::LongString(value.as_str().into()));
        }
    }
    Ok(if headers.inner().is_empty() { properties } else { properties.with_headers(headers) })
}

/// The message with these properties, from any sender.
pub(super) fn message(properties: &BasicProperties, body: Vec<u8>) -> Message {
    let headers = properties.headers().as_ref().map(FieldTable::inner);
    let headers = headers.into_iter().flatten().filter(|(name, _)| !OF_SERVERS.contains(&name.as_str()));
    let headers = headers.filter_map(|(name, value)| Some((name.to_string(), as_text(value)?)));
    let content_type = properties.content_type().as_ref();
    let content_type = content_type.map(|value| (CONTENT_TYPE.to_owned(), value.to_string()));
    Message {
        id: id(properties),
        key: text(properties.correlation_id().as_ref()),
        headers: headers.chain(content_type).collect(),
        body: body.into(),
        // A message without a priority counts as one with the middle priority.
        priority: properties.priority().map_or(0, kind::priority_in),
    }
}

/// The message id in these properties.
pub(super) fn id(properties: &BasicProperties) -> String {
    text(properties.message_id().as_ref())
}

fn text(value: Option<&ShortString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

/// How often a message was delivered, where this is known.
pub(super) fn deliveries(properties: &BasicProperties, redelivered: bool) -> Option<u32> {
    let before = properties.headers().as_ref().and_then(|headers| headers.inner().get(DELIVERY_COUNT));
    match before.and_then(as_text) {
        Some(before) => before.parse::<u32>().ok()?.checked_add(1),
        // A classic queue only reports whether it was delivered before.
        None => (!redelivered).then_some(1),
    }
}

/// A header's value as text, unless it is composite.
fn as_text(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(value) => Some(String::from_utf8_lossy(value.as_bytes()).into_owned()),
        AMQPValue::ShortString(value) => Some(value.to_string()),
        AMQPValue::Boolean(value) => Some(value.to_string()),
        AMQPValue::ShortShortInt(value) => Some(value.to_string()),
        AMQPValue::ShortShortUInt(value) => Some(value.to_string()),
        AMQPValue::ShortInt(value) => Some(value.to_string()),
        AMQPValue::ShortUInt(value) => Some(value.to_string()),
        AMQPValue::LongInt(value) => Some(value.to_string()),
        AMQPValue::LongUInt(value) => Some(value.to_string()),
        AMQPValue::LongLongInt(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let mut sent = Message::new("m1", "k1", "body").with_header("a-b", "ü").with_header("c", "");
        sent = sent.with_header(CONTENT_TYPE, "text/plain");
        sent.priority = -10;
        assert_eq!(of(&sent).unwrap().content_type().as_ref().unwrap().as_str(), "text/plain");
        assert_eq!(message(&of(&sent).unwrap(), b"body".to_vec()), sent);
    }

    #[test]
    fn a_message_of_somebody_else_is_read_as_far_as_possible() {
        let mut headers = FieldTable::default();
        headers.insert("n".into(), AMQPValue::LongInt(7));
        headers.insert("nothing".into(), AMQPValue::Void);
        headers.insert(DELIVERY_COUNT.into(), AMQPValue::LongLongInt(2));
        let properties = BasicProperties::default().with_headers(headers);
        let read = message(&properties, Vec::new());
        assert_eq!((read.id.as_str(), read.priority), ("", 0));
        assert_eq!(read.headers, [("n".to_owned(), "7".to_owned())]);
        assert_eq!(deliveries(&properties, true), Some(3));
        assert_eq!(deliveries(&BasicProperties::default(), true), None);
        assert_eq!(deliveries(&BasicProperties::default(), false), Some(1));
    }

    #[test]
    fn what_the_protocol_cannot_carry_is_refused() {
        let long = "x".repeat(256);
        for message in
            [Message::new(long.as_str(), "", ""), Message::new("", "", "").with_header(long.as_str(), "")]
        {
            assert!(matches!(of(&message), Err(BrokerError::Invalid(_))));
        }
    }
}
