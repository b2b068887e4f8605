//! Consumes a list whose messages are kept until they are done.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use redis::{RedisError, aio::MultiplexedConnection};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until},
};

use super::{
    error::explain,
    link::Link,
    list::{delivery, number},
    reader::{Read, Reader},
    taken::Taken,
};
use crate::{BrokerError, Consumer, ConsumerSettings, Delivery, Receipt};

/// The longest wait at the server in one command: its answers show that the connection is alive.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The longest interval at which a consumer looks for others that are silent.
const LOOK_AROUND_EVERY: Duration = Duration::from_secs(1);

/// The most messages taken with one command.
const TAKE_MAX: usize = 500;

/// A consumer of a list.
pub(super) struct TakenConsumer {
    link: Arc<Link>,
    name: String,
    list: String,
    silent_after: Duration,
    in_hands_max: usize,
    taken: Arc<Taken>,
    reader: Reader<Option<Vec<Bytes>>>,
    /// Messages received and not settled, by receipt: numbers in the order of the list.
    in_hands: BTreeMap<u64, Bytes>,
    /// Those that the caller has not seen yet.
    ready: VecDeque<u64>,
    next: u64,
    looks_around_at: Instant,
    /// Whether the server may have messages that are not in flight here any more.
    is_uncertain: bool,
}

impl TakenConsumer {
    pub(super) fn new(link: Arc<Link>, list: &str, settings: &ConsumerSettings) -> Self {
        let ConsumerSettings { name, in_hands_max, silent_after, .. } = settings.clone();
        Self {
            taken: Arc::new(registration(list, &name, silent_after)),
            link,
            name,
            list: list.to_owned(),
            silent_after,
            in_hands_max,
            reader: Reader::new(),
            in_hands: BTreeMap::new(),
            ready: VecDeque::new(),
            next: 0,
            looks_around_at: Instant::now(),
            is_uncertain: false,
        }
    }

    fn hand_out(&mut self, max: usize) -> Vec<Delivery> {
        let numbers = self.ready.drain(..self.ready.len().min(max));
        let deliveries =
            numbers.filter_map(|number| Some(delivery(number, self.in_hands.get(&number)?.clone())));
        deliveries.collect()
    }

    /// The messages of these receipts, which this consumer has no longer. Receipts from before it was expelled have
    /// none.
    fn let_go(&mut self, numbers: &BTreeSet<u64>) -> Vec<Bytes> {
        numbers.iter().filter_map(|number| self.in_hands.remove(number)).collect()
    }

    /// Starts again if the server has expelled this consumer: its messages went back, and belong to others.
    fn hear(&mut self, is_known: bool) {
        if !is_known {
            self.in_hands.clear();
            self.ready.clear();
            self.reader = Reader::new();
            self.taken = Arc::new(registration(&self.list, &self.name, self.silent_after));
            self.is_uncertain = false;
        }
    }

    /// Starts again after a lost connection: what the last request took is not known, and goes back.
    ///
    /// While the server is unavailable, the silence of this registration returns it.
    async fn begin_again(&mut self) {
        let _ = self.taken.leave(&self.link).await;
        self.hear(false);
    }
}

fn registration(list: &str, name: &str, silent_after: Duration) -> Taken {
    Taken::new(list, format!("{name}-{:016x}", fastrand::u64(..)), silent_after)
}

fn numbers(receipts: &[Receipt]) -> Result<BTreeSet<u64>, BrokerError> {
    receipts.iter().map(number).collect()
}

/// One read: what waits, or else the first message that comes.
struct Look {
    link: Arc<Link>,
    taken: Arc<Taken>,
    max: usize,
    wait: Duration,
    looks_around: bool,
    has_some: bool,
}

impl Look {
    async fn run(self, connection: Option<MultiplexedConnection>) -> Read<Option<Vec<Bytes>>> {
        let connected = match connection {
            Some(connection) => Ok(connection),
            None => self.link.connect_to_wait().await,
        };
        let (connection, found) = match connected {
            Ok(mut connection) => match self.find(&mut connection).await {
                Ok(found) => (Some(connection), Ok(found)),
                Err(error) => (None, Err(error)),
            },
            Err(error) => (None, Err(error)),
        };
        (connection, found.map_err(|error| explain(&error, &self.taken.list)))
    }

    async fn find(&self, connection: &mut MultiplexedConnection) -> Result<Option<Vec<Bytes>>, RedisError> {
        let found = self.taken.take(connection, self.max, self.looks_around, self.has_some).await?;
        if found.as_ref().is_none_or(|found| !found.is_empty()) || self.wait.is_zero() {
            return Ok(found);
        }
        Ok(Some(self.taken.wait(connection, self.wait).await?.into_iter().collect()))
    }
}

#[async_trait]
impl Consumer for TakenConsumer {
    async fn receive(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, BrokerError> {
        let until = Instant::now() + wait;
        loop {
            let ready = self.hand_out(max);
            if !ready.is_empty() {
                return Ok(ready);
            }
            let room = max.min(self.in_hands_max.saturating_sub(self.in_hands.len())).min(TAKE_MAX);
            if room == 0 {
                sleep_until(until).await;
                return Ok(Vec::new());
            }
            let now = Instant::now();
            let looks_around = now >= self.looks_around_at;
            if looks_around {
                let every = (self.silent_after / 4).clamp(Duration::from_millis(50), LOOK_AROUND_EVERY);
                self.looks_around_at = now + every;
            }
            let wait = until.min(self.looks_around_at).saturating_duration_since(now).min(WAIT_MAX);
            let look = Look {
                link: Arc::clone(&self.link),
                taken: Arc::clone(&self.taken),
                max: room,
                wait,
                looks_around,
                has_some: !self.in_hands.is_empty(),
            };
            let begin = |connection| Box::pin(look.run(connection)) as _;
            let Some(found) = self.reader.read(until, begin).await else { return Ok(Vec::new()) };
            match found {
                Ok(None) => self.hear(false),
                Ok(Some(found)) => {
                    for body in found {
                        self.in_hands.insert(self.next, body);
                        self.ready.push_back(self.next);
                        self.next += 1;
                    }
                }
                Err(error) => {
                    self.begin_again().await;
                    return Err(error);
                }
            }
            if self.ready.is_empty() && Instant::now() >= until {
                return Ok(Vec::new());
            }
        }
    }

    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let numbers = numbers(receipts)?;
        let are_first = !self.is_uncertain && self.in_hands.keys().take(numbers.len()).eq(&numbers);
        let bodies = self.let_go(&numbers);
        if bodies.is_empty() {
            return Ok(());
        }
        let known = match are_first {
            true => self.taken.drop_first(&self.link, bodies.len()).await,
            false => self.taken.drop_these(&self.link, &bodies).await,
        };
        self.is_uncertain |= known.is_err();
        self.hear(known?);
        Ok(())
    }

    async fn give_back(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let bodies = self.let_go(&numbers(receipts)?);
        if !bodies.is_empty() {
            let known = self.taken.put_back(&self.link, &bodies).await;
            self.is_uncertain |= known.is_err();
            self.hear(known?);
        }
        Ok(())
    }

    async fn keep(&mut self, _: &[Receipt]) -> Result<(), BrokerError> {
        let is_known = self.taken.keep(&self.link).await?;
        self.hear(is_known);
        Ok(())
    }
}

impl Drop for TakenConsumer {
    fn drop(&mut self) {
        // Without a runtime nothing can be sent: other consumers return these messages after the silence limit.
        let Ok(runtime) = Handle::try_current() else { return };
        let reader = mem::replace(&mut self.reader, Reader::new());
        let (link, taken) = (Arc::clone(&self.link), Arc::clone(&self.taken));
        runtime.spawn(async move {
            reader.end().await;
            let _ = taken.leave(&link).await;
        });
    }
}
