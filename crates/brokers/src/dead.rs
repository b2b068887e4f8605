//! The dead queue: where messages go that nobody can use, with the reason.

use bytes::Bytes;
use serde_json::json;

use crate::{Broker, BrokerError, Message, Queue};

/// The longest reason that is kept, in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// How much is kept of a message that is too large to be kept whole, in bytes.
const START_BYTES_MAX: usize = 1024;

/// The header that says why a message is in the dead queue.
pub const REASON_HEADER: &str = "windlass-reason";

/// Puts a message of a queue into its [dead queue](Queue::dead). Where messages have no headers it becomes a document of
/// `Reason` and `Message`, its text.
///
/// # Errors
/// When it may not be there: it must not be acknowledged yet.
pub async fn bury(
    broker: &dyn Broker,
    queue: &Queue,
    message: Message,
    reason: &str,
) -> Result<(), BrokerError> {
    let dead = queue.dead();
    let reason = cut(reason, REASON_BYTES_MAX);
    let missing = || Err(BrokerError::Failed("it told nothing of a message".to_owned()));
    let id = message.id.clone();
    let start = cut(&String::from_utf8_lossy(&message.body), START_BYTES_MAX).to_owned();
    let whole = in_dead_queue(broker, &dead, message, reason);
    match broker.publish(&dead, &[whole]).await.pop().unwrap_or_else(missing) {
        // What nobody can use must not be in the way of what can be: where it does not fit with its reason, its start does.
        Err(BrokerError::TooLarge { .. } | BrokerError::Invalid(_)) => {
            let start = in_dead_queue(broker, &dead, Message::new(id, "", start), reason);
            broker.publish(&dead, &[start]).await.pop().unwrap_or_else(missing)
        }
        told => told,
    }
}

/// The message as it is to lie in the dead queue.
fn in_dead_queue(broker: &dyn Broker, dead: &Queue, message: Message, reason: &str) -> Message {
    if broker.has_headers(dead) {
        return message.with_header(REASON_HEADER, reason);
    }
    let document = json!({ "Reason": reason, "Message": String::from_utf8_lossy(&message.body) });
    Message { body: Bytes::from(document.to_string()), ..message }
}

/// As much of a text as fits in so many bytes.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most.min(text.len()))]
}
