//! Converts messages to Kafka records and back.

use bytes::Bytes;
use rdkafka::{
    Message as _,
    message::{BorrowedMessage, Header, Headers as _, OwnedHeaders},
    producer::FutureRecord,
};

use crate::{BrokerError, Message};

/// The default size limit of brokers and libraries, with key and headers.
pub(super) const MESSAGE_BYTES_MAX: usize = 1_000_000;

/// The overhead of a record, and of each of its headers.
const RECORD_BYTES: usize = 64;
const HEADER_BYTES: usize = 16;

/// The header with a message's id.
const ID: &str = "windlass-id";

/// Refuses a message that the cluster would refuse.
pub(super) fn check(message: &Message) -> Result<(), BrokerError> {
    let headers = message.headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_BYTES);
    let bytes = message.body.len() + message.key.len() + message.id.len() + headers.sum::<usize>();
    if bytes + RECORD_BYTES + HEADER_BYTES > MESSAGE_BYTES_MAX {
        return Err(BrokerError::TooLarge { bytes, limit: MESSAGE_BYTES_MAX });
    }
    Ok(())
}

/// The headers of a message to send.
pub(super) fn headers(message: &Message) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new_with_capacity(message.headers.len() + 1);
    if !message.id.is_empty() {
        headers = headers.insert(Header { key: ID, value: Some(&message.id) });
    }
    for (name, value) in &message.headers {
        headers = headers.insert(Header { key: name, value: Some(value) });
    }
    headers
}

/// A message to send.
pub(super) fn record<'m>(topic: &'m str, message: &'m Message) -> FutureRecord<'m, str, [u8]> {
    let record = FutureRecord::to(topic).payload(&message.body[..]).headers(headers(message));
    // Messages without a key go to any partition.
    if message.key.is_empty() { record } else { record.key(&message.key) }
}

/// The message in a record.
pub(super) fn message(record: &BorrowedMessage<'_>) -> Message {
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let mut id = None;
    let mut headers = Vec::new();
    for header in record.headers().into_iter().flat_map(|headers| headers.iter()) {
        if header.key == ID {
            id = Some(text(header.value));
        } else {
            headers.push((header.key.to_owned(), text(header.value)));
        }
    }
    let id = id.unwrap_or_else(|| place(record.partition(), record.offset(), record.timestamp().to_millis()));
    let body = Bytes::copy_from_slice(record.payload().unwrap_or_default());
    Message { id, key: text(record.key()), headers, body, priority: 0 }
}

/// The id of a record that was sent without one: its place and time. A topic that was deleted and created
/// again has other records at the same places. A record without a time has no id.
fn place(partition: i32, offset: i64, millis: Option<i64>) -> String {
    millis.map(|millis| format!("{partition}/{offset}/{millis}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_place_at_another_time_is_another_message() {
        assert_eq!(place(3, 7, Some(1_795_000_000_000)), "3/7/1795000000000");
        assert_eq!(place(3, 7, None), "");
    }
}
