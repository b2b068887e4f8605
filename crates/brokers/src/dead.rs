//! The dead queue: where messages go that nobody can use, with the reason.

use bytes::Bytes;
use serde_json::json;

use crate::{Broker, BrokerError, Message, Queue};

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
    let message = if broker.has_headers(&dead) {
        message.with_header(REASON_HEADER, reason)
    } else {
        let document = json!({ "Reason": reason, "Message": String::from_utf8_lossy(&message.body) });
        Message { body: Bytes::from(document.to_string()), ..message }
    };
    let missing = || Err(BrokerError::Failed("it told nothing of a message".to_owned()));
    broker.publish(&dead, &[message]).await.pop().unwrap_or_else(missing)
}
