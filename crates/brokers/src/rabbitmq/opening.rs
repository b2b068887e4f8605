//! A channel for receiving messages.
//!
//! The server sends messages up to the limit of messages in flight. They belong to this client as long as the
//! channel lives: when it ends in any way, they go back to the queue.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, join_all},
};
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, ChannelFlowOptions},
    types::{FieldTable, ShortString},
};
use tokio::time::{Instant, timeout_at};

use crate::{
    BrokerError, ConsumerSettings, Delivery, Queue, Receipt,
    rabbitmq::{
        failure::failure,
        kind,
        link::{Line, Link, answer},
        properties,
    },
};

/// A channel without messages for this long is reopened: the server may have lost its consumer when the queue
/// was deleted and created again at once (see [`REMAKE_AFTER`](super::queues::REMAKE_AFTER)).
const IDLE_MAX: Duration = Duration::from_secs(20);

/// A channel for receiving messages.
pub(super) struct Opening {
    pub(super) number: u64,
    // Dropped in this order: the deliveries, the channel, then the connection if it is the last owner.
    deliveries: lapin::Consumer,
    channel: Channel,
    line: Arc<Line>,
    /// Handed out and not settled. Messages sent ahead by the server have greater numbers.
    in_hands: BTreeSet<u64>,
    /// The time of the last message, or of the opening.
    heard: Instant,
}

/// How to settle a message.
#[derive(Clone, Copy)]
pub(super) enum Settling {
    Acknowledge,
    GiveBack,
}

impl Opening {
    pub(super) async fn begin(
        number: u64,
        link: &Arc<Link>,
        queue: &Queue,
        settings: &ConsumerSettings,
    ) -> Result<Self, BrokerError> {
        let about = Some(queue.name.as_str());
        let (line, channel) = link.channel().await?;
        // Zero would mean no limit.
        let ahead = u16::try_from(settings.in_hands_max).unwrap_or(u16::MAX).max(1);
        answer(about, channel.basic_qos(ahead, BasicQosOptions::default())).await?;
        let name = kind::name(queue)?;
        // If the protocol cannot represent the name, the server makes one.
        let tag = ShortString::try_new(settings.name.as_str()).unwrap_or_default();
        let options = BasicConsumeOptions::default();
        let deliveries =
            answer(about, channel.basic_consume(name, tag, options, FieldTable::default())).await?;
        Ok(Self { number, deliveries, channel, line, in_hands: BTreeSet::new(), heard: Instant::now() })
    }

    /// Receives the available messages; waits for the first one until `until`.
    pub(super) async fn receive(
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
                // The server ends a consumer when its queue is deleted.
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

    pub(super) async fn settle(
        &mut self,
        tags: &HashSet<u64>,
        settling: Settling,
    ) -> Result<(), BrokerError> {
        // One command settles all messages up to the first that stays in flight.
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
        // The server does not confirm these commands. But it processes a channel in order, so it has
        // processed them when it answers a harmless command after them: to continue the message flow.
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

    /// The reason why the channel was closed. Earlier messages have gone back to the queue.
    pub(super) fn why_closed(&mut self, queue: &Queue) -> BrokerError {
        while let Some(Some(came)) = self.deliveries.next().now_or_never() {
            if let Err(error) = came {
                return failure(Some(&queue.name), &error);
            }
        }
        lost()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_hands.is_empty() && self.heard.elapsed() > IDLE_MAX
    }

    pub(super) fn is_open(&self) -> bool {
        self.line.is_open() && self.channel.status().connected()
    }
}

/// The error for receipts of an earlier channel.
pub(super) fn lost() -> BrokerError {
    BrokerError::Unreachable(
        "the connection of unacknowledged messages was lost: the broker will deliver them again".to_owned(),
    )
}
