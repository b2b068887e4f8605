//! Consumes a stream as a member of its group.

use std::{
    collections::{HashSet, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use redis::{RedisError, aio::MultiplexedConnection, pipe};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until},
};

use super::{
    error::explain,
    group::Place,
    link::Link,
    reader::{Read, Reader},
};
use crate::{BrokerError, Consumer, Delivery, Receipt};

/// The longest interval at which a waiting consumer looks for entries of silent consumers and for returned
/// ones.
const LOOK_AROUND_EVERY: Duration = Duration::from_millis(500);

/// The most entries settled with one command.
const SETTLED_MAX: usize = 1_000;

/// A member of a stream's group.
pub(super) struct StreamConsumer {
    link: Arc<Link>,
    place: Arc<Place>,
    reader: Reader<Vec<Delivery>>,
    /// The entries of this consumer, whether the caller has seen them or not.
    in_hands: HashSet<Box<str>>,
    /// Entries that did not fit into the caller's limit.
    ready: VecDeque<Delivery>,
    looks_around_at: Instant,
}

impl StreamConsumer {
    pub(super) fn new(link: Arc<Link>, place: Place) -> Self {
        Self {
            link,
            place: Arc::new(place),
            reader: Reader::new(),
            in_hands: HashSet::new(),
            ready: VecDeque::new(),
            looks_around_at: Instant::now(),
        }
    }

    /// The interval at which this consumer looks around while it waits.
    fn look_around_every(&self) -> Duration {
        (self.place.silent_after / 4).clamp(Duration::from_millis(50), LOOK_AROUND_EVERY)
    }

    /// One read: entries lost in transit, then entries of silent consumers, otherwise new ones, waiting for
    /// those until `until`.
    fn search(&mut self, room: usize, until: Instant) -> Search {
        let now = Instant::now();
        let looks_around = now >= self.looks_around_at;
        if looks_around {
            self.looks_around_at = now + self.look_around_every();
        }
        let wait = until.min(self.looks_around_at).saturating_duration_since(now);
        // The server counts whole milliseconds; rounding up avoids a busy loop in the last one.
        let wait = wait + Duration::from_micros(if wait.is_zero() { 0 } else { 999 });
        Search {
            link: Arc::clone(&self.link),
            place: Arc::clone(&self.place),
            room,
            wait,
            looks_around,
            in_hands: if looks_around { self.in_hands.clone() } else { HashSet::new() },
        }
    }

    fn hand_out(&mut self, max: usize) -> Vec<Delivery> {
        self.ready.drain(..self.ready.len().min(max)).collect()
    }

    /// The caller has finished these, whether the server learns of it or not: an entry that the server does
    /// not know of is claimed again after its silence limit, perhaps by this consumer.
    fn let_go(&mut self, receipts: &[Receipt]) {
        for receipt in receipts {
            self.in_hands.remove(&receipt.0);
        }
    }

    fn ids(receipts: &[Receipt]) -> impl Iterator<Item = Vec<&str>> {
        receipts.chunks(SETTLED_MAX).map(|chunk| chunk.iter().map(|receipt| &*receipt.0).collect())
    }
}

/// Those of these entries that the group still assigns to this consumer.
async fn still_here<'r>(
    link: &Link,
    place: &Place,
    receipts: &'r [Receipt],
) -> Result<Vec<&'r str>, BrokerError> {
    let pending: Vec<(String, String, u64, u32)> = link.run(&place.pending(), &place.stream).await?;
    let pending: HashSet<String> = pending.into_iter().map(|(id, ..)| id).collect();
    let ids = receipts.iter().map(|receipt| &*receipt.0);
    Ok(ids.filter(|id| pending.contains(*id)).collect())
}

/// The input of one read.
struct Search {
    link: Arc<Link>,
    place: Arc<Place>,
    room: usize,
    wait: Duration,
    looks_around: bool,
    in_hands: HashSet<Box<str>>,
}

impl Search {
    async fn run(self, connection: Option<MultiplexedConnection>) -> Read<Vec<Delivery>> {
        let is_new = connection.is_none();
        let connected = match connection {
            Some(connection) => Ok(connection),
            None => self.link.connect_to_wait().await,
        };
        let (connection, found) = match connected {
            Ok(mut connection) => match self.find(&mut connection, is_new).await {
                Ok(found) => (Some(connection), Ok(found)),
                Err(error) => (None, Err(error)),
            },
            Err(error) => (None, Err(error)),
        };
        (connection, found.map_err(|error| explain(&error, &self.place.stream)))
    }

    async fn find(
        &self,
        connection: &mut MultiplexedConnection,
        is_new: bool,
    ) -> Result<Vec<Delivery>, RedisError> {
        let place = &self.place;
        if is_new {
            place.join(connection).await?;
            place.forget_the_gone(connection).await?;
            let lost = place.claim_lost(connection, self.room, &self.in_hands).await?;
            if !lost.is_empty() {
                return Ok(lost);
            }
        }
        if self.looks_around {
            let silent = place.claim_silent(connection, self.room, &self.in_hands).await;
            let silent = place.or_join(connection, silent).await?;
            if !silent.is_empty() {
                return Ok(silent);
            }
        }
        let new = place.read(connection, self.room, self.wait).await;
        place.or_join(connection, new).await
    }
}

#[async_trait]
impl Consumer for StreamConsumer {
    async fn receive(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, BrokerError> {
        let until = Instant::now() + wait;
        loop {
            let ready = self.hand_out(max);
            if !ready.is_empty() {
                return Ok(ready);
            }
            let room = max.min(self.place.in_hands_max.saturating_sub(self.in_hands.len()));
            if room == 0 {
                sleep_until(until).await;
                return Ok(Vec::new());
            }
            let search = self.search(room, until);
            let found = match self.reader.read(until, |connection| Box::pin(search.run(connection))).await {
                Some(Ok(found)) => found,
                Some(Err(error)) => {
                    // The next read starts with the entries lost with this connection.
                    self.looks_around_at = Instant::now();
                    return Err(error);
                }
                None => return Ok(Vec::new()),
            };
            self.in_hands.extend(found.iter().map(|delivery| delivery.receipt.0.clone()));
            self.ready.extend(found);
            if self.ready.is_empty() && Instant::now() >= until {
                return Ok(Vec::new());
            }
        }
    }

    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        self.let_go(receipts);
        for ids in Self::ids(receipts) {
            let mut both = pipe();
            both.atomic();
            both.cmd("XACK").arg(&self.place.stream).arg(&self.place.group).arg(&ids);
            both.cmd("XDEL").arg(&self.place.stream).arg(&ids);
            self.link.run_together(&both, &self.place.stream).await?;
        }
        Ok(())
    }

    async fn give_back(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        self.let_go(receipts);
        let here = still_here(&self.link, &self.place, receipts).await?;
        for ids in here.chunks(SETTLED_MAX) {
            let _: Vec<String> = self.link.run(&self.place.give_back(ids), &self.place.stream).await?;
        }
        Ok(())
    }

    async fn keep(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        // An entry that was silent for too long may belong to another consumer by now: leave it there.
        let here = still_here(&self.link, &self.place, receipts).await?;
        for ids in here.chunks(SETTLED_MAX) {
            let _: Vec<String> = self.link.run(&self.place.keep(ids), &self.place.stream).await?;
        }
        Ok(())
    }
}

impl Drop for StreamConsumer {
    fn drop(&mut self) {
        // Without a runtime nothing can be sent: other consumers claim these entries after the silence limit.
        let Ok(runtime) = Handle::try_current() else { return };
        let reader = mem::replace(&mut self.reader, Reader::new());
        let place = Arc::clone(&self.place);
        runtime.spawn(async move {
            if let (Some(mut connection), _) = reader.end().await {
                let _ = place.leave(&mut connection).await;
            }
        });
    }
}
