//! What a product's tests bring along.

use std::{sync::Arc, time::Duration};

use crate::{Broker, Queue};

/// A server of a product that runs, as the suite needs it.
pub trait Subject: Send + Sync {
    /// A new connection to it.
    fn connect(&self) -> Arc<dyn Broker>;

    /// A queue of this name (letters, digits and hyphens, 60 at most) and of the kind that is tested.
    fn queue(&self, name: &str) -> Queue {
        Queue::new(name)
    }

    /// Deletes a queue by the product's own means, whoever uses it.
    fn delete(&self, queue: &Queue);

    /// What this kind of queue promises.
    fn promises(&self) -> Promises;
}

/// A [`Subject`] that nobody else uses, and that may fail. Its connections go by way of a network that may fail as well.
pub trait Disturbances: Subject {
    /// Kills the server.
    fn kill(&self);

    /// Starts it again with its data, and waits until it can be used.
    fn restart(&self);

    /// Closes every connection, and each new one at once.
    fn cut(&self);

    /// Lets connections be made again.
    fn heal(&self);
}

/// What a kind of queue promises. Everything that is not named here all of them do.
#[derive(Debug, Clone)]
pub struct Promises {
    /// The shortest that makes sense for [`silent_after`](crate::ConsumerSettings::silent_after).
    pub silent_after: Duration,
    /// Whether messages of one key arrive in their order.
    pub keeps_order: bool,
    /// Whether the id of a message arrives.
    pub keeps_ids: bool,
    /// Whether a body may be any bytes, not only text.
    pub binary: bool,
    /// Whether consumers have messages at the same time, whatever their keys.
    pub shares: bool,
    /// Whether each message is acknowledged by itself, and not with all before it.
    pub acknowledges_each: bool,
    /// Whether deliveries are counted.
    pub counts_deliveries: bool,
    /// Whether a message comes again whose consumer is silent for too long and keeps its connection.
    pub heeds_silence: bool,
    /// Whether what was confirmed is there after the server was killed.
    pub survives_a_kill: bool,
}
