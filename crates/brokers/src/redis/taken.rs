//! Lists whose messages are kept until they are done: the requests of a consumer.
//!
//! A received message moves into the taken list of its consumer. A consumer that was silent for too long is expelled by
//! another one: its messages go back to the front of the queue, and what it says about them later has no effect.
//!
//! | key | what it is |
//! |---|---|
//! | `LIST` | the queue: producers `RPUSH`, and other programs may take from it with `BLPOP` |
//! | `LIST:windlass-taken:CONSUMER` | messages that a consumer has in flight, in the order of the queue |
//! | `LIST:windlass-consumers` | hash: when each consumer was last heard, in milliseconds; negative = expelled then |

use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, RedisError, aio::MultiplexedConnection, cmd};

use super::{group::ask, link::Link};
use crate::BrokerError;

/// An expelled consumer without messages is forgotten after this time. No request of it is under way any more.
const FORGET_AFTER: Duration = Duration::from_secs(3600);

/// The most consumers that are expelled by one request.
const EXPELLED_MAX: usize = 10;

/// Registers the consumer, expels silent ones, and takes messages; none at all if this consumer was expelled.
///
/// `KEYS`: list, consumers. `ARGV`: prefix of taken lists, consumer, number of messages, `silent_after` in ms,
/// `FORGET_AFTER` in ms, `EXPELLED_MAX`, whether it looks for silent ones, -1 if it has messages in flight and else 0.
const TAKE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or ARGV[8])
if known < 0 then return false end
redis.call('HSET', KEYS[2], ARGV[2], now)
if ARGV[7] == '1' then
  local all, left = redis.call('HGETALL', KEYS[2]), tonumber(ARGV[6])
  for i = 1, #all, 2 do
    local heard, taken = tonumber(all[i + 1]), ARGV[1] .. all[i]
    if left > 0 and math.abs(heard) + tonumber(ARGV[4]) < now then
      local moved = redis.call('LRANGE', taken, 0, -1)
      for j = #moved, 1, -1 do redis.call('LPUSH', KEYS[1], moved[j]) end
      redis.call('DEL', taken)
      if heard >= 0 then
        redis.call('HSET', KEYS[2], all[i], -now)
        left = left - 1
      elseif #moved == 0 and -heard + tonumber(ARGV[5]) < now then
        redis.call('HDEL', KEYS[2], all[i])
      end
    end
  end
end
local found = redis.call('LPOP', KEYS[1], ARGV[3])
if not found then return {} end
for i = 1, #found do redis.call('RPUSH', ARGV[1] .. ARGV[2], found[i]) end
return found
";

/// What all requests about taken messages begin with: an expelled consumer has none.
///
/// `KEYS`: list, consumers, taken list. `ARGV`: consumer, then those of the request.
const UNLESS_EXPELLED: &str = r"
local heard = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or '-1')
if heard < 0 then return 0 end
";

/// Drops the first `ARGV[2]` taken messages.
const DROP_FIRST: &str = "redis.call('LTRIM', KEYS[3], ARGV[2], -1) return 1";

/// Drops these taken messages.
const DROP: &str = "for i = 2, #ARGV do redis.call('LREM', KEYS[3], 1, ARGV[i]) end return 1";

/// Puts these taken messages back to the front of the queue. The last one is the first argument.
const PUT_BACK: &str = "for i = 2, #ARGV do
  if redis.call('LREM', KEYS[3], 1, ARGV[i]) > 0 then redis.call('LPUSH', KEYS[1], ARGV[i]) end
end
return 1";

/// Says that the consumer still works on its messages.
const KEEP: &str = "local time = redis.call('TIME')
redis.call('HSET', KEYS[2], ARGV[1], time[1] * 1000 + math.floor(time[2] / 1000))
return 1";

/// Puts all taken messages back to the front of the queue, and expels the consumer: what a request that is still under
/// way takes goes back as well.
const LEAVE: &str = "local moved = redis.call('LRANGE', KEYS[3], 0, -1)
for j = #moved, 1, -1 do redis.call('LPUSH', KEYS[1], moved[j]) end
redis.call('DEL', KEYS[3])
local time = redis.call('TIME')
redis.call('HSET', KEYS[2], ARGV[1], -(time[1] * 1000 + math.floor(time[2] / 1000)))
return 1";

/// What stands between a list and a consumer in the name of what that has taken.
pub(super) const TAKEN: &str = ":windlass-taken:";

/// The key of the consumers of a list.
pub(super) fn consumers_of(list: &str) -> String {
    format!("{list}:windlass-consumers")
}

/// A consumer of a list, as the server knows it.
pub(super) struct Taken {
    pub(super) list: String,
    /// Unique among all consumers, now and later.
    consumer: String,
    silent_after: Duration,
}

impl Taken {
    pub(super) fn new(list: &str, consumer: String, silent_after: Duration) -> Self {
        Self { list: list.to_owned(), consumer, silent_after }
    }

    fn consumers(&self) -> String {
        consumers_of(&self.list)
    }

    fn prefix(&self) -> String {
        format!("{}{TAKEN}", self.list)
    }

    fn key(&self) -> String {
        format!("{}{}", self.prefix(), self.consumer)
    }

    /// Takes up to `max` messages, at once. `None` if this consumer was expelled. `has_some`: it has messages in flight.
    pub(super) async fn take(
        &self,
        connection: &mut MultiplexedConnection,
        max: usize,
        looks_around: bool,
        has_some: bool,
    ) -> Result<Option<Vec<Bytes>>, RedisError> {
        let mut command = cmd("EVAL");
        command.arg(TAKE).arg(2).arg(&self.list).arg(self.consumers());
        command.arg(self.prefix()).arg(&self.consumer).arg(max);
        command.arg(millis(self.silent_after)).arg(millis(FORGET_AFTER)).arg(EXPELLED_MAX);
        command.arg(u8::from(looks_around)).arg(if has_some { -1 } else { 0 });
        ask(connection, &command, Duration::ZERO).await
    }

    /// Waits for one message and takes it.
    pub(super) async fn wait(
        &self,
        connection: &mut MultiplexedConnection,
        wait: Duration,
    ) -> Result<Option<Bytes>, RedisError> {
        let mut command = cmd("BLMOVE");
        command.arg(&self.list).arg(self.key()).arg("LEFT").arg("RIGHT").arg(wait.as_secs_f64().max(0.001));
        ask(connection, &command, wait).await
    }

    /// Drops the first `count` messages: they are done. `false` if this consumer was expelled.
    pub(super) async fn drop_first(&self, link: &Link, count: usize) -> Result<bool, BrokerError> {
        let mut command = self.script(DROP_FIRST);
        command.arg(count);
        link.run(&command, &self.list).await
    }

    /// Drops messages: they are done. `false` if this consumer was expelled.
    pub(super) async fn drop_these(&self, link: &Link, bodies: &[Bytes]) -> Result<bool, BrokerError> {
        let mut command = self.script(DROP);
        bodies.iter().for_each(|body| {
            command.arg(&body[..]);
        });
        link.run(&command, &self.list).await
    }

    /// Puts messages back, in their order. `false` if this consumer was expelled.
    pub(super) async fn put_back(&self, link: &Link, bodies: &[Bytes]) -> Result<bool, BrokerError> {
        let mut command = self.script(PUT_BACK);
        bodies.iter().rev().for_each(|body| {
            command.arg(&body[..]);
        });
        link.run(&command, &self.list).await
    }

    /// Keeps the messages. `false` if this consumer was expelled.
    pub(super) async fn keep(&self, link: &Link) -> Result<bool, BrokerError> {
        link.run(&self.script(KEEP), &self.list).await
    }

    /// Puts all messages back, and ends.
    pub(super) async fn leave(&self, link: &Link) -> Result<bool, BrokerError> {
        link.run(&self.script(LEAVE), &self.list).await
    }

    fn script(&self, request: &str) -> Cmd {
        let mut command = cmd("EVAL");
        command.arg(format!("{UNLESS_EXPELLED}{request}")).arg(3);
        command.arg(&self.list).arg(self.consumers()).arg(self.key()).arg(&self.consumer);
        command
    }
}

fn millis(span: Duration) -> u64 {
    span.as_millis().try_into().unwrap_or(u64::MAX)
}
