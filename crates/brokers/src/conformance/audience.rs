//! What a product's tests bring along for its topics.

use std::time::Duration;

use async_trait::async_trait;

use super::Disturbances;
use crate::{Consumer, Delivery, Message, Receipt, Topic};

/// A server of a product, and people who listen to its topics.
#[async_trait]
pub trait Audience: Disturbances {
    /// A topic of this name (letters, digits and hyphens, 60 at most) and of the kind that is tested.
    fn topic(&self, name: &str) -> Topic {
        Topic { name: name.to_owned(), kind: None, keep: 100_000 }
    }

    /// Somebody who listens from now on, as somebody would who knows nothing of this crate. Where the product keeps what
    /// was said, he may hear earlier things as well.
    async fn listen(&self, topic: &Topic) -> Box<dyn Listener + '_>;

    /// Deletes a topic by the product's own means, whoever uses it.
    fn delete_topic(&self, topic: &Topic);

    /// Whether each of several listeners hears everything. Where not, there can be only one.
    fn has_everybody(&self) -> bool {
        true
    }
}

/// Somebody who listens to a topic.
#[async_trait]
pub trait Listener: Send {
    /// What was said since the last time, waiting a moment for it. Nothing while the server is away.
    async fn hear(&mut self) -> Vec<Message>;
}

/// How long a listener waits for something.
const MOMENT: Duration = Duration::from_millis(500);

/// Somebody who has a queue of his own, or reads as a group of his own, is its only consumer.
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
        // What cannot be acknowledged comes again, which is no harm here.
        let _ = self.acknowledge(&receipts).await;
        messages
    }
}
