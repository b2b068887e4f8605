//! What the Go library machinery keeps in Redis.
//!
//! | key | what it is |
//! |---|---|
//! | the UUID of a task or group | string: its document, with a time to live |
//! | a queue | list of signatures, see `list.rs` and `taken.rs` |
//! | `delayed_tasks` | sorted set of signatures for all queues, by the time at which they are due, in nanoseconds since 1970 |

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use redis::{Value, cmd, pipe};

use super::{address, link::Link};
use crate::{BrokerError, ResultBackend, ResultDocument, SignatureBroker};

/// Signatures for all queues that wait for their time.
pub(super) const DELAYED: &str = "delayed_tasks";

/// The most documents read or written with one request.
const BATCH_MAX: usize = 500;

/// Moves up to 100 due signatures to their queues. One that cannot be parsed goes to the default queue, where its
/// consumer refuses it. `KEYS`: delayed ones. `ARGV`: default queue.
const MOVE_DUE: &str = r"
local time = redis.call('TIME')
local now = string.format('%.0f', (time[1] * 1000000 + time[2]) * 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)
for i = 1, #due do
  local queue = ARGV[1]
  local ok, signature = pcall(cjson.decode, due[i])
  if ok and type(signature) == 'table' and type(signature['RoutingKey']) == 'string' and signature['RoutingKey'] ~= '' then
    queue = signature['RoutingKey']
  end
  redis.call('RPUSH', queue, due[i])
  redis.call('ZREM', KEYS[1], due[i])
end
return #due
";

/// A Redis server that machinery uses.
pub(crate) struct Machinery {
    name: String,
    link: Arc<Link>,
}

impl Machinery {
    /// Makes a client of a server by its URL, without connecting.
    pub(crate) fn open(url: &str) -> Result<Self, BrokerError> {
        let (client, name) = address::read(url)?;
        Ok(Self { name, link: Arc::new(Link::new(client)) })
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }
}

#[async_trait]
impl ResultBackend for Machinery {
    fn name(&self) -> &str {
        &self.name
    }

    async fn read(&self, ids: &[String]) -> Result<Vec<Option<String>>, BrokerError> {
        let mut documents = Vec::with_capacity(ids.len());
        for ids in ids.chunks(BATCH_MAX) {
            let found: Vec<Option<String>> =
                self.link.run(cmd("MGET").arg(ids), ids.first().map_or("", String::as_str)).await?;
            documents.extend(found);
        }
        Ok(documents)
    }

    async fn write(&self, documents: &[ResultDocument]) -> Result<(), BrokerError> {
        for documents in documents.chunks(BATCH_MAX) {
            let mut commands = pipe();
            for ResultDocument { id, text, keep } in documents {
                commands.cmd("SET").arg(id).arg(text);
                if let Some(span) = keep {
                    commands.arg("EX").arg(span.as_secs().max(1));
                }
            }
            all(self.link.run_each(&commands, "of results").await?)?;
        }
        Ok(())
    }

    async fn keep_for(&self, ids: &[String], span: Option<Duration>) -> Result<(), BrokerError> {
        for ids in ids.chunks(BATCH_MAX) {
            let mut commands = pipe();
            for id in ids {
                match span {
                    Some(span) => commands.cmd("EXPIRE").arg(id).arg(span.as_secs().max(1)),
                    None => commands.cmd("PERSIST").arg(id),
                };
            }
            all(self.link.run_each(&commands, "of results").await?)?;
        }
        Ok(())
    }
}

#[async_trait]
impl SignatureBroker for Machinery {
    /// With this kind no signature is lost with its reader.
    fn queue_kind(&self) -> Option<&'static str> {
        Some("reliable-list")
    }

    fn has_exchange(&self) -> bool {
        false
    }

    async fn send(&self, queue: &str, signature: &str, at: Option<i64>) -> Result<(), BrokerError> {
        let command = match at {
            Some(at) => cmd("ZADD").arg(DELAYED).arg(at).arg(signature).to_owned(),
            None => cmd("RPUSH").arg(queue).arg(signature).to_owned(),
        };
        self.link.run::<u64>(&command, queue).await.map(drop)
    }

    async fn move_due(&self, default_queue: &str) -> Result<u64, BrokerError> {
        let command = cmd("EVAL").arg(MOVE_DUE).arg(1).arg(DELAYED).arg(default_queue).to_owned();
        self.link.run(&command, DELAYED).await
    }
}

fn all(answers: Vec<Result<Value, BrokerError>>) -> Result<(), BrokerError> {
    answers.into_iter().try_for_each(|answer| answer.map(drop))
}
