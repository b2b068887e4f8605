//! Consumes a queue through one channel after another. Each receipt names its [`Opening`].

use std::{collections::HashSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::{Instant, sleep_until};

use crate::{
    BrokerError, Consumer, ConsumerSettings, Delivery, Queue, Receipt,
    rabbitmq::{
        link::Link,
        opening::{Opening, Settling, lost},
        queues,
    },
};

/// Consumes a queue, on one channel after another.
pub(super) struct QueueConsumer {
    link: Arc<Link>,
    queue: Queue,
    settings: ConsumerSettings,
    opened: u64,
    open: Option<Opening>,
    /// The earliest time of the next channel, after the queue was deleted.
    not_before: Option<Instant>,
}

impl QueueConsumer {
    pub(super) async fn open(
        link: Arc<Link>,
        queue: &Queue,
        settings: &ConsumerSettings,
    ) -> Result<Self, BrokerError> {
        let mut consumer = Self {
            link,
            queue: queue.clone(),
            settings: settings.clone(),
            opened: 0,
            open: None,
            not_before: None,
        };
        consumer.opening().await?;
        Ok(consumer)
    }

    /// The current channel; opens one if there is none.
    async fn opening(&mut self) -> Result<&mut Opening, BrokerError> {
        let opening = match self.open.take() {
            Some(opening) => opening,
            None => {
                if let Some(not_before) = self.not_before {
                    sleep_until(not_before).await;
                }
                self.not_before = None;
                queues::declare(&self.link, &self.queue).await?;
                if let Some(binding) = &self.settings.binding {
                    queues::bind(&self.link, &self.queue, binding).await?;
                }
                self.opened += 1;
                Opening::begin(self.opened, &self.link, &self.queue, &self.settings).await?
            }
        };
        Ok(self.open.insert(opening))
    }

    /// Settles messages, and waits until the server has processed it.
    async fn settle(&mut self, receipts: &[Receipt], settling: Settling) -> Result<(), BrokerError> {
        let read: Vec<(u64, u64)> = receipts.iter().map(read).collect::<Result<_, _>>()?;
        let opening = self.open.as_mut();
        let current = opening.as_ref().map(|opening| opening.number);
        let tags: HashSet<u64> =
            read.iter().filter(|(number, _)| Some(*number) == current).map(|(_, tag)| *tag).collect();
        let are_lost = read.iter().any(|(number, _)| Some(*number) != current);
        if let Some(opening) = opening.filter(|_| !tags.is_empty()) {
            opening.settle(&tags, settling).await?;
        }
        if are_lost { Err(lost()) } else { Ok(()) }
    }
}

#[async_trait]
impl Consumer for QueueConsumer {
    async fn receive(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, BrokerError> {
        let until = Instant::now() + wait;
        let queue = self.queue.clone();
        let opening = self.opening().await?;
        let received = if opening.is_open() {
            opening.receive(&queue, max, until).await
        } else {
            Err(opening.why_closed(&queue))
        };
        if received.is_err() || opening.is_idle() {
            self.open = None;
        }
        if matches!(received, Err(BrokerError::NoQueue(_))) {
            self.not_before = Some(Instant::now() + queues::REMAKE_AFTER);
        }
        received
    }

    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        self.settle(receipts, Settling::Acknowledge).await
    }

    async fn give_back(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        self.settle(receipts, Settling::GiveBack).await
    }

    /// The open connection keeps them.
    async fn keep(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let current = self.open.as_ref().filter(|opening| opening.is_open()).map(|opening| opening.number);
        for receipt in receipts {
            if Some(read(receipt)?.0) != current {
                return Err(lost());
            }
        }
        Ok(())
    }
}

/// The opening and the delivery tag in a receipt.
fn read(receipt: &Receipt) -> Result<(u64, u64), BrokerError> {
    let read =
        receipt.0.split_once(':').and_then(|(number, tag)| Some((number.parse().ok()?, tag.parse().ok()?)));
    read.ok_or_else(|| BrokerError::Invalid(format!("{:?} is not a receipt of RabbitMQ", receipt.0)))
}
