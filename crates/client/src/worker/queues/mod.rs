//! A worker over a broker: attempts come as step messages on queues.
//!
//! ```text
//!  queue ──▶ Source ──▶ Incoming ──▶ Queues ──▶ Driver       as Kind::Taking, before it runs
//!                 ◀── acknowledge, give back ──    │
//!                                                  ├──▶ Session     to a server, which grants or refuses the claim
//!                                                  └──▶ Results     one way, to a results queue: there is no answer
//! ```
//!
//! Only the store is authoritative. A message may arrive twice, late, or for an attempt of another worker. So
//! the worker asks the server before it runs an attempt, and acknowledges and drops messages whose claim is
//! refused. It acknowledges a message once its result was accepted. One way there is no server to ask: a step
//! delivered twice may run twice, and the server accepts only one of the results.

mod building;
mod failing;
mod fetching;
mod hands;
mod incoming;
mod results;
mod retrying;
mod setup;
mod source;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
pub(super) use building::check;
pub(super) use setup::Setup;
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender},
        watch,
    },
    task::JoinSet,
};
use tracing::warn;
use windlass_api::Attempt;

use self::{
    failing::Failing,
    hands::{Arrived, Hands},
    incoming::Incoming,
    retrying::Retrying,
    source::{Arrival, Order},
};
use super::{Handler, Token, drain::LAST_CALLS_TIMEOUT, feed::Feed};

/// The most arrivals handled in one turn.
const ARRIVALS_MAX: usize = 1024;

/// How many messages the sources may receive, and how many they have received. Both numbers only grow, so
/// that a message in transit from a source to the driver is counted once.
struct Credit {
    /// The limit, of all since the start.
    limit: watch::Sender<u64>,
    /// The number received.
    received: Arc<AtomicU64>,
    /// The number that has reached the driver.
    heard: u64,
}

/// The queues that a worker consumes.
struct Queues {
    hands: Arc<Hands>,
    credit: Credit,
    arrivals: UnboundedReceiver<Arrival>,
    /// The channels to the sources, by number.
    orders: Vec<UnboundedSender<Order>>,
    sources: JoinSet<()>,
}

impl Queues {
    fn order(&self, source: usize, order: Order) {
        if let Some(orders) = self.orders.get(source) {
            // A source that has ended has returned all its messages.
            let _ = orders.send(order);
        }
    }

    /// Records an arrival. None if its attempt is already known.
    fn take_note(&mut self, arrival: Arrival) -> Option<Attempt> {
        self.credit.heard += 1;
        let Arrival { source, receipt, incoming } = arrival;
        let (attempt, arrived) = self.hands.receive(incoming, source, receipt);
        match arrived {
            Arrived::New => Some(attempt),
            Arrived::Again => None,
            Arrived::Done(receipt) => {
                self.order(source, Order::Acknowledge(receipt));
                None
            }
        }
    }
}

#[async_trait]
impl Feed for Queues {
    async fn arrived(&mut self) -> Vec<Attempt> {
        let mut arrivals = Vec::new();
        if self.arrivals.recv_many(&mut arrivals, ARRIVALS_MAX).await == 0 {
            // All sources have ended, which they only do on request.
            std::future::pending::<()>().await;
        }
        arrivals.into_iter().filter_map(|arrival| self.take_note(arrival)).collect()
    }

    fn want(&mut self, free: u32) {
        let limit = self.credit.heard + u64::from(free);
        self.credit.limit.send_if_modified(|before| std::mem::replace(before, limit) != limit);
    }

    fn handler(&self, token: &Token, handler: Arc<dyn Handler>) -> Arc<dyn Handler> {
        match self.hands.treatment(token) {
            Some((_, Some(fault))) => Arc::new(Failing::new(fault)),
            Some((retries, None)) if retries > 0 => Arc::new(Retrying::new(handler, retries)),
            _ => handler,
        }
    }

    fn settle(&mut self, token: &Token) {
        for (source, receipt) in self.hands.settle(token) {
            self.order(source, Order::Acknowledge(receipt));
        }
    }

    fn give_back(&mut self, token: &Token) {
        for (source, receipt) in self.hands.let_go(token) {
            self.order(source, Order::GiveBack(receipt));
        }
    }

    async fn close(mut self: Box<Self>) {
        // A source ends after it has carried out its orders.
        self.orders.clear();
        let ended = async { while self.sources.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_CALLS_TIMEOUT, ended).await.is_err() {
            warn!("the broker does not answer; finished messages may be delivered again");
        }
    }
}

impl Credit {
    fn new() -> Self {
        Self { limit: watch::Sender::new(0), received: Arc::default(), heard: 0 }
    }
}

/// A source's view of the credit.
struct Allowance {
    limit: watch::Receiver<u64>,
    received: Arc<AtomicU64>,
}

impl Allowance {
    fn of(credit: &Credit) -> Self {
        Self { limit: credit.limit.subscribe(), received: credit.received.clone() }
    }

    /// How many more messages may be received now.
    fn left(&mut self) -> usize {
        let limit = *self.limit.borrow_and_update();
        usize::try_from(limit.saturating_sub(self.received.load(Ordering::Acquire))).unwrap_or(usize::MAX)
    }

    /// Records received messages. Sources that wait concurrently may together exceed the limit.
    fn spend(&self, count: usize) {
        self.received.fetch_add(count as u64, Ordering::AcqRel);
    }

    /// A received message will not reach the driver.
    fn refund(&self) {
        self.received.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits until the limit may have changed.
    async fn changed(&mut self) {
        if self.limit.changed().await.is_err() {
            // The worker ends; the source learns this from its orders.
            std::future::pending::<()>().await;
        }
    }
}

/// The longest wait of one receive call.
const RECEIVE_WAIT: Duration = Duration::from_secs(20);
