//! Consuming a queue.
//!
//! The server sends as many messages as may be in hands, on a channel of this consumer's own. They are ours as long as
//! the channel lives: when it ends, however it ends, they go back to the queue. So every receipt says on which opening of
//! the channel it was got.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, join_all},
};
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, ChannelFlowOptions},
    types::{FieldTable, ShortString},
};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{
    BrokerError, Consumer, ConsumerSettings, Delivery, Queue, Receipt,
    rabbitmq::{
        failure::failure,
        kind,
        link::{Line, Link, answer},
        properties, queues,
    },
};

/// A channel by which nothing came for so long is opened anew: the server may have lost sight of its consumer when
/// somebody deleted the queue and made it again at once (see [`queues::REMAKE_AFTER`]).
const IDLE_MAX: Duration = Duration::from_secs(20);

/// Consumes a queue, on one channel after the other.
pub(super) struct QueueConsumer {
    link: Arc<Link>,
    queue: Queue,
    settings: ConsumerSettings,
    opened: u64,
    open: Option<Opening>,
    /// Not to be opened before, since the queue was deleted.
    not_before: Option<Instant>,
}

/// A channel that messages come in by.
struct Opening {
    number: u64,
    // Dropped in this order: no more messages, then the channel, then the connection if it is the last.
    deliveries: lapin::Consumer,
    channel: Channel,
    line: Arc<Line>,
    /// Handed out and not settled. What the server sent beyond that has greater numbers.
    in_hands: BTreeSet<u64>,
    /// When something came last, or it was opened.
    heard: Instant,
}

/// What is done to a message that is settled.
#[derive(Clone, Copy)]
enum Settling {
    Acknowledge,
    GiveBack,
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

    /// The channel, which is opened unless it is there.
    async fn opening(&mut self) -> Result<&mut Opening, BrokerError> {
        let opening = match self.open.take() {
            Some(opening) => opening,
            None => {
                if let Some(not_before) = self.not_before {
                    sleep_until(not_before).await;
                }
                self.not_before = None;
                queues::declare(&self.link, &self.queue).await?;
                self.opened += 1;
                Opening::begin(self.opened, &self.link, &self.queue, &self.settings).await?
            }
        };
        Ok(self.open.insert(opening))
    }

    /// Does the same to all these messages, and waits until the server has heard it.
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

impl Opening {
    async fn begin(
        number: u64,
        link: &Arc<Link>,
        queue: &Queue,
        settings: &ConsumerSettings,
    ) -> Result<Self, BrokerError> {
        let about = Some(queue.name.as_str());
        let (line, channel) = link.channel().await?;
        // Zero would mean any number.
        let ahead = u16::try_from(settings.in_hands_max).unwrap_or(u16::MAX).max(1);
        answer(about, channel.basic_qos(ahead, BasicQosOptions::default())).await?;
        let name = kind::name(queue)?;
        // A name that the protocol cannot carry is left to the server, which makes one.
        let tag = ShortString::try_new(settings.name.as_str()).unwrap_or_default();
        let options = BasicConsumeOptions::default();
        let deliveries =
            answer(about, channel.basic_consume(name, tag, options, FieldTable::default())).await?;
        Ok(Self { number, deliveries, channel, line, in_hands: BTreeSet::new(), heard: Instant::now() })
    }

    /// What is there, waiting for the first until then.
    async fn receive(
        &mut self,
        queue: &Queue,
        max: usize,
        until: Instant,
    ) -> Result<Vec<Delivery>, BrokerError> {
        let mut received = Vec::new();
        while received.len() < max {
            let next = if received.is_empty() {
                timeout_at(until, self.deliveries.next()).await.ok()
            } else {
                self.deliveries.next().now_or_never()
            };
            match next {
                None => break,
                Some(Some(Ok(delivery))) => received.push(self.take(delivery)),
                Some(Some(Err(error))) => return Err(failure(Some(&queue.name), &error)),
                // The server ends a consumer when it has no queue any more.
                Some(None) => return Err(BrokerError::NoQueue(queue.name.clone())),
            }
        }
        Ok(received)
    }

    fn take(&mut self, delivery: lapin::message::Delivery) -> Delivery {
        let tag = delivery.delivery_tag;
        self.heard = Instant::now();
        self.in_hands.insert(tag);
        Delivery {
            deliveries: properties::deliveries(&delivery.properties, delivery.redelivered),
            message: properties::message(&delivery.properties, delivery.data),
            receipt: Receipt(format!("{}:{tag}", self.number).into()),
        }
    }

    async fn settle(&mut self, tags: &HashSet<u64>, settling: Settling) -> Result<(), BrokerError> {
        // Up to the first that stays in hands, one word settles all.
        let mut in_order = self.in_hands.iter().copied();
        let together = in_order.by_ref().take_while(|tag| tags.contains(tag)).last();
        let one_by_one: Vec<u64> = in_order.filter(|tag| tags.contains(tag)).collect();
        self.in_hands.retain(|tag| !tags.contains(tag));
        if together.is_none() && one_by_one.is_empty() {
            return Ok(());
        }
        let together = together.map(|tag| self.say(settling, tag, true));
        let one_by_one = one_by_one.iter().map(|tag| self.say(settling, *tag, false));
        let said = join_all(together.into_iter().chain(one_by_one));
        // The server does not answer to any of these. But it works off a channel in order, so it has heard them when it
        // answers to something harmless behind them: that messages may go on coming.
        let heard = async {
            for said in said.await {
                said?;
            }
            self.channel.channel_flow(ChannelFlowOptions { active: true }).await
        };
        answer(None, heard).await.map(drop)
    }

    fn say(&self, settling: Settling, tag: u64, multiple: bool) -> BoxFuture<'_, lapin::Result<()>> {
        match settling {
            Settling::Acknowledge => self.channel.basic_ack(tag, BasicAckOptions { multiple }).boxed(),
            Settling::GiveBack => {
                self.channel.basic_nack(tag, BasicNackOptions { multiple, requeue: true }).boxed()
            }
        }
    }

    /// Why it was closed. What came before that has gone back to the queue.
    fn why_closed(&mut self, queue: &Queue) -> BrokerError {
        while let Some(Some(came)) = self.deliveries.next().now_or_never() {
            if let Err(error) = came {
                return failure(Some(&queue.name), &error);
            }
        }
        lost()
    }

    fn is_idle(&self) -> bool {
        self.in_hands.is_empty() && self.heard.elapsed() > IDLE_MAX
    }

    fn is_open(&self) -> bool {
        self.line.is_open() && self.channel.status().connected()
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

    /// The connection is what keeps them.
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

/// The opening and the tag that a receipt names.
fn read(receipt: &Receipt) -> Result<(u64, u64), BrokerError> {
    let read =
        receipt.0.split_once(':').and_then(|(number, tag)| Some((number.parse().ok()?, tag.parse().ok()?)));
    read.ok_or_else(|| BrokerError::Invalid(format!("{:?} is no receipt of RabbitMQ", receipt.0)))
}

fn lost() -> BrokerError {
    BrokerError::Unreachable(
        "the connection that messages in hands came by was lost: they are delivered again".to_owned(),
    )
}
