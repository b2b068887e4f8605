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

/// How often at least somebody who waits looks for what others were silent about or gave back.
const LOOK_AROUND_EVERY: Duration = Duration::from_millis(500);

/// Most entries settled with one command.
const SETTLED_MAX: usize = 1_000;

/// A member of a stream's group.
pub(super) struct StreamConsumer {
    link: Arc<Link>,
    place: Arc<Place>,
    reader: Reader<Vec<Delivery>>,
    /// What this consumer has, whether the caller has heard of it or not.
    in_hands: HashSet<Box<str>>,
    /// What was found and did not fit into what the caller wanted.
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

    /// How often this consumer looks around while it waits.
    fn look_around_every(&self) -> Duration {
        (self.place.silent_after / 4).clamp(Duration::from_millis(50), LOOK_AROUND_EVERY)
    }

    /// One read: what was lost on its way here, what others are silent about, and else what is new, waiting for that
    /// until then.
    fn search(&mut self, room: usize, until: Instant) -> Search {
        let now = Instant::now();
        let looks_around = now >= self.looks_around_at;
        if looks_around {
            self.looks_around_at = now + self.look_around_every();
        }
        let wait = until.min(self.looks_around_at).saturating_duration_since(now);
        // The server's are whole milliseconds; the last of them is not to be spent asking again and again.
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

    /// The caller has done with these, whether the server hears of it or not: one that it did not hear of is claimed
    /// again when it has been silent for long enough, perhaps by this consumer.
    fn let_go(&mut self, receipts: &[Receipt]) {
        for receipt in receipts {
            self.in_hands.remove(&receipt.0);
        }
    }

    fn ids(receipts: &[Receipt]) -> impl Iterator<Item = Vec<&str>> {
        receipts.chunks(SETTLED_MAX).map(|chunk| chunk.iter().map(|receipt| &*receipt.0).collect())
    }
}

/// Those of these that the group still has as this consumer's.
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

/// What one read needs to know.
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
                    // The next read begins with what was lost with this connection.
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
        // What was silent for too long may be somebody else's by now, and stays so.
        let here = still_here(&self.link, &self.place, receipts).await?;
        for ids in here.chunks(SETTLED_MAX) {
            let _: Vec<String> = self.link.run(&self.place.keep(ids), &self.place.stream).await?;
        }
        Ok(())
    }
}

impl Drop for StreamConsumer {
    fn drop(&mut self) {
        // Without a runtime nobody can be told: others claim what this one has once it was silent for long enough.
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
