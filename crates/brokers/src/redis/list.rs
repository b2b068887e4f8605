//! Queues that are lists, for consumers that remove messages at once: a consumer that dies loses them.

use bytes::Bytes;
use redis::{Value, cmd, pipe};

use super::{MESSAGE_BYTES_MAX, link::Link};
use crate::{BrokerError, Delivery, InFlight, Look, Message, Receipt};

/// The most messages appended with one command, and the approximate number of bytes.
const BATCH_MESSAGES: usize = 500;
const BATCH_BYTES: usize = 4 << 20;

/// The key next to a list that shows whether all data was lost. An empty list itself does not exist in Redis.
fn identity_key(list: &str) -> String {
    format!("{list}:windlass-identity")
}

/// Declares the list, unless the key has another type.
pub(super) async fn declare(link: &Link, list: &str) -> Result<(), BrokerError> {
    link.run::<u64>(cmd("LLEN").arg(list), list).await?;
    let mut remember = cmd("SET");
    remember.arg(identity_key(list)).arg(fastrand::u64(..)).arg("NX");
    link.run(&remember, list).await
}

/// Appends the bodies of messages in batches, in order; lists have no headers.
pub(super) async fn publish(link: &Link, list: &str, messages: &[Message]) -> Vec<Result<(), BrokerError>> {
    let too_large = |message: &&Message| message.body.len() > MESSAGE_BYTES_MAX;
    let mut outcomes: Vec<Result<(), BrokerError>> = Vec::with_capacity(messages.len());
    let mut rest = messages;
    while let Some(first) = rest.first() {
        if too_large(&first) {
            let bytes = first.body.len();
            outcomes.push(Err(BrokerError::TooLarge { bytes, limit: MESSAGE_BYTES_MAX }));
            rest = &rest[1..];
            continue;
        }
        let mut bytes = 0;
        let fits = rest.iter().take(BATCH_MESSAGES).take_while(|message| {
            bytes += message.body.len();
            !too_large(message) && bytes <= BATCH_BYTES
        });
        let (batch, behind) = rest.split_at(fits.count().max(1));
        rest = behind;
        match append(link, list, batch).await {
            Ok(()) => outcomes.resize(outcomes.len() + batch.len(), Ok(())),
            Err(error) => {
                // Later messages must not overtake the one to be sent again.
                outcomes.resize(messages.len(), Err(error));
                break;
            }
        }
    }
    outcomes
}

async fn append(link: &Link, list: &str, messages: &[Message]) -> Result<(), BrokerError> {
    let mut commands = pipe();
    commands.cmd("SET").arg(identity_key(list)).arg(fastrand::u64(..)).arg("NX");
    commands.cmd("RPUSH").arg(list);
    for message in messages {
        commands.arg(&message.body[..]);
    }
    link.run_each(&commands, list).await?.into_iter().try_for_each(|answer| answer.map(drop))
}

/// Puts bodies at the front, in order.
pub(super) async fn put_back(link: &Link, list: &str, bodies: &[&[u8]]) -> Result<(), BrokerError> {
    if bodies.is_empty() {
        return Ok(());
    }
    let mut command = cmd("LPUSH");
    command.arg(list);
    // Each body is put before the previous one.
    bodies.iter().rev().for_each(|body| {
        command.arg(*body);
    });
    link.run::<u64>(&command, list).await.map(drop)
}

/// A message of a list. There is only the body, so there is no id that would stay the same after a redelivery. Its
/// receipt is the number that the consumer has given it.
pub(super) fn delivery(number: u64, body: Bytes) -> Delivery {
    let message = Message::new("", "", body);
    Delivery { message, receipt: Receipt(number.to_string().into()), deliveries: None }
}

/// The number in a receipt.
pub(super) fn number(receipt: &Receipt) -> Result<u64, BrokerError> {
    let invalid = |_| BrokerError::Invalid(format!("{} is not a receipt of this consumer", receipt.0));
    receipt.0.parse().map_err(invalid)
}

/// Counts the messages in the list.
pub(super) async fn look(link: &Link, list: &str) -> Result<Look, BrokerError> {
    let mut questions = pipe();
    questions.cmd("LLEN").arg(list);
    questions.cmd("GET").arg(identity_key(list));
    let mut answers = link.run_each(&questions, list).await?.into_iter();
    let (Some(length), Some(identity)) = (answers.next(), answers.next()) else {
        return Err(BrokerError::Failed("fewer answers than questions".to_owned()));
    };
    let messages = match length? {
        Value::Int(length) => length.cast_unsigned(),
        other => return Err(BrokerError::Failed(format!("unexpected answer: {other:?}"))),
    };
    let identity = match identity? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ if messages == 0 => return Err(BrokerError::NoQueue(list.to_owned())),
        _ => None,
    };
    Ok(Look { messages: Some(messages), in_flight: InFlight::NotCounted, identity })
}
