//! Making queues and looking at them.

use std::{sync::Arc, time::Duration};

use lapin::{Channel, options::QueueDeclareOptions};

use crate::{
    BrokerError, Look, Queue,
    rabbitmq::{
        kind::{self, Kind},
        link::{Link, answer},
    },
};

/// How long a queue that was deleted is left alone before it is made again. The server tells its consumers within
/// milliseconds, but one that was not told yet when there is a new quorum queue under the same name is not told any more:
/// it counts as that one's consumer and drops what it is sent.
pub(super) const REMAKE_AFTER: Duration = Duration::from_millis(500);

/// Makes a queue unless it is there.
pub(super) async fn declare(link: &Arc<Link>, queue: &Queue) -> Result<(), BrokerError> {
    let (kind, name) = (Kind::of(queue)?, kind::name(queue)?);
    let (_line, channel) = link.channel().await?;
    let declared = channel.queue_declare(name, QueueDeclareOptions::durable(), kind.arguments());
    match answer(Some(&queue.name), declared).await {
        Ok(_) => Ok(()),
        // Somebody may have given us a queue without letting us make any.
        Err(refused @ BrokerError::Refused(_)) => look(link, queue).await.map(drop).map_err(|_| refused),
        Err(BrokerError::Invalid(why)) if differs_in_detail(&why) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a queue that is there has only limits, times or priorities that ours would not have. It is the user's, then,
/// and does what is needed of it.
fn differs_in_detail(why: &str) -> bool {
    why.contains("inequivalent arg 'x-") && !why.contains("inequivalent arg 'x-queue-type'")
}

/// Looks at a queue.
pub(super) async fn look(link: &Arc<Link>, queue: &Queue) -> Result<Look, BrokerError> {
    let (_line, channel) = link.channel().await?;
    let seen = passive(&channel, queue).await?;
    Ok(Look {
        messages: Some(seen.message_count().into()),
        // What consumers have in their hands is not counted; where there are none, that makes no difference.
        counts_in_hands: seen.consumer_count() == 0,
        identity: None,
    })
}

async fn passive(channel: &Channel, queue: &Queue) -> Result<lapin::Queue, BrokerError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
    let declared = channel.queue_declare(kind::name(queue)?, options, lapin::types::FieldTable::default());
    answer(Some(&queue.name), declared).await
}
