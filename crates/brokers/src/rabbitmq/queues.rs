//! Creates queues and reads their state.

use std::{sync::Arc, time::Duration};

use lapin::{Channel, options::QueueDeclareOptions};

use crate::{
    BrokerError, Look, Queue,
    rabbitmq::{
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

/// Reads the state of a queue.
pub(super) async fn look(link: &Arc<Link>, queue: &Queue) -> Result<Look, BrokerError> {
    let (_line, channel) = link.channel().await?;
    let seen = passive(&channel, queue).await?;
    Ok(Look {
        messages: Some(seen.message_count().into()),
        // Messages in flight are not counted; without consumers there are none.
        counts_in_hands: seen.consumer_count() == 0,
        identity: None,
    })
}

async fn passive(channel: &Channel, queue: &Queue) -> Result<lapin::Queue, BrokerError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
    let declared = channel.queue_declare(kind::name(queue)?, options, lapin::types::FieldTable::default());
    answer(Some(&queue.name), declared).await
}
