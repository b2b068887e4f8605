//! The interface of a product's tests.

use std::{sync::Arc, time::Duration};

use crate::{Broker, Queue};

/// A running server of a product.
pub trait Subject: Send + Sync {
    /// Connects to it.
    fn connect(&self) -> Arc<dyn Broker>;

    /// A queue with this name (letters, digits and hyphens, at most 60) and the tested kind.
    fn queue(&self, name: &str) -> Queue {
        Queue::new(name)
    }

    /// Deletes a queue with the product's own tools, even while it is used.
    fn delete(&self, queue: &Queue);

    /// The properties of this kind of queue.
    fn promises(&self) -> Promises;
}

/// A [`Subject`] without other users, which may fail. Its connections use a network that may fail too.
pub trait Disturbances: Subject {
    /// Kills the server.
    fn kill(&self);

    /// Starts the server again with its data, and waits until it is usable.
    fn restart(&self);

    /// Closes all connections, and each new one at once.
    fn cut(&self);

    /// Permits connections again.
    fn heal(&self);
}

/// The properties of a kind of queue. Everything else is common to all brokers.
#[derive(Debug, Clone)]
pub struct Promises {
    /// The shortest reasonable value of [`silent_after`](crate::ConsumerSettings::silent_after).
    pub silent_after: Duration,
    /// Whether messages with the same key arrive in order.
    pub keeps_order: bool,
    /// Whether the id of a message is transmitted.
    pub keeps_ids: bool,
    /// Whether a body may be any bytes, not only text.
    pub binary: bool,
    /// Whether several consumers get messages concurrently, whatever their keys.
    pub shares: bool,
    /// Whether messages are acknowledged one by one, not together with all earlier ones.
    pub acknowledges_each: bool,
    /// Whether the broker counts deliveries.
    pub counts_deliveries: bool,
    /// Whether a message is redelivered if its consumer is silent for too long with an open connection.
    pub heeds_silence: bool,
    /// Whether confirmed messages survive a kill of the server.
    pub survives_a_kill: bool,
}
