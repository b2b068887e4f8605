//! Receives messages, independent of the caller that waits for them.
//!
//! A caller may give up at any time, and messages in transit at that time are hidden from all consumers until
//! their visibility timeout ends. So a request continues, and its messages are kept for the next caller.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName};
use futures_util::{StreamExt as _, stream};
use tokio::task::{JoinError, JoinHandle};

use crate::{
    BrokerError, Queue,
    sqs::{
        link::Link,
        publish::{BATCH_MAX, REQUESTS_MAX},
    },
};

/// The longest wait of a request.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Requests for further messages are made for a fraction of the visibility timeout: the first messages must
/// not become visible while they wait for the others.
const MORE_FRACTION: u32 = 8;

/// A message, and the time since which it is hidden.
pub(super) type Fetched = (Received, Instant);

/// A request in progress.
#[derive(Debug)]
pub(super) struct Fetch(JoinHandle<Result<Vec<Fetched>, BrokerError>>);

impl Fetch {
    /// Starts to receive up to `most` messages, each hidden for `hidden` seconds.
    pub(super) fn begin(link: Link, queue: Queue, most: usize, wait: Duration, hidden: i32) -> Self {
        Self(tokio::spawn(async move { receive(&link, &queue, most, wait, hidden).await }))
    }

    /// Waits for the end. Dropping the future loses nothing.
    pub(super) async fn end(&mut self) -> Result<Vec<Fetched>, BrokerError> {
        let gone = |error: JoinError| BrokerError::Failed(format!("receiving was given up: {error}"));
        (&mut self.0).await.map_err(gone)?
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        // A dropped consumer receives nothing more.
        self.0.abort();
    }
}

async fn receive(
    link: &Link,
    queue: &Queue,
    most: usize,
    wait: Duration,
    hidden: i32,
) -> Result<Vec<Fetched>, BrokerError> {
    let url = link.declare(queue).await?;
    let mut received = request(link, queue, &url, most, wait, hidden).await?;
    // There may be more messages; one request returns at most ten.
    let more = most.saturating_sub(received.len());
    if received.is_empty() || more == 0 {
        return Ok(received);
    }
    let until = Instant::now() + Duration::from_secs(u64::from(hidden.unsigned_abs())) / MORE_FRACTION;
    let counts = (0..more).step_by(BATCH_MAX).map(|begun| (more - begun).min(BATCH_MAX));
    let is_empty = AtomicBool::new(false);
    let ask = async |count| {
        if is_empty.load(Ordering::Relaxed) || Instant::now() >= until {
            return Vec::new();
        }
        // Messages already received are more important than a failed further request.
        let answer = request(link, queue, &url, count, Duration::ZERO, hidden).await.unwrap_or_default();
        is_empty.fetch_or(answer.is_empty(), Ordering::Relaxed);
        answer
    };
    let mut answers = stream::iter(counts.collect::<Vec<_>>()).map(ask).buffer_unordered(REQUESTS_MAX);
    while let Some(answer) = answers.next().await {
        received.extend(answer);
    }
    Ok(received)
}

async fn request(
    link: &Link,
    queue: &Queue,
    url: &str,
    most: usize,
    wait: Duration,
    hidden: i32,
) -> Result<Vec<Fetched>, BrokerError> {
    // In whole seconds. Less than one becomes zero, because the caller cannot wait that long.
    let wait = i32::try_from(wait.min(WAIT_MAX).as_secs()).unwrap_or_default();
    let most = i32::try_from(most.clamp(1, BATCH_MAX)).unwrap_or(1);
    let request = link.client().await.receive_message().queue_url(url);
    let request = request.max_number_of_messages(most).wait_time_seconds(wait).visibility_timeout(hidden);
    let request = request.message_system_attribute_names(MessageSystemAttributeName::All);
    let request = request.message_attribute_names("All");
    let answer = request.send().await.map_err(|error| link.failed(queue, error))?;
    let since = Instant::now();
    Ok(answer.messages.unwrap_or_default().into_iter().map(|received| (received, since)).collect())
}
