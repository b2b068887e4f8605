//! Consumes one queue: brings messages and settles them, one event at a time.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::{Instant, sleep_until},
};
use tracing::{debug, error, info, warn};
use windlass_brokers::{
    Broker, BrokerError, Consumer, ConsumerSettings, Delivery, Message, Queue, Receipt, bury,
};

use super::{
    Allowance, Incoming, RECEIVE_WAIT,
    fetching::{Fetched, fetch},
    incoming::Parameters,
};
use crate::{Client, pacing::Pacing};

/// The most orders carried out in one turn.
const ORDERS_MAX: usize = 1024;

/// How often a consumer renews its messages within its silence limit.
const KEEPS_WITHIN_SILENCE: u32 = 3;

/// A received attempt.
pub(super) struct Arrival {
    /// The number of the source.
    pub(super) source: usize,
    pub(super) receipt: Receipt,
    pub(super) incoming: Incoming,
}

/// How to settle a message.
pub(super) enum Order {
    Acknowledge(Receipt),
    GiveBack(Receipt),
}

/// Consumes one queue. It ends when its channel of orders is closed.
pub(super) struct Source {
    pub(super) number: usize,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) queue: Queue,
    pub(super) settings: ConsumerSettings,
    /// The server that stores parameters too large for the broker.
    pub(super) server: Option<Client>,
    pub(super) consumer: Option<Box<dyn Consumer>>,
    pub(super) allowance: Allowance,
    pub(super) arrivals: UnboundedSender<Arrival>,
    pub(super) orders: UnboundedReceiver<Order>,
}

/// The state that changes while it runs.
struct Course {
    in_hands: HashSet<Receipt>,
    /// Unusable messages with their reasons, until they are in the dead-letter queue.
    unfit: Vec<(Receipt, Message, String)>,
    fetching: FuturesUnordered<BoxFuture<'static, Fetched>>,
    keep_at: Instant,
    /// The earliest time of the next receive call.
    not_before: Instant,
    pacing: Pacing,
    is_away: bool,
}

impl Source {
    pub(super) async fn run(mut self) {
        let mut course = Course {
            in_hands: HashSet::new(),
            unfit: Vec::new(),
            fetching: FuturesUnordered::new(),
            keep_at: Instant::now() + self.keep_interval(),
            not_before: Instant::now(),
            pacing: Pacing::default(),
            is_away: false,
        };
        let mut orders = Vec::new();
        loop {
            let left = self.allowance.left();
            let may_receive = left > 0 && course.not_before <= Instant::now();
            let Self { broker, queue, settings, consumer, allowance, orders: inbox, .. } = &mut self;
            tokio::select! {
                count = inbox.recv_many(&mut orders, ORDERS_MAX) => {
                    if count == 0 {
                        break;
                    }
                    self.carry_out(&mut course, orders.drain(..)).await;
                }
                () = sleep_until(course.keep_at) => self.keep(&mut course).await,
                () = sleep_until(course.not_before), if left > 0 && !may_receive => {}
                () = allowance.changed(), if left == 0 => {}
                Some(fetched) = course.fetching.next() => self.fetched(&mut course, fetched).await,
                received = receive(consumer, &**broker, queue, settings, left), if may_receive => {
                    self.received(&mut course, received).await;
                }
            }
        }
        self.leave(course).await;
    }

    async fn received(&mut self, course: &mut Course, received: Result<Vec<Delivery>, BrokerError>) {
        let deliveries = match received {
            Ok(deliveries) => deliveries,
            Err(error) => return self.lost(course, &error),
        };
        course.pacing.succeeded();
        if std::mem::replace(&mut course.is_away, false) {
            info!(broker = self.broker.name(), queue = %self.queue, "consuming the queue again");
        }
        for Delivery { message, receipt, deliveries } in deliveries {
            course.in_hands.insert(receipt.clone());
            match Incoming::read(&message, deliveries) {
                Ok((incoming, Parameters::Here)) => {
                    self.allowance.spend(1);
                    self.bring(receipt, incoming);
                }
                Ok((incoming, Parameters::Kept)) => {
                    self.allowance.spend(1);
                    match self.server.clone() {
                        Some(server) => {
                            course.fetching.push(Box::pin(fetch(server, receipt, message, incoming)))
                        }
                        None => self.bring(receipt, incoming.without_parameters()),
                    }
                }
                Err(reason) => self.is_unfit(course, receipt, message, reason),
            }
        }
        self.bury_unfit(course).await;
    }

    /// The server has answered about the parameters of a message.
    async fn fetched(&mut self, course: &mut Course, fetched: Fetched) {
        match fetched {
            Fetched::Whole(receipt, incoming) => self.bring(receipt, *incoming),
            Fetched::Gone(receipt) => {
                self.allowance.refund();
                self.carry_out(course, [Order::Acknowledge(receipt)]).await;
            }
            Fetched::Useless(receipt, message, reason) => {
                self.allowance.refund();
                self.is_unfit(course, receipt, message, reason);
                self.bury_unfit(course).await;
            }
        }
    }

    fn is_unfit(&self, course: &mut Course, receipt: Receipt, message: Message, reason: String) {
        // The message's id is its token, which must not be logged.
        warn!(queue = %self.queue, key = message.key, reason, "a message goes to the dead-letter queue");
        course.unfit.push((receipt, message, reason));
    }

    fn bring(&self, receipt: Receipt, incoming: Incoming) {
        // Without a driver nothing can run it; it goes back when the source ends.
        let _ = self.arrivals.send(Arrival { source: self.number, receipt, incoming });
    }

    /// The broker does not answer: retry for ever.
    fn lost(&mut self, course: &mut Course, error: &BrokerError) {
        course.not_before = Instant::now() + course.pacing.failed();
        let first = !std::mem::replace(&mut course.is_away, true);
        let (broker, queue) = (self.broker.name(), &self.queue);
        if !error.is_passing() {
            error!(broker, %queue, %error, "the broker refuses the queue; retrying");
        } else if first {
            // Logged once per outage: it may last, and an operator must see why nothing happens.
            warn!(broker, %queue, %error, "cannot consume the queue; retrying");
        } else {
            debug!(broker, %queue, %error, "cannot consume the queue yet; retrying");
        }
    }

    /// Moves unusable messages to the dead-letter queue. Keeps those that cannot be moved now, and tries
    /// again later.
    async fn bury_unfit(&mut self, course: &mut Course) {
        let mut buried = Vec::new();
        for (receipt, message, reason) in std::mem::take(&mut course.unfit) {
            match bury(&*self.broker, &self.queue, message.clone(), &reason).await {
                Ok(()) => buried.push(Order::Acknowledge(receipt)),
                Err(error) => {
                    warn!(queue = %self.queue, %error, "cannot move a message to the dead-letter queue yet; retrying");
                    course.unfit.push((receipt, message, reason));
                }
            }
        }
        if !buried.is_empty() {
            self.carry_out(course, buried).await;
        }
    }

    async fn carry_out(&mut self, course: &mut Course, orders: impl IntoIterator<Item = Order>) {
        let (mut done, mut back) = (Vec::new(), Vec::new());
        for order in orders {
            let (receipt, receipts) = match order {
                Order::Acknowledge(receipt) => (receipt, &mut done),
                Order::GiveBack(receipt) => (receipt, &mut back),
            };
            course.in_hands.remove(&receipt);
            receipts.push(receipt);
        }
        let Some(consumer) = &mut self.consumer else { return };
        if !done.is_empty()
            && let Err(error) = consumer.acknowledge(&done).await
        {
            debug!(queue = %self.queue, %error, "finished messages may be delivered again");
        }
        if !back.is_empty()
            && let Err(error) = consumer.give_back(&back).await
        {
            debug!(queue = %self.queue, %error, "the broker will redeliver messages by itself");
        }
    }

    /// Renews the messages in flight: the worker still works on them.
    async fn keep(&mut self, course: &mut Course) {
        course.keep_at = Instant::now() + self.keep_interval();
        let receipts: Vec<Receipt> = course.in_hands.iter().cloned().collect();
        if let Some(consumer) = &mut self.consumer
            && !receipts.is_empty()
            && let Err(error) = consumer.keep(&receipts).await
        {
            debug!(queue = %self.queue, %error, "messages in flight may be delivered again");
        }
        self.bury_unfit(course).await;
    }

    /// Returns the messages that were not settled.
    async fn leave(mut self, mut course: Course) {
        let rest: Vec<Order> = course.in_hands.iter().cloned().map(Order::GiveBack).collect();
        self.carry_out(&mut course, rest).await;
    }

    fn keep_interval(&self) -> Duration {
        self.settings.silent_after / KEEPS_WITHIN_SILENCE
    }
}

/// Receives messages. Starts to consume first, if necessary.
async fn receive(
    consumer: &mut Option<Box<dyn Consumer>>,
    broker: &dyn Broker,
    queue: &Queue,
    settings: &ConsumerSettings,
    max: usize,
) -> Result<Vec<Delivery>, BrokerError> {
    let consumer = match consumer {
        Some(consumer) => consumer,
        None => consumer.insert(broker.consume(queue, settings).await?),
    };
    consumer.receive(max, RECEIVE_WAIT).await
}
