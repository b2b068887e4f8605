//! Sends messages in batches.

use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use futures_util::{StreamExt as _, stream};

use crate::{
    BrokerError, Message, Queue,
    sqs::{
        attributes::{self, MESSAGE_BYTES_MAX},
        failure,
        link::{self, Link},
    },
};

/// The most messages in a request, for sending, receiving and settling.
pub(super) const BATCH_MAX: usize = 10;

/// The most requests in flight.
pub(super) const REQUESTS_MAX: usize = 16;

type Outcome = Result<(), BrokerError>;

/// Sends all messages, and returns the outcome of each.
pub(super) async fn publish(link: &Link, queue: &Queue, messages: &[&Message]) -> Vec<Outcome> {
    let (url, is_fifo) = match (link.declare(queue).await, link::is_fifo(queue)) {
        (Ok(url), Ok(is_fifo)) => (url, is_fifo),
        (Err(error), _) | (_, Err(error)) => return vec![Err(error); messages.len()],
    };
    let mut outcomes = vec![Ok(()); messages.len()];
    let batches = batches(messages, is_fifo, &mut outcomes);
    // Requests in parallel would break the order.
    let at_once = if is_fifo { 1 } else { REQUESTS_MAX };
    let failures: Vec<Vec<(usize, BrokerError)>> = stream::iter(batches)
        .map(|batch| send(link, queue, &url, batch))
        .buffer_unordered(at_once)
        .collect()
        .await;
    for (number, failure) in failures.into_iter().flatten() {
        outcomes[number] = Err(failure);
    }
    outcomes
}

/// Sends a message that arrives after this time, in seconds.
pub(super) async fn publish_delayed(link: &Link, queue: &Queue, message: &Message, delay: i32) -> Outcome {
    let url = link.declare(queue).await?;
    let mut entry = attributes::entry(message, 0, link::is_fifo(queue)?)?;
    entry.delay_seconds = (delay > 0).then_some(delay);
    let failures = send(link, queue, &url, vec![entry]).await;
    failures.into_iter().next().map_or(Ok(()), |(_, failure)| Err(failure))
}

/// The entries of requests, within the limits on number and size. Records in `outcomes` the messages that
/// cannot be sent at all.
fn batches(
    messages: &[&Message],
    is_fifo: bool,
    outcomes: &mut [Outcome],
) -> Vec<Vec<SendMessageBatchRequestEntry>> {
    let mut batches: Vec<Vec<SendMessageBatchRequestEntry>> = Vec::new();
    let mut bytes = 0;
    for (number, message) in messages.iter().enumerate() {
        match attributes::entry(message, number, is_fifo) {
            Err(error) => outcomes[number] = Err(error),
            Ok(entry) => {
                let size = attributes::size(message, is_fifo);
                match batches.last_mut() {
                    Some(batch) if batch.len() < BATCH_MAX && bytes + size <= MESSAGE_BYTES_MAX => {
                        batch.push(entry);
                        bytes += size;
                    }
                    _ => {
                        batches.push(vec![entry]);
                        bytes = size;
                    }
                }
            }
        }
    }
    batches
}

/// Sends one request, and returns the messages that were refused. Creates a deleted queue and repeats the
/// request.
async fn send(
    link: &Link,
    queue: &Queue,
    url: &str,
    batch: Vec<SendMessageBatchRequestEntry>,
) -> Vec<(usize, BrokerError)> {
    let numbers: Vec<usize> = batch.iter().map(|entry| number(entry.id())).collect();
    let everything = |error: BrokerError| numbers.iter().map(|number| (*number, error.clone())).collect();
    let client = link.client().await;
    let send = |url: &str, batch| client.send_message_batch().queue_url(url).set_entries(Some(batch)).send();
    let mut answer = send(url, batch.clone()).await.map_err(|error| link.failed(queue, error));
    if matches!(answer, Err(BrokerError::NoQueue(_))) {
        answer = match link.declare(queue).await {
            Ok(url) => send(&url, batch).await.map_err(|error| link.failed(queue, error)),
            Err(error) => Err(error),
        };
    }
    match answer {
        Ok(answer) => {
            let failed = answer.failed().iter();
            failed
                .map(|failed| {
                    (number(failed.id()), failure::of_code(&queue.name, failed.code(), failed.message()))
                })
                .collect()
        }
        Err(error) => everything(error),
    }
}

/// The index of the message of an entry, from the entry's id.
fn number(id: &str) -> usize {
    id.parse().unwrap_or_default()
}
