//! Creates queues and reads their state.

use std::{sync::Arc, time::Duration};

use lapin::{
    Channel,
    options::{QueueBindOptions, QueueDeclareOptions},
    types::{FieldTable, ShortString},
};

use crate::{
    Binding, BrokerError, InFlight, Look, Queue,
    rabbitmq::{
        exchanges::{Exchange, Way},
        kind::{self, Kind},
        link::{Link, answer},
    },
};

/// How long to wait before a deleted queue is created again. The server notifies its consumers within
/// milliseconds. But a consumer not yet notified when a new quorum queue with the same name exists is never
/// notified: it counts as the new queue's consumer and drops the messages it is sent.
pub(super) const REMAKE_AFTER: Duration = Duration::from_millis(500);

/// Creates a queue unless it exists.
pub(super) async fn declare(link: &Arc<Link>, queue: &Queue) -> Result<(), BrokerError> {
    let (kind, name) = (Kind::of(queue)?, kind::name(queue)?);
    let (_line, channel) = link.channel().await?;
    let declared = channel.queue_declare(name, QueueDeclareOptions::durable(), kind.arguments());
    match answer(Some(&queue.name), declared).await {
        Ok(_) => Ok(()),
        // An administrator may have created the queue for us without the right to create any.
        Err(refused @ BrokerError::Refused(_)) => look(link, queue).await.map(drop).map_err(|_| refused),
        Err(BrokerError::Invalid(why)) if kind.accepts_difference(&why) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Binds a queue to an exchange, which is created unless it exists. An existing one may have any kind.
pub(super) async fn bind(link: &Arc<Link>, queue: &Queue, binding: &Binding) -> Result<(), BrokerError> {
    let Binding { exchange, key } = binding;
    let exchange = Exchange { name: exchange.clone(), way: Way::Direct };
    match exchange.declare(link).await {
        Ok(()) | Err(BrokerError::Invalid(_)) => {}
        Err(error) => return Err(error),
    }
    let key = ShortString::try_new(key.as_str())
        .map_err(|_| BrokerError::Invalid(format!("the binding key {key:?} has more than 255 bytes")))?;
    let (_line, channel) = link.channel().await?;
    let (name, exchange) = (kind::name(queue)?, exchange.short_name()?);
    let bound = channel.queue_bind(name, exchange, key, QueueBindOptions::default(), FieldTable::default());
    answer(Some(&queue.name), bound).await
}

/// Reads the state of a queue.
pub(super) async fn look(link: &Arc<Link>, queue: &Queue) -> Result<Look, BrokerError> {
    let (_line, channel) = link.channel().await?;
    let seen = passive(&channel, queue).await?;
    Ok(Look {
        messages: Some(seen.message_count().into()),
        in_flight: if seen.consumer_count() == 0 { InFlight::None } else { InFlight::NotCounted },
        identity: None,
    })
}

async fn passive(channel: &Channel, queue: &Queue) -> Result<lapin::Queue, BrokerError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
    let declared = channel.queue_declare(kind::name(queue)?, options, FieldTable::default());
    answer(Some(&queue.name), declared).await
}
