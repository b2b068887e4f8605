//! A server's connection to the MQTT broker. Its first failure ends it, and the next call makes another one, as the client
//! of the program does.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use windlass_brokers::{BrokerError, DeviceCommand, DeviceMessage, DeviceNetwork};
use windlass_store::Signal;

use super::Mqtt;
use crate::world::{Device, Operation};

/// A connection that was lost earlier than this is not made again before, in milliseconds.
const RECONNECT_AFTER_MS: u64 = 1_000;

/// Receipts begin with the number of their connection: those of earlier ones have no effect.
const RECEIPT_BITS: u32 = 40;

/// A client of the broker.
pub(crate) struct MqttThere {
    mqtt: Mqtt,
    /// The way to the broker.
    way: Device,
    dice: Mutex<fastrand::Rng>,
    /// How often, in a thousand, a job is delivered twice.
    doubled: u64,
    elapsed: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
}

#[derive(Clone)]
struct Link {
    number: u64,
    arrived: Arc<Signal>,
    opened_at: u64,
}

impl MqttThere {
    pub(crate) fn new(
        mqtt: Mqtt,
        way: Device,
        dice: fastrand::Rng,
        doubled: u64,
        elapsed: Arc<AtomicU64>,
    ) -> Self {
        Self { mqtt, way, dice: Mutex::new(dice), doubled, elapsed, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn below(&self, end: u64) -> u64 {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner).u64(..end.max(1))
    }

    /// The connection, if it works.
    fn alive(&self) -> Option<Link> {
        self.state().link.clone().filter(|link| self.mqtt.is_open(link.number))
    }

    /// The connection. Makes one if there is none, unless the last one was made just now.
    async fn link(&self) -> Result<Link, BrokerError> {
        if let Some(link) = self.alive() {
            return Ok(link);
        }
        let now = self.elapsed.load(Relaxed);
        let lost_at = self.state().link.as_ref().map(|link| link.opened_at);
        if lost_at.is_some_and(|at| now < at + RECONNECT_AFTER_MS) {
            return gone("the connection was lost");
        }
        if self.way.wait(Operation::Read).await.is_err() {
            return gone("no answer");
        }
        // Another call may have made one meanwhile.
        if let Some(link) = self.alive() {
            return Ok(link);
        }
        let mut state = self.state();
        let Some((number, arrived)) = self.mqtt.open(state.link.is_none()) else { return gone("it is down") };
        let link = Link { number, arrived, opened_at: self.elapsed.load(Relaxed) };
        state.link = Some(link.clone());
        Ok(link)
    }

    /// A trip to the broker or back. The connection ends if it fails.
    async fn travel(&self, link: &Link, operation: Operation) -> Result<(), BrokerError> {
        if self.way.wait(operation).await.is_err() {
            self.mqtt.close(link.number);
            return gone("the connection broke");
        }
        Ok(())
    }

    async fn publish_on(&self, link: &Link, messages: &[DeviceCommand]) -> Vec<Result<(), BrokerError>> {
        // Of what is on its way when the connection breaks, some messages arrive.
        let broken = self.way.wait(Operation::Read).await.is_err();
        let reach = if broken { self.below(messages.len() as u64 + 1) } else { messages.len() as u64 };
        let reach = usize::try_from(reach).unwrap_or(0);
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in &messages[..reach] {
            let copies = if self.below(1000) < self.doubled { 2 } else { 1 };
            let has_arrived = self.mqtt.publish(link.number, &message.topic, &message.payload, copies);
            outcomes.push(if has_arrived { Ok(()) } else { gone("the connection is over") });
        }
        if broken {
            self.mqtt.close(link.number);
            return messages.iter().map(|_| gone("the connection broke")).collect();
        }
        match self.travel(link, Operation::Back).await {
            Ok(()) => outcomes,
            // They arrived, and nobody knows.
            Err(error) => messages.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

fn gone<T>(why: &str) -> Result<T, BrokerError> {
    Err(BrokerError::Unreachable(why.to_owned()))
}

#[async_trait]
impl DeviceNetwork for MqttThere {
    fn name(&self) -> &str {
        "mqtt"
    }

    async fn connect(&self) -> Result<(), BrokerError> {
        self.link().await.map(drop)
    }

    async fn publish(&self, messages: &[DeviceCommand]) -> Vec<Result<(), BrokerError>> {
        match self.link().await {
            Ok(link) => self.publish_on(&link, messages).await,
            Err(error) => messages.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<DeviceMessage>, BrokerError> {
        let link = self.link().await?;
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let mut over = pin!(self.way.wait(Operation::Wait(wait)));
        loop {
            let Some(kept) = self.mqtt.receive(link.number, max) else {
                return gone("the connection is over");
            };
            if !kept.is_empty() {
                let message = |kept: super::mqtt::Kept| DeviceMessage {
                    topic: kept.topic,
                    payload: kept.payload.into_bytes(),
                    retained: kept.retained,
                    receipt: link.number << RECEIPT_BITS | kept.number,
                };
                return Ok(kept.into_iter().map(message).collect());
            }
            let mut arrival = pin!(link.arrived.wait());
            let is_over = std::future::poll_fn(|context| {
                if arrival.as_mut().poll(context).is_ready() {
                    return Poll::Ready(false);
                }
                over.as_mut().poll(context).map(|_| true)
            });
            if is_over.await {
                return Ok(Vec::new());
            }
        }
    }

    async fn acknowledge(&self, receipts: &[u64]) -> Result<(), BrokerError> {
        // After a lost connection all of them come again.
        let Some(link) = self.alive() else { return Ok(()) };
        self.travel(&link, Operation::Read).await?;
        let of_link = receipts.iter().filter(|receipt| **receipt >> RECEIPT_BITS == link.number);
        self.mqtt.acknowledge(link.number, of_link.map(|receipt| receipt & ((1 << RECEIPT_BITS) - 1)));
        Ok(())
    }

    async fn refresh(&self) -> Result<(), BrokerError> {
        let link = self.link().await?;
        self.travel(&link, Operation::Read).await?;
        if self.mqtt.refresh(link.number) { Ok(()) } else { gone("the connection is over") }
    }

    async fn disconnect(&self) {
        let link = self.state().link.take();
        if let Some(link) = link {
            self.mqtt.close(link.number);
        }
    }
}
