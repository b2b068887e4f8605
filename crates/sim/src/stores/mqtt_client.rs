//! A server's connection to the MQTT broker. Its first failure ends it, as with the client of the program.

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
use windlass_brokers::{BrokerError, DeviceCommand, DeviceConnection, DeviceMessage, DeviceNetwork};
use windlass_store::Signal;

use super::Mqtt;
use crate::world::{Device, Operation};

/// A connection that was lost earlier than this is not made again before, in milliseconds.
const RECONNECT_AFTER_MS: u64 = 1_000;

/// A client of the broker.
pub(crate) struct MqttThere {
    client: Arc<Client>,
    /// The last connection.
    last: Mutex<Option<Arc<Link>>>,
}

struct Client {
    mqtt: Mqtt,
    /// The way to the broker.
    way: Device,
    dice: Mutex<fastrand::Rng>,
    /// How often, in a thousand, a job is delivered twice.
    doubled: u64,
    elapsed: Arc<AtomicU64>,
}

/// A connection.
struct Link {
    client: Arc<Client>,
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
        let client = Arc::new(Client { mqtt, way, dice: Mutex::new(dice), doubled, elapsed });
        Self { client, last: Mutex::default() }
    }

    fn last(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, if it works.
    fn alive(&self) -> Option<Arc<Link>> {
        self.last().clone().filter(|link| link.is_open())
    }
}

impl Client {
    fn below(&self, end: u64) -> u64 {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner).u64(..end.max(1))
    }
}

impl Link {
    /// A trip to the broker or back. The connection ends if it fails.
    async fn travel(&self, operation: Operation) -> Result<(), BrokerError> {
        if self.client.way.wait(operation).await.is_err() {
            self.client.mqtt.close(self.number);
            return gone("the connection broke");
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.client.mqtt.is_open(self.number)
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

    async fn connect(&self) -> Result<Arc<dyn DeviceConnection>, BrokerError> {
        if let Some(link) = self.alive() {
            return Ok(link);
        }
        let now = self.client.elapsed.load(Relaxed);
        let lost_at = self.last().as_ref().map(|link| link.opened_at);
        if lost_at.is_some_and(|at| now < at + RECONNECT_AFTER_MS) {
            return gone("the connection was lost");
        }
        if self.client.way.wait(Operation::Read).await.is_err() {
            return gone("no answer");
        }
        // Another call may have made one meanwhile.
        if let Some(link) = self.alive() {
            return Ok(link);
        }
        let Some((number, arrived)) = self.client.mqtt.open() else { return gone("it is down") };
        let opened_at = self.client.elapsed.load(Relaxed);
        let link = Arc::new(Link { client: self.client.clone(), number, arrived, opened_at });
        *self.last() = Some(link.clone());
        Ok(link)
    }

    async fn disconnect(&self) {
        let link = self.last().take();
        if let Some(link) = link {
            self.client.mqtt.close(link.number);
        }
    }
}

#[async_trait]
impl DeviceConnection for Link {
    async fn publish(&self, messages: &[DeviceCommand]) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        if !self.is_open() {
            return gone("the connection is over");
        }
        let client = &*self.client;
        // Of what is on its way when the connection breaks, some messages arrive.
        let broken = client.way.wait(Operation::Read).await.is_err();
        let reach = if broken { client.below(messages.len() as u64 + 1) } else { messages.len() as u64 };
        let reach = usize::try_from(reach).unwrap_or(0);
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in &messages[..reach] {
            let copies = if client.below(1000) < client.doubled { 2 } else { 1 };
            let has_arrived = client.mqtt.publish(self.number, &message.topic, &message.payload, copies);
            outcomes.push(if has_arrived { Ok(()) } else { gone("the connection is over") });
        }
        if broken {
            client.mqtt.close(self.number);
            return Ok(messages.iter().map(|_| gone("the connection broke")).collect());
        }
        Ok(match self.travel(Operation::Back).await {
            Ok(()) => outcomes,
            // They arrived, and nobody knows.
            Err(error) => messages.iter().map(|_| Err(error.clone())).collect(),
        })
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<DeviceMessage>, BrokerError> {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let mut over = pin!(self.client.way.wait(Operation::Wait(wait)));
        loop {
            let Some(kept) = self.client.mqtt.receive(self.number, max) else {
                return gone("the connection is over");
            };
            if !kept.is_empty() {
                let message = |kept: super::mqtt::Kept| DeviceMessage {
                    topic: kept.topic,
                    payload: kept.payload.into_bytes(),
                    retained: kept.retained,
                    receipt: kept.number,
                };
                return Ok(kept.into_iter().map(message).collect());
            }
            let mut arrival = pin!(self.arrived.wait());
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
        if !self.is_open() {
            return Ok(());
        }
        self.travel(Operation::Read).await?;
        self.client.mqtt.acknowledge(self.number, receipts.iter().copied());
        Ok(())
    }

    async fn refresh(&self) -> Result<(), BrokerError> {
        self.travel(Operation::Read).await?;
        if self.client.mqtt.refresh(self.number) { Ok(()) } else { gone("the connection is over") }
    }
}
