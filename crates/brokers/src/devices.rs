//! The port of a network of devices: messages to topics, and messages from topics.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::BrokerError;

/// A network of devices, to which one connection is open at a time.
#[async_trait]
pub trait DeviceNetwork: Send + Sync + 'static {
    /// Its name for log messages: its URL without user and password.
    fn name(&self) -> &str;

    /// The open connection. Connects and subscribes if there is none.
    ///
    /// # Errors
    /// When the broker is unavailable or refuses.
    async fn connect(&self) -> Result<Arc<dyn DeviceConnection>, BrokerError>;

    /// Closes the connection. The broker keeps what comes meanwhile.
    async fn disconnect(&self);
}

/// A connection to a network of devices. It ends with its first failure: later calls have no effect, and
/// [`DeviceNetwork::connect`] makes another one.
#[async_trait]
pub trait DeviceConnection: Send + Sync + 'static {
    /// Publishes messages concurrently, and returns when the broker has acknowledged each, or the connection was lost. A
    /// message that could not be confirmed may have arrived nevertheless.
    ///
    /// Returns one outcome per message, in their order.
    ///
    /// # Errors
    /// If the connection had ended before the call: nothing was sent.
    async fn publish(&self, messages: &[DeviceCommand]) -> Result<Vec<Result<(), BrokerError>>, BrokerError>;

    /// Waits up to `wait` for messages, and returns up to `max` of them; none after that time. Dropping the future loses
    /// none.
    ///
    /// # Errors
    /// When the connection is lost. Messages that were not acknowledged come again over the next one.
    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<DeviceMessage>, BrokerError>;

    /// Acknowledges messages of this connection: they do not come again. After its end this does nothing: all that were not
    /// acknowledged come again.
    ///
    /// # Errors
    /// When this is uncertain: they may come again.
    async fn acknowledge(&self, receipts: &[u64]) -> Result<(), BrokerError>;

    /// Subscribes again: what the broker has kept comes again, as after a new connection.
    ///
    /// # Errors
    /// When the connection is lost: the next one subscribes anyway.
    async fn refresh(&self) -> Result<(), BrokerError>;
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
    /// Acknowledges this message, over the same connection only.
    pub receipt: u64,
}
