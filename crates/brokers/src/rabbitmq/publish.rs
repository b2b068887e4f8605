//! Sending messages, so that each is known to be in its queue or is reported.
//!
//! A batch has a channel to itself: all its messages go out at once, the server confirms them in whatever order and in
//! bulk, and hands back those for which there is no queue. With other batches on the same channel it would not be known
//! whose came back.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{
    FutureExt as _,
    future::{join_all, poll_immediate},
};
use lapin::{
    Channel, Confirmation, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::ShortString,
};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    BrokerError, Message, Queue,
    rabbitmq::{
        failure::failure,
        kind,
        link::{ANSWER_MAX, Line, Link, answer},
        properties, queues,
    },
};

/// Channels kept for the next batches.
const IDLE_MAX: usize = 16;

/// The default of servers since version 4, and what is sensible for a queue.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

type Outcome = Result<(), BrokerError>;

/// Where messages leave from.
pub(super) struct Publisher {
    /// The connection that messages leave by, and nothing else: a server that runs out of memory stops reading it.
    sending: Arc<Link>,
    /// The one by which queues are made.
    asking: Arc<Link>,
    idle: Mutex<Vec<Outlet>>,
    /// Queues that were there once, and need not be made before each batch.
    known: Mutex<HashSet<Queue>>,
}

/// A channel on which the server confirms what it takes.
struct Outlet {
    line: Arc<Line>,
    channel: Channel,
}

impl Publisher {
    pub(super) fn new(sending: Arc<Link>, asking: Arc<Link>) -> Self {
        Self { sending, asking, idle: Mutex::default(), known: Mutex::default() }
    }

    pub(super) async fn publish(&self, queue: &Queue, messages: &[Message]) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = messages.iter().map(check).collect();
        let good = indices(&outcomes, Result::is_ok);
        if let Err(error) = self.ensure(queue).await {
            set(&mut outcomes, &good, &error);
            return outcomes;
        }
        self.send(queue, messages, &good, &mut outcomes).await;

        let missing = indices(&outcomes, |outcome| matches!(outcome, Err(BrokerError::NoQueue(_))));
        if !missing.is_empty() {
            // The queue was deleted since. Once more, then; if that does not help, somebody works against us.
            self.known().remove(queue);
            sleep(queues::REMAKE_AFTER).await;
            match self.ensure(queue).await {
                Ok(()) => self.send(queue, messages, &missing, &mut outcomes).await,
                Err(error) => set(&mut outcomes, &missing, &error),
            }
        }

        let large = indices(&outcomes, |outcome| matches!(outcome, Err(BrokerError::TooLarge { .. })));
        let large: Vec<usize> = large.into_iter().filter(|at| good.binary_search(at).is_ok()).collect();
        if large.len() > 1 {
            // The server has a lower limit than usual, and closed the channel on all for the sake of one.
            for at in large {
                self.send(queue, messages, &[at], &mut outcomes).await;
            }
        }
        outcomes
    }

    /// Sends these of the messages, and notes what became of each.
    async fn send(&self, queue: &Queue, messages: &[Message], which: &[usize], outcomes: &mut [Outcome]) {
        if which.is_empty() {
            return;
        }
        let batch: Vec<&Message> = which.iter().map(|at| &messages[*at]).collect();
        let sent = match self.outlet().await {
            Ok(outlet) => {
                let sent = outlet.send(queue, &batch).await;
                self.give_back(outlet, &sent);
                sent
            }
            Err(error) => vec![Err(error); batch.len()],
        };
        for (at, outcome) in which.iter().zip(sent) {
            outcomes[*at] = outcome;
        }
    }

    /// Makes the queue unless it was there already.
    async fn ensure(&self, queue: &Queue) -> Outcome {
        if !self.known().contains(queue) {
            queues::declare(&self.asking, queue).await?;
            self.known().insert(queue.clone());
        }
        Ok(())
    }

    /// A channel of which nobody else knows.
    async fn outlet(&self) -> Result<Outlet, BrokerError> {
        while let Some(outlet) = self.idle().pop() {
            if outlet.is_open() {
                return Ok(outlet);
            }
        }
        if self.sending.line().await?.is_blocked() {
            // Not even a channel would be opened.
            return Err(blocked());
        }
        let (line, channel) = self.sending.channel().await?;
        answer(None, channel.confirm_select(ConfirmSelectOptions::default())).await?;
        Ok(Outlet { line, channel })
    }

    /// Keeps a channel on which nothing is under way any more.
    fn give_back(&self, outlet: Outlet, sent: &[Outcome]) {
        let is_settled = sent.iter().all(|outcome| matches!(outcome, Ok(()) | Err(BrokerError::NoQueue(_))));
        let mut idle = self.idle();
        if is_settled && outlet.is_open() && idle.len() < IDLE_MAX {
            idle.push(outlet);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Outlet>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashSet<Queue>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlet {
    fn is_open(&self) -> bool {
        self.line.is_open() && self.channel.status().connected()
    }

    /// Sends all of these and waits until the server has taken or refused each.
    async fn send(&self, queue: &Queue, batch: &[&Message]) -> Vec<Outcome> {
        let everywhere = |error: BrokerError| vec![Err(error); batch.len()];
        if self.line.is_blocked() {
            return everywhere(blocked());
        }
        let name = match kind::name(queue) {
            Ok(name) => name,
            Err(error) => return everywhere(error),
        };
        let until = Instant::now() + ANSWER_MAX;
        let mut confirms = Vec::with_capacity(batch.len());
        for message in batch {
            confirms.push(self.begin(&name, message));
        }
        // Each is told to the driver's thread when it is first looked at: in their order, none waiting for another.
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
        outcomes(queue, batch, waiting.await)
    }

    /// Sends one and waits until the server has taken or refused it.
    fn begin<'a>(
        &'a self,
        name: &ShortString,
        message: &'a Message,
    ) -> futures_util::future::BoxFuture<'a, Result<Confirmation, BrokerError>> {
        let name = name.clone();
        async move {
            let told = |error: lapin::Error| failure(Some(name.as_str()), &error);
            // Without this flag the server drops what it has no queue for, and confirms it.
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let properties = properties::of(message)?;
            let exchange = ShortString::default();
            let sent: Result<PublisherConfirm, _> =
                self.channel.basic_publish(exchange, name.clone(), options, &message.body, properties).await;
            sent.map_err(told)?.await.map_err(told)
        }
        .boxed()
    }
}

/// What became of each message of a batch, by what the server said to all of them.
fn outcomes(
    queue: &Queue,
    batch: &[&Message],
    confirmed: Vec<Result<Confirmation, BrokerError>>,
) -> Vec<Outcome> {
    // A message that comes back is reported with any of the confirmations that follow, not with its own.
    let mut returned = HashSet::new();
    let mut taken = Vec::with_capacity(confirmed.len());
    for confirmation in confirmed {
        taken.push(match &confirmation {
            Ok(Confirmation::Ack(_)) => Ok(()),
            Ok(_) => Err(BrokerError::Failed(
                "it does not take the message: the queue is full, or failed".to_owned(),
            )),
            Err(error) => Err(error.clone()),
        });
        let message = confirmation.ok().and_then(Confirmation::take_message);
        returned.extend(message.map(|message| properties::id(&message.delivery.properties)));
    }
    let missing =
        |message: &Message| returned.contains(&message.id).then(|| BrokerError::NoQueue(queue.name.clone()));
    batch.iter().zip(taken).map(|(message, taken)| missing(message).map_or(taken, Err)).collect()
}

fn blocked() -> BrokerError {
    BrokerError::Failed(
        "it takes no messages for the time being: its memory or disk is nearly full".to_owned(),
    )
}

/// Whether a message can be sent at all.
fn check(message: &Message) -> Outcome {
    let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let bytes = message.body.len() + headers;
    if bytes > MESSAGE_BYTES_MAX {
        return Err(BrokerError::TooLarge { bytes, limit: MESSAGE_BYTES_MAX });
    }
    properties::of(message).map(drop)
}

fn indices(outcomes: &[Outcome], is_wanted: impl Fn(&Outcome) -> bool) -> Vec<usize> {
    let all = outcomes.iter().enumerate();
    all.filter(|(_, outcome)| is_wanted(outcome)).map(|(at, _)| at).collect()
}

fn set(outcomes: &mut [Outcome], which: &[usize], error: &BrokerError) {
    for at in which {
        outcomes[*at] = Err(error.clone());
    }
}
