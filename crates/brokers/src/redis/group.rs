//! A consumer in the group of a stream: its requests over the connection that waits.
//!
//! The server records which consumer has which entry, since when, and how often it was handed out (the
//! *pending entries*). An entry that was neither kept nor settled for too long, or was given back, is claimed
//! by the first consumer that looks.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use redis::{Cmd, FromRedisValue, RedisError, aio::MultiplexedConnection, cmd};
use tokio::time::timeout;

use super::{
    entry::{Entry, delivery},
    error::is_gone,
    link::{RESPONSE_MAX, silence},
    stream,
};
use crate::Delivery;

/// The consumer name for entries that were given back. No consumer has this name.
pub(super) const GIVEN_BACK: &str = "given-back";

/// The idle time recorded for entries that were given back: longer than any consumer may be silent.
const GIVEN_BACK_IDLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A consumer without entries that has been silent for this long is removed: it ended without leaving.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// How many pending entries of this consumer are read beyond its limit of messages in flight.
const LOST_MAX: usize = 1_000;

/// A pending entry of `XPENDING`: its id, its consumer, its idle time in milliseconds, and how often it was
/// handed out.
type Pending = (String, String, u64, u32);

/// A consumer in a group.
pub(super) struct Place {
    pub(super) stream: String,
    pub(super) group: String,
    /// Its unique name: an entry under this name that is not in flight here was lost in transit.
    pub(super) consumer: String,
    pub(super) silent_after: Duration,
    pub(super) in_hands_max: usize,
}

impl Place {
    /// Creates the stream and its group unless they exist. A new group starts with the first entry.
    pub(super) async fn join(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let mut group = cmd("XGROUP");
        group.arg("CREATE").arg(&self.stream).arg(&self.group).arg(0).arg("MKSTREAM");
        for command in [stream::make(&self.stream), group] {
            match ask(connection, &command, Duration::ZERO).await {
                Err(error) if error.code() == Some("BUSYGROUP") => {}
                answer => answer?,
            }
        }
        Ok(())
    }

    /// Reads new entries; waits up to `wait` for the first one.
    pub(super) async fn read(
        &self,
        connection: &mut MultiplexedConnection,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, RedisError> {
        let mut command = cmd("XREADGROUP");
        command.arg("GROUP").arg(&self.group).arg(&self.consumer).arg("COUNT").arg(max);
        // A timeout of 0 would mean to wait for ever.
        if let wait @ 1.. = millis(wait) {
            command.arg("BLOCK").arg(wait);
        }
        command.arg("STREAMS").arg(&self.stream).arg(">");
        let streams: Option<Vec<(String, Vec<Entry>)>> = ask(connection, &command, wait).await?;
        let entries = streams.into_iter().flatten().flat_map(|(_, entries)| entries);
        Ok(entries.filter_map(|(id, fields)| Some(delivery(id, &fields?, 1))).collect())
    }

    /// Claims entries of silent consumers, and those that were given back.
    pub(super) async fn claim_silent(
        &self,
        connection: &mut MultiplexedConnection,
        max: usize,
        in_hands: &HashSet<Box<str>>,
    ) -> Result<Vec<Delivery>, RedisError> {
        let mut command = cmd("XPENDING");
        command.arg(&self.stream).arg(&self.group).arg("IDLE").arg(millis(self.silent_after));
        command.arg("-").arg("+").arg(max + in_hands.len());
        let mut pending: Vec<Pending> = ask(connection, &command, Duration::ZERO).await?;
        pending.retain(|(id, consumer, ..)| *consumer != self.consumer || !in_hands.contains(id.as_str()));
        pending.truncate(max);
        self.claim(connection, &pending, self.silent_after).await
    }

    /// Claims entries that were handed to this consumer in a lost answer.
    pub(super) async fn claim_lost(
        &self,
        connection: &mut MultiplexedConnection,
        max: usize,
        in_hands: &HashSet<Box<str>>,
    ) -> Result<Vec<Delivery>, RedisError> {
        let mut pending: Vec<Pending> = ask(connection, &self.pending(), Duration::ZERO).await?;
        pending.retain(|(id, ..)| !in_hands.contains(id.as_str()));
        pending.truncate(max);
        self.claim(connection, &pending, Duration::ZERO).await
    }

    /// The command that lists the entries of this consumer.
    pub(super) fn pending(&self) -> Cmd {
        let mut command = cmd("XPENDING");
        command.arg(&self.stream).arg(&self.group).arg("-").arg("+");
        command.arg(self.in_hands_max + LOST_MAX).arg(&self.consumer);
        command
    }

    /// Claims those that are still idle for this long: another consumer may have been faster.
    async fn claim(
        &self,
        connection: &mut MultiplexedConnection,
        pending: &[Pending],
        idle: Duration,
    ) -> Result<Vec<Delivery>, RedisError> {
        if pending.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = cmd("XCLAIM");
        command.arg(&self.stream).arg(&self.group).arg(&self.consumer).arg(millis(idle));
        pending.iter().for_each(|(id, ..)| {
            command.arg(id);
        });
        let claimed: Vec<Option<Entry>> = ask(connection, &command, Duration::ZERO).await?;
        let before: HashMap<&str, u32> =
            pending.iter().map(|(id, _, _, times)| (id.as_str(), *times)).collect();
        let claimed = claimed.into_iter().flatten().filter_map(|(id, fields)| {
            let deliveries = before.get(id.as_str()).map_or(1, |times| times.saturating_add(1));
            Some(delivery(id, &fields?, deliveries))
        });
        Ok(claimed.collect())
    }

    /// The command that keeps entries for this consumer.
    pub(super) fn keep(&self, ids: &[&str]) -> Cmd {
        let mut command = cmd("XCLAIM");
        command.arg(&self.stream).arg(&self.group).arg(&self.consumer).arg(0).arg(ids).arg("JUSTID");
        command
    }

    /// The command that gives entries to the next consumer that looks for silent ones.
    pub(super) fn give_back(&self, ids: &[&str]) -> Cmd {
        let mut command = cmd("XCLAIM");
        command.arg(&self.stream).arg(&self.group).arg(GIVEN_BACK).arg(0).arg(ids);
        command.arg("IDLE").arg(millis(GIVEN_BACK_IDLE)).arg("JUSTID");
        command
    }

    /// Gives back all entries of this consumer, and removes it from the group.
    pub(super) async fn leave(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let pending: Vec<Pending> = ask(connection, &self.pending(), Duration::ZERO).await?;
        let ids: Vec<&str> = pending.iter().map(|(id, ..)| id.as_str()).collect();
        if !ids.is_empty() {
            let _: Vec<String> = ask(connection, &self.give_back(&ids), Duration::ZERO).await?;
        }
        // Removing the name also removes the record of its entries: only when there are none.
        if ids.len() < self.in_hands_max + LOST_MAX {
            self.remove(connection, &self.consumer).await?;
        }
        Ok(())
    }

    /// Removes consumers that ended without leaving.
    pub(super) async fn forget_the_gone(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let mut command = cmd("XINFO");
        command.arg("CONSUMERS").arg(&self.stream).arg(&self.group);
        let consumers: Vec<Consumer> = ask(connection, &command, Duration::ZERO).await?;
        for Consumer { name, pending, idle } in consumers {
            if name != GIVEN_BACK && name != self.consumer && pending == 0 && idle > millis(FORGET_AFTER) {
                self.remove(connection, &name).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, connection: &mut MultiplexedConnection, consumer: &str) -> Result<(), RedisError> {
        let mut command = cmd("XGROUP");
        command.arg("DELCONSUMER").arg(&self.stream).arg(&self.group).arg(consumer);
        ask(connection, &command, Duration::ZERO).await
    }

    /// Handles a stream or group that was deleted meanwhile: creates it again, and returns no entries.
    pub(super) async fn or_join(
        &self,
        connection: &mut MultiplexedConnection,
        found: Result<Vec<Delivery>, RedisError>,
    ) -> Result<Vec<Delivery>, RedisError> {
        match found {
            Err(error) if is_gone(&error) => self.join(connection).await.map(|()| Vec::new()),
            found => found,
        }
    }
}

/// A consumer in `XINFO CONSUMERS`.
struct Consumer {
    name: String,
    pending: u64,
    idle: u64,
}

impl FromRedisValue for Consumer {
    fn from_redis_value(value: redis::Value) -> Result<Self, redis::ParsingError> {
        let mut fields = HashMap::<String, redis::Value>::from_redis_value(value)?;
        let mut take = |name: &str| fields.remove(name).unwrap_or(redis::Value::Nil);
        Ok(Self {
            name: String::from_redis_value(take("name"))?,
            pending: u64::from_redis_value(take("pending"))?,
            idle: u64::from_redis_value(take("idle"))?,
        })
    }
}

/// Runs a command that may wait at the server for up to `wait`.
pub(super) async fn ask<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    wait: Duration,
) -> Result<T, RedisError> {
    let limit = wait + RESPONSE_MAX;
    timeout(limit, command.query_async(connection)).await.unwrap_or_else(|_| Err(silence(limit)))
}

fn millis(span: Duration) -> u64 {
    span.as_millis().try_into().unwrap_or(u64::MAX)
}
