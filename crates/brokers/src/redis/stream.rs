//! Queues that are streams: creating, filling and observing them. `stream_consumer.rs` consumes them. Topics
//! are filled in the same way.

use std::{
    collections::HashMap,
    time::{SystemTime, UNIX_EPOCH},
};

use redis::{Cmd, FromRedisValue as _, RedisError, Value, cmd, pipe};

use super::{
    MESSAGE_BYTES_MAX,
    entry::{Kept, add, size},
    link::Link,
};
use crate::{BrokerError, InFlight, Look, Message, Positions, Progress};

/// An unused group. It is created and deleted together with the stream, and its position is a random number:
/// another position means that the stream was created again.
const IDENTITY: &str = "windlass-identity";

/// The most messages, and the approximate number of bytes, sent before an answer is awaited.
const BATCH_MESSAGES: usize = 500;
const BATCH_BYTES: usize = 4 << 20;

/// Creates the stream unless it exists.
pub(super) async fn declare(link: &Link, stream: &str) -> Result<(), BrokerError> {
    match link.try_run::<()>(&make(stream)).await {
        Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
        answer => answer.map_err(|error| super::error::explain(&error, stream)),
    }
}

/// The command that creates a stream with its identity. For an existing one the answer is `BUSYGROUP`.
pub(super) fn make(stream: &str) -> Cmd {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let identity = format!("{}-{}", since.as_millis(), fastrand::u32(..));
    let mut command = cmd("XGROUP");
    command.arg("CREATE").arg(stream).arg(IDENTITY).arg(identity).arg("MKSTREAM");
    command
}

/// Sends messages in batches, in order.
pub(super) async fn publish(
    link: &Link,
    stream: &str,
    kept: Kept,
    messages: &[&Message],
) -> Vec<Result<(), BrokerError>> {
    let mut outcomes = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while !rest.is_empty() {
        let (batch, behind) = rest.split_at(batch_length(rest));
        rest = behind;
        match publish_batch(link, stream, kept, batch).await {
            Ok(batch) => outcomes.extend(batch),
            Err(error) => {
                // Later messages must not overtake the one to be sent again.
                outcomes.resize(messages.len(), Err(error));
                break;
            }
        }
    }
    outcomes
}

/// How many of these messages go into one batch: at least one.
fn batch_length(messages: &[&Message]) -> usize {
    let mut bytes = 0;
    let fits = messages.iter().take(BATCH_MESSAGES).take_while(|message| {
        bytes += size(message);
        bytes <= BATCH_BYTES
    });
    fits.count().max(1)
}

async fn publish_batch(
    link: &Link,
    stream: &str,
    kept: Kept,
    messages: &[&Message],
) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
    let mut outcomes: Vec<Result<(), BrokerError>> = Vec::with_capacity(messages.len());
    let mut commands = Vec::with_capacity(messages.len());
    for (position, message) in messages.iter().enumerate() {
        let bytes = size(message);
        let command = match bytes {
            0..=MESSAGE_BYTES_MAX => add(stream, message, kept),
            _ => Err(BrokerError::TooLarge { bytes, limit: MESSAGE_BYTES_MAX }),
        };
        outcomes.push(command.map(|command| commands.push((position, command))));
    }
    let missing = send(link, stream, &commands, &mut outcomes).await?;
    if !missing.is_empty() {
        declare(link, stream).await?;
        commands.retain(|(position, _)| missing.contains(position));
        for position in send(link, stream, &commands, &mut outcomes).await? {
            outcomes[position] = Err(BrokerError::NoQueue(stream.to_owned()));
        }
    }
    Ok(outcomes)
}

/// Sends commands, records the outcome of each, and returns the positions of those that found no stream.
async fn send(
    link: &Link,
    stream: &str,
    commands: &[(usize, Cmd)],
    outcomes: &mut [Result<(), BrokerError>],
) -> Result<Vec<usize>, BrokerError> {
    if commands.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = pipe();
    for (_, command) in commands {
        pipeline.add_command(command.clone());
    }
    let mut missing = Vec::new();
    for ((position, _), answer) in commands.iter().zip(link.run_each(&pipeline, stream).await?) {
        match answer {
            Ok(Value::Nil) => missing.push(*position),
            answer => outcomes[*position] = answer.map(drop),
        }
    }
    Ok(missing)
}

/// Counts the entries of the stream: acknowledged ones are deleted, so those in flight count.
pub(super) async fn look(link: &Link, stream: &str) -> Result<Look, BrokerError> {
    let mut questions = pipe();
    questions.cmd("XLEN").arg(stream);
    questions.cmd("XINFO").arg("GROUPS").arg(stream);
    let mut answers = link.run_each(&questions, stream).await?.into_iter();
    let (Some(length), Some(groups)) = (answers.next(), answers.next()) else {
        return Err(BrokerError::Failed("fewer answers than questions".to_owned()));
    };
    let messages = u64::from_redis_value(length?).map_err(|error| unexpected(&error.into()))?;
    let identity = identity(groups?).map_err(|error| unexpected(&error))?;
    Ok(Look { messages: Some(messages), in_flight: InFlight::Counted, identity })
}

/// Settled entries are deleted, so the first remaining one is the first unsettled one.
pub(super) async fn progress(link: &Link, stream: &str) -> Result<Progress, BrokerError> {
    let mut question = cmd("XINFO");
    question.arg("STREAM").arg(stream);
    let answer: HashMap<String, Value> = link.run(&question, stream).await?;
    let positions = positions(answer).map_err(|error| unexpected(&error))?;
    Ok(Progress::Positions([(0, positions)].into()))
}

fn positions(mut stream: HashMap<String, Value>) -> Result<Positions, RedisError> {
    let last = String::from_redis_value(stream.remove("last-generated-id").unwrap_or(Value::Nil))?;
    let end = position(&last) + 1;
    let settled = match stream.remove("first-entry") {
        Some(Value::Array(entry)) => match entry.into_iter().next() {
            Some(id) => position(&String::from_redis_value(id)?),
            None => end,
        },
        _ => end,
    };
    Ok(Positions { settled, end })
}

/// An entry's id `MILLISECONDS-COUNT` as a number.
fn position(id: &str) -> u128 {
    let (since, count) = id.split_once('-').unwrap_or((id, "0"));
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    u128::from(number(since)) << 64 | u128::from(number(count))
}

fn identity(groups: Value) -> Result<Option<String>, RedisError> {
    for mut group in Vec::<HashMap<String, Value>>::from_redis_value(groups)? {
        if let (Some(name), Some(position)) = (group.remove("name"), group.remove("last-delivered-id"))
            && String::from_redis_value(name)? == IDENTITY
        {
            return Ok(Some(String::from_redis_value(position)?));
        }
    }
    Ok(None)
}

fn unexpected(error: &RedisError) -> BrokerError {
    BrokerError::Failed(format!("unexpected answer: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_limits_and_are_never_empty() {
        let message = |bytes: usize| Message::new("", "", vec![0; bytes]);
        let (small, full, too_large) = (&message(1), &message(BATCH_BYTES), &message(BATCH_BYTES + 1));
        assert_eq!(batch_length(&[too_large, small]), 1);
        assert_eq!(batch_length(&[small, full, small]), 1);
        assert_eq!(batch_length(&[small; BATCH_MESSAGES + 1]), BATCH_MESSAGES);
    }
}
