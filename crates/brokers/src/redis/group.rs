//! A consumer's place in the group of a stream: what it asks of the server over the connection that waits.
//!
//! The server remembers who has which entry, since when, and how often it was handed out (the *pending entries*). An
//! entry that was neither kept nor settled for long enough, or was given back, is claimed by whoever looks first.

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

/// In whose name entries wait that were given back. Nobody consumes as this.
pub(super) const GIVEN_BACK: &str = "given-back";

/// What was given back has been idle for so long, as far as the server knows: longer than anybody may be silent.
const GIVEN_BACK_IDLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A consumer that has nothing and was not heard of for so long is removed: it ended without saying so.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// Pending entries of this consumer that are looked at beyond those it may have in hands.
const LOST_MAX: usize = 1_000;

/// A pending entry as `XPENDING` tells: its id, who has it, for how many milliseconds, and how often it was handed out.
type Pending = (String, String, u64, u32);

/// A consumer's place in a group.
pub(super) struct Place {
    pub(super) stream: String,
    pub(super) group: String,
    /// Its name: nobody else has it, so what is in its name and not in its hands was lost on the way to it.
    pub(super) consumer: String,
    pub(super) silent_after: Duration,
    pub(super) in_hands_max: usize,
}

impl Place {
    /// Makes the stream and its group unless they are there. A new group begins with the first entry.
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

    /// New entries, waiting for the first one at most so long.
    pub(super) async fn read(
        &self,
        connection: &mut MultiplexedConnection,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, RedisError> {
        let mut command = cmd("XREADGROUP");
        command.arg("GROUP").arg(&self.group).arg(&self.consumer).arg("COUNT").arg(max);
        // To wait for no time at all means to wait for ever.
        if let wait @ 1.. = millis(wait) {
            command.arg("BLOCK").arg(wait);
        }
        command.arg("STREAMS").arg(&self.stream).arg(">");
        let streams: Option<Vec<(String, Vec<Entry>)>> = ask(connection, &command, wait).await?;
        let entries = streams.into_iter().flatten().flat_map(|(_, entries)| entries);
        Ok(entries.filter_map(|(id, fields)| Some(delivery(id, &fields?, 1))).collect())
    }

    /// Entries of which nobody was heard for too long, and those that were given back.
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

    /// Entries that were handed to this consumer with an answer that never came.
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

    /// Asks for what this consumer has.
    pub(super) fn pending(&self) -> Cmd {
        let mut command = cmd("XPENDING");
        command.arg(&self.stream).arg(&self.group).arg("-").arg("+");
        command.arg(self.in_hands_max + LOST_MAX).arg(&self.consumer);
        command
    }

    /// Those that still have been idle for so long: somebody else may have been quicker.
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

    /// The command that says of entries that this consumer still has them.
    pub(super) fn keep(&self, ids: &[&str]) -> Cmd {
        let mut command = cmd("XCLAIM");
        command.arg(&self.stream).arg(&self.group).arg(&self.consumer).arg(0).arg(ids).arg("JUSTID");
        command
    }

    /// The command that gives entries to whoever looks for silent ones next.
    pub(super) fn give_back(&self, ids: &[&str]) -> Cmd {
        let mut command = cmd("XCLAIM");
        command.arg(&self.stream).arg(&self.group).arg(GIVEN_BACK).arg(0).arg(ids);
        command.arg("IDLE").arg(millis(GIVEN_BACK_IDLE)).arg("JUSTID");
        command
    }

    /// Gives back all this consumer has, and removes it from the group.
    pub(super) async fn leave(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let pending: Vec<Pending> = ask(connection, &self.pending(), Duration::ZERO).await?;
        let ids: Vec<&str> = pending.iter().map(|(id, ..)| id.as_str()).collect();
        if !ids.is_empty() {
            let _: Vec<String> = ask(connection, &self.give_back(&ids), Duration::ZERO).await?;
        }
        // With its name would go the memory of what it has: only when that is nothing.
        if ids.len() < self.in_hands_max + LOST_MAX {
            self.remove(connection, &self.consumer).await?;
        }
        Ok(())
    }

    /// Removes consumers that ended without saying so.
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

    /// Runs one of the above, where the stream or its group may have been deleted under us: then they are made again,
    /// and nothing is found.
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

/// A consumer as `XINFO CONSUMERS` tells.
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

/// Runs a command that may wait for so long at the server.
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
