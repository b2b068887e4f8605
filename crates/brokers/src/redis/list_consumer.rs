//! Consumes a list: receiving a message removes it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use redis::{RedisError, aio::MultiplexedConnection, cmd};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until},
};

use super::{
    error::explain,
    group::ask,
    link::Link,
    list::{delivery, number, put_back},
    reader::{Read, Reader},
};
use crate::{BrokerError, Consumer, Delivery, Receipt};

/// The longest wait at the server in one command: its answers show that the connection is alive.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A consumer of a list.
pub(super) struct ListConsumer {
    link: Arc<Link>,
    list: Arc<str>,
    in_hands_max: usize,
    reader: Reader<Vec<Bytes>>,
    /// Messages received and not settled, by receipt: numbers in the order of the list.
    in_hands: BTreeMap<u64, Bytes>,
    /// Those that the caller has not seen yet.
    ready: VecDeque<u64>,
    /// Those given back that the server does not have yet.
    going_back: BTreeSet<u64>,
    next: u64,
}

impl ListConsumer {
    pub(super) fn new(link: Arc<Link>, list: &str, in_hands_max: usize) -> Self {
        Self {
            link,
            list: list.into(),
            in_hands_max,
            reader: Reader::new(),
            in_hands: BTreeMap::new(),
            ready: VecDeque::new(),
            going_back: BTreeSet::new(),
            next: 0,
        }
    }

    fn hand_out(&mut self, max: usize) -> Vec<Delivery> {
        let numbers = self.ready.drain(..self.ready.len().min(max));
        let deliveries =
            numbers.filter_map(|number| Some(delivery(number, self.in_hands.get(&number)?.clone())));
        deliveries.collect()
    }

    /// Puts back messages that the server does not have yet.
    async fn put_back(&mut self) -> Result<(), BrokerError> {
        let bodies: Vec<&[u8]> = self
            .going_back
            .iter()
            .filter_map(|number| self.in_hands.get(number))
            .map(|body| &body[..])
            .collect();
        put_back(&self.link, &self.list, &bodies).await?;
        for number in mem::take(&mut self.going_back) {
            self.in_hands.remove(&number);
        }
        Ok(())
    }
}

async fn take(
    link: Arc<Link>,
    list: Arc<str>,
    max: usize,
    wait: Duration,
    connection: Option<MultiplexedConnection>,
) -> Read<Vec<Bytes>> {
    let connected = match connection {
        Some(connection) => Ok(connection),
        None => link.connect_to_wait().await,
    };
    let (connection, taken) = match connected {
        Ok(mut connection) => match pop(&mut connection, &list, max, wait).await {
            Ok(taken) => (Some(connection), Ok(taken)),
            Err(error) => (None, Err(error)),
        },
        Err(error) => (None, Err(error)),
    };
    (connection, taken.map_err(|error| explain(&error, &list)))
}

async fn pop(
    connection: &mut MultiplexedConnection,
    list: &str,
    max: usize,
    wait: Duration,
) -> Result<Vec<Bytes>, RedisError> {
    // A timeout of 0 would mean to wait for ever.
    let mut command = if wait.is_zero() { cmd("LMPOP") } else { cmd("BLMPOP") };
    if !wait.is_zero() {
        command.arg(wait.as_secs_f64().max(0.001));
    }
    command.arg(1).arg(list).arg("LEFT").arg("COUNT").arg(max);
    let popped: Option<(String, Vec<Bytes>)> = ask(connection, &command, wait).await?;
    Ok(popped.map(|(_, bodies)| bodies).unwrap_or_default())
}

#[async_trait]
impl Consumer for ListConsumer {
    async fn receive(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, BrokerError> {
        let until = Instant::now() + wait;
        self.put_back().await?;
        loop {
            let ready = self.hand_out(max);
            if !ready.is_empty() {
                return Ok(ready);
            }
            let room = max.min(self.in_hands_max.saturating_sub(self.in_hands.len()));
            if room == 0 {
                sleep_until(until).await;
                return Ok(Vec::new());
            }
            let wait = until.saturating_duration_since(Instant::now()).min(WAIT_MAX);
            let (link, list) = (Arc::clone(&self.link), Arc::clone(&self.list));
            let begin = |connection| Box::pin(take(link, list, room, wait, connection)) as _;
            let Some(taken) = self.reader.read(until, begin).await else { return Ok(Vec::new()) };
            for body in taken? {
                self.in_hands.insert(self.next, body);
                self.ready.push_back(self.next);
                self.next += 1;
            }
            if self.ready.is_empty() && Instant::now() >= until {
                return Ok(Vec::new());
            }
        }
    }

    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        for receipt in receipts {
            self.in_hands.remove(&number(receipt)?);
        }
        Ok(())
    }

    async fn give_back(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        for receipt in receipts {
            self.going_back.insert(number(receipt)?);
        }
        self.put_back().await
    }

    /// The server never gives them to other consumers.
    async fn keep(&mut self, _: &[Receipt]) -> Result<(), BrokerError> {
        Ok(())
    }
}

impl Drop for ListConsumer {
    fn drop(&mut self) {
        // Without a runtime they cannot be put back, and are lost.
        let Ok(runtime) = Handle::try_current() else { return };
        let reader = mem::replace(&mut self.reader, Reader::new());
        let (link, list) = (Arc::clone(&self.link), Arc::clone(&self.list));
        let in_hands = mem::take(&mut self.in_hands);
        runtime.spawn(async move {
            let (_, taken) = reader.end().await;
            let taken = taken.unwrap_or_default();
            let bodies: Vec<&[u8]> = in_hands.values().chain(&taken).map(|body| &body[..]).collect();
            let _ = put_back(&link, &list, &bodies).await;
        });
    }
}
