//! A channel for sending messages.
//!
//! A batch has a channel to itself: it sends all its messages at once, the server confirms them in any order
//! and in groups, and returns those without a queue. With several batches on one channel, returned messages
//! could not be assigned to their batch.

use std::{collections::HashSet, sync::Arc};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, join_all, poll_immediate},
};
use lapin::{
    Channel, Confirmation, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::time::{Instant, timeout_at};

use crate::{
    BrokerError,
    rabbitmq::{
        failure::failure,
        link::{ANSWER_MAX, Line, Link, answer},
        properties,
        target::{Letter, Target},
    },
};

/// The outcome of a message.
pub(super) type Outcome = Result<(), BrokerError>;

/// A channel in confirm mode.
pub(super) struct Outlet {
    line: Arc<Line>,
    channel: Channel,
}

impl Outlet {
    pub(super) async fn open(sending: &Arc<Link>) -> Result<Self, BrokerError> {
        if sending.line().await?.is_blocked() {
            // The server would not even open a channel.
            return Err(blocked());
        }
        let (line, channel) = sending.channel().await?;
        answer(None, channel.confirm_select(ConfirmSelectOptions::default())).await?;
        Ok(Self { line, channel })
    }

    pub(super) fn is_open(&self) -> bool {
        self.line.is_open() && self.channel.status().connected()
    }

    /// Sends all messages, and waits until the server has accepted or refused each.
    pub(super) async fn send(&self, target: &Target, batch: &[Letter<'_>]) -> Vec<Outcome> {
        let everywhere = |error: BrokerError| vec![Err(error); batch.len()];
        if self.line.is_blocked() {
            return everywhere(blocked());
        }
        let until = Instant::now() + ANSWER_MAX;
        let mut confirms = Vec::with_capacity(batch.len());
        for letter in batch {
            confirms.push(self.begin(target, *letter));
        }
        // The first poll hands a message to the driver's thread: so they are sent in order, without waiting
        // for each other.
        let mut under_way = Vec::with_capacity(batch.len());
        for mut confirm in confirms {
            let outcome = poll_immediate(&mut confirm).await;
            under_way.push((confirm, outcome));
        }
        let waiting = join_all(under_way.into_iter().map(async |(confirm, outcome)| {
            let confirmed = match outcome {
                Some(outcome) => Ok(outcome),
                None => timeout_at(until, confirm).await,
            };
            match confirmed {
                Ok(Ok(confirmation)) => Ok(confirmation),
                Ok(Err(error)) => Err(error),
                Err(_) if self.line.is_blocked() => Err(blocked()),
                Err(_) => Err(BrokerError::Unreachable(format!("not confirmed within {ANSWER_MAX:?}"))),
            }
        }));
        outcomes(target, batch, waiting.await)
    }

    /// Sends one message, and waits until the server has accepted or refused it.
    fn begin<'a>(
        &'a self,
        target: &'a Target,
        letter: Letter<'a>,
    ) -> BoxFuture<'a, Result<Confirmation, BrokerError>> {
        async move {
            let told = |error: lapin::Error| failure(Some(target.name()), &error);
            let (exchange, routing_key) = target.way(letter)?;
            // Without this flag the server confirms and drops a message without a queue.
            let options = BasicPublishOptions { mandatory: target.wants_a_queue(), ..Default::default() };
            let properties = properties::of(letter.message)?;
            let body = &letter.message.body;
            let sent: Result<PublisherConfirm, _> =
                self.channel.basic_publish(exchange, routing_key, options, body, properties).await;
            sent.map_err(told)?.await.map_err(told)
        }
        .boxed()
    }
}

/// The outcome of each message of a batch, from the server's answers to all of them.
fn outcomes(
    target: &Target,
    batch: &[Letter<'_>],
    confirmed: Vec<Result<Confirmation, BrokerError>>,
) -> Vec<Outcome> {
    // A returned message is reported with any later confirmation, not with its own.
    let mut returned = HashSet::new();
    let mut taken = Vec::with_capacity(confirmed.len());
    for confirmation in confirmed {
        taken.push(match &confirmation {
            Ok(Confirmation::Ack(_)) => Ok(()),
            Ok(_) => {
                Err(BrokerError::Failed("it refused the message: the queue is full or has failed".to_owned()))
            }
            Err(error) => Err(error.clone()),
        });
        let message = confirmation.ok().and_then(Confirmation::take_message);
        returned.extend(message.map(|message| properties::id(&message.delivery.properties)));
    }
    let missing = |letter: &Letter<'_>| {
        returned.contains(&letter.message.id).then(|| BrokerError::NoQueue(target.name().to_owned()))
    };
    batch.iter().zip(taken).map(|(letter, taken)| missing(letter).map_or(taken, Err)).collect()
}

fn blocked() -> BrokerError {
    BrokerError::Failed("it accepts no messages at present: its memory or disk is nearly full".to_owned())
}
