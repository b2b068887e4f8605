//! The port of a network of devices: messages to topics, and messages from topics.

use std::time::Duration;

use async_trait::async_trait;

use crate::BrokerError;

/// A network of devices. It connects again after a lost connection: a call while it is unavailable fails, and the next one
/// tries again.
#[async_trait]
pub trait DeviceNetwork: Send + Sync + 'static {
    /// Its name for log messages: its URL without user and password.
    fn name(&self) -> &str;

    /// Connects and subscribes, unless it is connected.
    ///
    /// # Errors
    /// When the broker is unavailable or refuses.
    async fn connect(&self) -> Result<(), BrokerError>;

    /// Publishes messages concurrently, and returns when the broker has acknowledged each, or the connection was lost. A
    /// message that could not be confirmed may have arrived nevertheless.
    ///
    /// Returns one outcome per message, in their order.
    async fn publish(&self, messages: &[DeviceCommand]) -> Vec<Result<(), BrokerError>>;

    /// Waits up to `wait` for messages, and returns up to `max` of them; none after that time. Dropping the future loses
    /// none.
    ///
    /// # Errors
    /// When the connection was lost; the next call connects again. Messages that were not acknowledged come again.
    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<DeviceMessage>, BrokerError>;

    /// Acknowledges messages: they do not come again.
    ///
    /// # Errors
    /// When this is uncertain: they may come again.
    async fn acknowledge(&self, receipts: &[u64]) -> Result<(), BrokerError>;

    /// Subscribes again: what the broker has kept comes again, as after a new connection.
    ///
    /// # Errors
    /// When the connection was lost: the next one subscribes anyway.
    async fn refresh(&self) -> Result<(), BrokerError>;

    /// Closes the connection. The broker keeps what comes meanwhile.
    async fn disconnect(&self);
}

/// A message to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCommand {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Vec<u8>,
}

/// A message from a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMessage {
    /// The topic.
    pub topic: String,
    /// The payload; a long one is cut to 256 KiB.
    pub payload: Vec<u8>,
    /// Whether the broker had kept it: it was published before this client subscribed.
    pub retained: bool,
    /// What it is acknowledged by.
    pub receipt: u64,
}
