//! The dead-letter queue: unusable messages with the reason.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::json;

use crate::{Broker, BrokerError, Message, Queue};

/// The longest reason that is kept, in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// How many bytes are kept of a message that does not fit as a whole.
const START_BYTES_MAX: usize = 1024;

/// The header with the reason why a message is in the dead-letter queue.
pub const REASON_HEADER: &str = "windlass-reason";

/// Moves a message to the [dead-letter queue](Queue::dead) of its queue. Where messages have no headers, it
/// becomes a document of `Reason` and `Message`, its text.
///
/// # Errors
/// When it may not have arrived there: then it must not be acknowledged yet.
pub async fn bury(
    broker: &dyn Broker,
    queue: &Queue,
    message: Message,
    reason: &str,
) -> Result<(), BrokerError> {
    let dead = queue.dead();
    let reason = &*shortened(reason);
    let missing = || Err(BrokerError::Failed("it returned no outcome for a message".to_owned()));
    let id = message.id.clone();
    let start = cut(&String::from_utf8_lossy(&message.body), START_BYTES_MAX).to_owned();
    let whole = in_dead_queue(broker, &dead, message, reason);
    match broker.publish(&dead, &[whole]).await.pop().unwrap_or_else(missing) {
        // An unusable message must not block others: if it does not fit together with its reason, its start
        // is kept.
        Err(BrokerError::TooLarge { .. } | BrokerError::Invalid(_)) => {
            let start = in_dead_queue(broker, &dead, Message::new(id, "", start), reason);
            broker.publish(&dead, &[start]).await.pop().unwrap_or_else(missing)
        }
        told => told,
    }
}

/// The message in the format of the dead-letter queue.
fn in_dead_queue(broker: &dyn Broker, dead: &Queue, message: Message, reason: &str) -> Message {
    if broker.has_headers(dead) {
        return message.with_header(REASON_HEADER, reason);
    }
    let document = json!({ "Reason": reason, "Message": String::from_utf8_lossy(&message.body) });
    Message { body: Bytes::from(document.to_string()), ..message }
}

/// The reason, or the beginning of a long one.
fn shortened(reason: &str) -> Cow<'_, str> {
    match cut(reason, REASON_BYTES_MAX) {
        whole if whole.len() == reason.len() => Cow::Borrowed(whole),
        start => Cow::Owned(format!("{start}…")),
    }
}

/// The longest prefix of a text that fits into `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most.min(text.len()))]
}
