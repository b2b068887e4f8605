//! Hands out messages that have arrived, and settles them.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use aws_sdk_sqs::{
    Client,
    types::{
        BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
    },
};
use futures_util::{StreamExt as _, stream};
use tokio::{runtime::Handle, time};

use crate::{
    BrokerError, Consumer, ConsumerSettings, Delivery, Queue, Receipt,
    sqs::{
        attributes::{delivery, incomplete},
        failure,
        fetch::{Fetch, Fetched},
        link::Link,
        publish::{BATCH_MAX, REQUESTS_MAX},
    },
};

/// The longest visibility timeout, in seconds: 12 hours.
const HIDDEN_MAX: u64 = 43_200;

/// The time limit for a request that does not wait for messages.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A consumer of one queue.
#[derive(Debug)]
pub(super) struct QueueConsumer {
    link: Link,
    client: Client,
    queue: Queue,
    in_hands_max: usize,
    /// The visibility timeout in seconds.
    hidden: i32,
    fetch: Option<Fetch>,
    /// Messages that arrived after the caller had stopped waiting.
    waiting: VecDeque<Fetched>,
    /// Messages handed out, and the ends of their visibility timeouts.
    in_hands: HashMap<Receipt, Instant>,
}

/// How to settle messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settling {
    Delete,
    /// Makes them visible to others in this number of seconds.
    Show(i32),
}

impl QueueConsumer {
    pub(super) async fn new(link: Link, queue: Queue, settings: &ConsumerSettings) -> Self {
        let seconds = settings.silent_after.as_millis().div_ceil(1000).clamp(1, u128::from(HIDDEN_MAX));
        Self {
            client: link.client().await.clone(),
            link,
            queue,
            in_hands_max: settings.in_hands_max.max(1),
            hidden: i32::try_from(seconds).unwrap_or(i32::MAX),
            fetch: None,
            waiting: VecDeque::new(),
            in_hands: HashMap::new(),
        }
    }

    fn hidden_for(&self) -> Duration {
        Duration::from_secs(u64::from(self.hidden.unsigned_abs()))
    }

    /// How many more messages it may have in flight.
    fn room(&mut self) -> usize {
        // A visible message belongs to another consumer.
        let now = Instant::now();
        self.in_hands.retain(|_, until| *until > now);
        self.in_hands_max.saturating_sub(self.in_hands.len())
    }

    /// Hands out waiting messages.
    fn hand_out(&mut self, most: usize) -> Vec<Delivery> {
        let hidden_for = self.hidden_for();
        let mut handed_out = Vec::new();
        while handed_out.len() < most {
            let Some((received, since)) = self.waiting.pop_front() else { break };
            // A message that has waited for long is nearly visible again: it comes back by itself.
            if since.elapsed() * 2 > hidden_for {
                continue;
            }
            let Some(delivery) = delivery(received) else { continue };
            self.in_hands.insert(delivery.receipt.clone(), since + hidden_for);
            handed_out.push(delivery);
        }
        handed_out
    }

    async fn settle(&self, receipts: &[Receipt], settling: Settling) -> Result<(), BrokerError> {
        let url = self.link.find(&self.queue).await?;
        settle(&self.client, &self.link, &self.queue, &url, receipts, settling).await
    }
}

#[async_trait]
impl Consumer for QueueConsumer {
    async fn receive(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, BrokerError> {
        let until = time::Instant::now() + wait;
        loop {
            let most = max.min(self.room());
            if most == 0 {
                time::sleep_until(until).await;
                return Ok(Vec::new());
            }
            let handed_out = self.hand_out(most);
            let left = until.saturating_duration_since(time::Instant::now());
            if !handed_out.is_empty() {
                return Ok(handed_out);
            }
            let (link, queue, hidden) = (self.link.clone(), self.queue.clone(), self.hidden);
            let is_new = self.fetch.is_none();
            let fetch = self.fetch.get_or_insert_with(|| Fetch::begin(link, queue, most, left, hidden));
            // Wait for the answer of a new request, even if there is no time to wait for messages.
            let patience = if is_new { left.max(ANSWER_MAX) } else { left };
            let Ok(fetched) = time::timeout(patience, fetch.end()).await else { return Ok(Vec::new()) };
            self.fetch = None;
            let received = fetched?;
            let is_over = received.is_empty() && left < Duration::from_secs(1);
            self.waiting.extend(received);
            if is_over {
                time::sleep_until(until).await;
                return Ok(Vec::new());
            }
        }
    }

    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        self.settle(receipts, Settling::Delete).await?;
        for receipt in receipts {
            self.in_hands.remove(receipt);
        }
        Ok(())
    }

    async fn give_back(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        for receipt in receipts {
            self.in_hands.remove(receipt);
        }
        self.settle(receipts, Settling::Show(0)).await
    }

    async fn keep(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let until = Instant::now() + self.hidden_for();
        self.settle(receipts, Settling::Show(self.hidden)).await?;
        for receipt in receipts {
            self.in_hands.insert(receipt.clone(), until);
        }
        Ok(())
    }
}

impl Drop for QueueConsumer {
    fn drop(&mut self) {
        // Without a runtime they come back after their visibility timeout.
        let Ok(runtime) = Handle::try_current() else { return };
        let waiting = self.waiting.drain(..).filter_map(|(received, _)| delivery(received));
        let mut receipts: Vec<Receipt> = waiting.map(|delivery| delivery.receipt).collect();
        receipts.extend(self.in_hands.drain().map(|(receipt, _)| receipt));
        if receipts.is_empty() {
            return;
        }
        let (client, link, queue) = (self.client.clone(), self.link.clone(), self.queue.clone());
        runtime.spawn(async move {
            if let Ok(url) = link.find(&queue).await {
                // No caller is left to report an error to.
                let _ = settle(&client, &link, &queue, &url, &receipts, Settling::Show(0)).await;
            }
        });
    }
}

/// Settles as many as possible, and returns the first error.
async fn settle(
    client: &Client,
    link: &Link,
    queue: &Queue,
    url: &str,
    receipts: &[Receipt],
    settling: Settling,
) -> Result<(), BrokerError> {
    let batches: Vec<Vec<Receipt>> = receipts.chunks(BATCH_MAX).map(<[Receipt]>::to_vec).collect();
    let mut answers = stream::iter(batches)
        .map(|batch| settle_batch(client, link, queue, url, batch, settling))
        .buffer_unordered(REQUESTS_MAX);
    let mut failure = None;
    while let Some(answer) = answers.next().await {
        failure = failure.or(answer.err());
    }
    failure.map_or(Ok(()), Err)
}

async fn settle_batch(
    client: &Client,
    link: &Link,
    queue: &Queue,
    url: &str,
    batch: Vec<Receipt>,
    settling: Settling,
) -> Result<(), BrokerError> {
    let numbered = batch.iter().enumerate().map(|(number, receipt)| (number.to_string(), &*receipt.0));
    let failed: Vec<BatchResultErrorEntry> = match settling {
        Settling::Delete => {
            let entry = |(number, receipt)| {
                DeleteMessageBatchRequestEntry::builder().id(number).receipt_handle(receipt).build()
            };
            let entries = numbered.map(entry).collect::<Result<Vec<_>, _>>().map_err(incomplete)?;
            let request = client.delete_message_batch().queue_url(url).set_entries(Some(entries));
            request.send().await.map_err(|error| link.failed(queue, error))?.failed
        }
        Settling::Show(seconds) => {
            let entry = |(number, receipt)| {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(number);
                entry.receipt_handle(receipt).visibility_timeout(seconds).build()
            };
            let entries = numbered.map(entry).collect::<Result<Vec<_>, _>>().map_err(incomplete)?;
            let request = client.change_message_visibility_batch().queue_url(url).set_entries(Some(entries));
            request.send().await.map_err(|error| link.failed(queue, error))?.failed
        }
    };
    let failure = failed.first().map(|entry| failure::of_code(&queue.name, entry.code(), entry.message()));
    failure.map_or(Ok(()), Err)
}
