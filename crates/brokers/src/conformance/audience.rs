//! The interface of a product's tests for topics.

use std::time::Duration;

use async_trait::async_trait;

use super::Disturbances;
use crate::{Consumer, Delivery, Message, Receipt, Topic};

/// A server of a product, with subscribers to its topics.
#[async_trait]
pub trait Audience: Disturbances {
    /// A topic with this name (letters, digits and hyphens, at most 60) and the tested kind.
    fn topic(&self, name: &str) -> Topic {
        Topic { name: name.to_owned(), kind: None, keep: 100_000 }
    }

    /// Starts a subscriber that does not use this crate. If the product stores messages, it may receive
    /// earlier ones too.
    async fn listen(&self, topic: &Topic) -> Box<dyn Listener + '_>;

    /// Deletes a topic with the product's own tools, even while it is used.
    fn delete_topic(&self, topic: &Topic);

    /// Whether each of several subscribers receives everything. If not, there can be only one.
    fn has_everybody(&self) -> bool {
        true
    }
}

/// A subscriber of a topic.
#[async_trait]
pub trait Listener: Send {
    /// The messages since the last call; waits a moment for them. Empty while the server is unavailable.
    async fn hear(&mut self) -> Vec<Message>;
}

/// How long a subscriber waits for messages.
const MOMENT: Duration = Duration::from_millis(500);

/// The only consumer of its own queue, or of its own group, is a subscriber.
#[async_trait]
impl Listener for Box<dyn Consumer> {
    async fn hear(&mut self) -> Vec<Message> {
        let Ok(came) = self.receive(500, MOMENT).await else {
            // The next call connects again.
            tokio::time::sleep(MOMENT / 10).await;
            return Vec::new();
        };
        let (receipts, messages): (Vec<Receipt>, Vec<Message>) =
            came.into_iter().map(|Delivery { receipt, message, .. }| (receipt, message)).unzip();
        // A message that cannot be acknowledged is delivered again, which is harmless here.
        let _ = self.acknowledge(&receipts).await;
        messages
    }
}
