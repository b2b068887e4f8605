//! Signatures of the Go library machinery in SQS.
//!
//! The body of a message is a signature. In a FIFO queue its group is the `BrokerMessageGroupId` of the signature, and its
//! deduplication id is the `UUID`. SQS delays messages of standard queues itself.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde_json::Value;

use super::{
    address::Address,
    link::{self, Link},
    publish,
};
use crate::{BrokerError, Message, Queue, SignatureBroker, machinery::time_left};

/// The longest delay of a message, in seconds.
const DELAY_MAX: u64 = 15 * 60;

/// SQS as a broker with signatures.
pub(crate) struct Signatures {
    link: Link,
}

impl Signatures {
    /// Makes a client by its URL, without connecting.
    pub(crate) fn open(url: &str) -> Result<Self, BrokerError> {
        Ok(Self { link: Link::new(Address::parse(url)?)? })
    }
}

#[async_trait]
impl SignatureBroker for Signatures {
    /// The kind of a queue follows from its name.
    fn queue_kind(&self) -> Option<&'static str> {
        None
    }

    fn has_exchange(&self) -> bool {
        false
    }

    fn check(&self, queue: &str, at: Option<i64>) -> Result<(), BrokerError> {
        delay_in(&Queue::new(queue), at).map(drop)
    }

    async fn send(&self, queue: &str, signature: &str, at: Option<i64>) -> Result<(), BrokerError> {
        let queue = Queue::new(queue);
        let (is_fifo, delay) = (link::is_fifo(&queue)?, delay_in(&queue, at)?);
        let fields: Value = serde_json::from_str(signature).unwrap_or_default();
        let word = |field: &str| fields[field].as_str().filter(|_| is_fifo).unwrap_or_default();
        let message = Message::new(word("UUID"), word("BrokerMessageGroupId"), signature.to_owned());
        publish::publish_delayed(&self.link, &queue, &message, delay).await
    }

    async fn move_due(&self, _default_queue: &str) -> Result<u64, BrokerError> {
        Ok(0)
    }
}

/// The delay of a message in this queue until `at`. SQS cannot delay one message of a FIFO queue: as in the library, it
/// arrives at once.
fn delay_in(queue: &Queue, at: Option<i64>) -> Result<i32, BrokerError> {
    let is_fifo = link::is_fifo(queue)?;
    at.filter(|_| !is_fifo).map_or(Ok(0), |at| delay(at, SystemTime::now()))
}

/// The delay until `at`, in nanoseconds since 1970: seconds, rounded up.
fn delay(at: i64, now: SystemTime) -> Result<i32, BrokerError> {
    let seconds = time_left(at, now, Duration::from_secs(1));
    let delay = i32::try_from(seconds).ok().filter(|_| seconds <= DELAY_MAX);
    delay.ok_or_else(|| {
        BrokerError::Invalid(format!(
            "its `ETA` is {seconds} s from now, and SQS delays a message by {DELAY_MAX} s at most"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_delay_is_never_too_short_and_a_long_one_is_refused() {
        let now = UNIX_EPOCH + Duration::from_millis(10_500);
        let of = |seconds: f64| delay((seconds * 1e9) as i64, now);
        assert_eq!((of(10.0), of(10.5), of(10.6), of(12.5)), (Ok(0), Ok(0), Ok(1), Ok(2)));
        assert_eq!(of(910.5), Ok(900));
        let error = of(910.6).unwrap_err().to_string();
        assert!(error.contains("901 s from now") && error.contains("900 s at most"), "{error}");
    }
}
