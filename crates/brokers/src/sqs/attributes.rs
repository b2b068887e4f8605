//! Converts messages to SQS messages and back.

use std::collections::HashMap;

use aws_sdk_sqs::{
    error::BuildError,
    types::{
        Message as Received, MessageAttributeValue, MessageSystemAttributeName, SendMessageBatchRequestEntry,
    },
};
use bytes::Bytes;

use crate::{BrokerError, Delivery, Message, Receipt, percent};

/// The default size limit of a queue, attributes included. It applies to a whole batch too.
pub(super) const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// The most attributes of a message.
const ATTRIBUTES_MAX: usize = 10;

/// The type of a text attribute.
const TEXT: &str = "String";

/// The attributes with a message's id, and with its key unless the group id of a FIFO queue can contain it.
/// The id is also the deduplication id of a FIFO queue, but that is valid for five minutes only and may name
/// another message later: if the sender lets SQS make it, it is a hash of the body.
const ID: &str = "windlass-id";
const KEY: &str = "windlass-key";

/// The longest id and key of a FIFO queue.
const ID_BYTES_MAX: usize = 128;

/// The attributes of a message to send.
fn attributes(message: &Message, is_fifo: bool) -> impl Iterator<Item = (&str, &str)> {
    let own = [(ID, message.id.as_str()), (KEY, message.key.as_str())];
    // Attributes without a value are refused.
    let has_place = move |name: &str, value: &str| is_fifo && name == KEY && is_word(value);
    let own = own.into_iter().filter(move |(name, value)| !value.is_empty() && !has_place(name, value));
    own.chain(message.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

/// The size of a message, which counts for the limit of its batch.
pub(super) fn size(message: &Message, is_fifo: bool) -> usize {
    let attributes = attributes(message, is_fifo).map(|(name, value)| name.len() + TEXT.len() + value.len());
    message.body.len() + attributes.sum::<usize>()
}

/// A message to send, with this number in its batch.
pub(super) fn entry(
    message: &Message,
    number: usize,
    is_fifo: bool,
) -> Result<SendMessageBatchRequestEntry, BrokerError> {
    let bytes = size(message, is_fifo);
    if bytes > MESSAGE_BYTES_MAX {
        return Err(BrokerError::TooLarge { bytes, limit: MESSAGE_BYTES_MAX });
    }
    if attributes(message, is_fifo).count() > ATTRIBUTES_MAX {
        let most = ATTRIBUTES_MAX + message.headers.len() - attributes(message, is_fifo).count();
        return Err(BrokerError::Invalid(format!("a message of SQS has at most {most} headers here")));
    }
    if let Some((name, _)) = message.headers.iter().find(|(_, value)| value.is_empty()) {
        return Err(BrokerError::Invalid(format!("SQS does not support a header without a value: {name}")));
    }
    let body = text(&message.body)?;
    let mut entry = SendMessageBatchRequestEntry::builder().id(number.to_string()).message_body(body);
    if is_fifo {
        let key = if message.key.is_empty() { &message.id } else { &message.key };
        entry = entry.message_group_id(word(key)?).message_deduplication_id(word(&message.id)?);
    }
    for (name, value) in attributes(message, is_fifo) {
        let value = MessageAttributeValue::builder().data_type(TEXT).string_value(value);
        entry = entry.message_attributes(name, value.build().map_err(incomplete)?);
    }
    entry.build().map_err(incomplete)
}

/// The error for an incomplete request.
pub(super) fn incomplete(error: BuildError) -> BrokerError {
    BrokerError::Invalid(error.to_string())
}

/// A body that SQS accepts: text without characters that XML does not have.
fn text(body: &[u8]) -> Result<&str, BrokerError> {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    let text = std::str::from_utf8(body).ok().filter(|text| !text.is_empty() && text.chars().all(allowed));
    text.ok_or_else(|| BrokerError::Invalid("a message of SQS must be non-empty text".to_owned()))
}

/// An id or a key for FIFO queues: characters that they refuse are written as `%20`.
fn word(text: &str) -> Result<String, BrokerError> {
    let word = if is_word(text) { text.to_owned() } else { percent::encode(text) };
    let wrong = format!("in a FIFO queue, ids and keys have at most {ID_BYTES_MAX} characters");
    if word.len() <= ID_BYTES_MAX { Ok(word) } else { Err(BrokerError::Invalid(wrong)) }
}

/// Whether a FIFO queue accepts it unchanged.
fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A message that has arrived. None if it has no receipt, which does not happen.
pub(super) fn delivery(received: Received) -> Option<Delivery> {
    let receipt = Receipt(received.receipt_handle?.into());
    let system = received.attributes.unwrap_or_default();
    let told = |name| system.get(&name).cloned();
    let values = received.message_attributes.unwrap_or_default();
    let mut values: HashMap<String, String> =
        values.into_iter().filter_map(|(name, value)| Some((name, value.string_value?))).collect();
    let id = values.remove(ID).or(received.message_id);
    let key = values.remove(KEY).or_else(|| told(MessageSystemAttributeName::MessageGroupId));
    let mut headers: Vec<(String, String)> = values.into_iter().collect();
    headers.sort_unstable();
    let message = Message {
        id: id.unwrap_or_default(),
        key: key.unwrap_or_default(),
        headers,
        body: Bytes::from(received.body.unwrap_or_default()),
        priority: 0,
    };
    let count = told(MessageSystemAttributeName::ApproximateReceiveCount);
    Some(Delivery { message, receipt, deliveries: count.and_then(|count| count.parse().ok()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_too_large_or_strange_is_refused() {
        let large = Message::new("id", "key", vec![b'x'; MESSAGE_BYTES_MAX - 20]);
        assert!(matches!(entry(&large, 0, false), Err(BrokerError::TooLarge { .. })));
        assert!(entry(&large, 0, true).is_ok());
        let headers = |count: usize| {
            (0..count).fold(Message::new("id", "key", "x"), |m, n| m.with_header(format!("h{n}"), "v"))
        };
        assert!(entry(&headers(8), 0, false).is_ok());
        assert!(matches!(entry(&headers(9), 0, false), Err(BrokerError::Invalid(_))));
        assert!(entry(&headers(9), 0, true).is_ok());
        assert!(matches!(entry(&headers(10), 0, true), Err(BrokerError::Invalid(_))));
        for body in [&b""[..], b"\xff", b"\x01", "\u{ffff}".as_bytes()] {
            let message = Message::new("id", "key", body.to_vec());
            assert!(matches!(entry(&message, 0, false), Err(BrokerError::Invalid(_))), "{body:?}");
        }
        assert!(entry(&Message::new("id", "key", "{\"é\":\"\u{1f600}\"}\n"), 0, false).is_ok());
        let long = Message::new("i".repeat(129), "key", "x");
        assert!(matches!(entry(&long, 0, true), Err(BrokerError::Invalid(_))));
    }

    #[test]
    fn a_fifo_queue_has_a_group_for_every_message() {
        let entry = entry(&Message::new("id", "", "x"), 3, true).unwrap();
        assert_eq!((entry.id(), entry.message_group_id()), ("3", Some("id")));
        assert_eq!(entry.message_deduplication_id(), Some("id"));
        assert!(!entry.message_attributes().unwrap().contains_key(KEY));
        let entry = super::entry(&Message::new("i d", "é", "x"), 0, true).unwrap();
        let there = (entry.message_deduplication_id(), entry.message_group_id());
        assert_eq!(there, (Some("i%20d"), Some("%C3%A9")));
        assert_eq!(entry.message_attributes().unwrap()[ID].string_value(), Some("i d"));
    }

    #[test]
    fn what_others_send_is_named_by_the_queue() {
        let received = |attribute: Option<(&str, &str)>| {
            let received = Received::builder().receipt_handle("r").message_id("of-sqs").body("x");
            let received = received.attributes(MessageSystemAttributeName::MessageDeduplicationId, "hash");
            let value = |text: &str| MessageAttributeValue::builder().data_type(TEXT).string_value(text);
            let received = match attribute {
                Some((name, text)) => received.message_attributes(name, value(text).build().unwrap()),
                None => received,
            };
            delivery(received.build()).unwrap().message.id
        };
        assert_eq!(received(None), "of-sqs", "a deduplication id may come again after five minutes");
        assert_eq!(received(Some((ID, "ours"))), "ours");
    }
}
