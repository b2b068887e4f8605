//! What the Go library machinery keeps on a server: states of tasks, groups, and signatures that wait for their time.
//!
//! Documents are passed on as they are; what is in them is not known here. Clients of the library have the same names and
//! times configured, which are given when these are made.

#[cfg(any(feature = "rabbitmq", feature = "sqs"))]
use std::time::{SystemTime, UNIX_EPOCH};
use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;

use crate::BrokerError;

/// A result backend: documents by the UUID of a task or group.
#[async_trait]
pub trait ResultBackend: Send + Sync {
    /// Its name for log messages: its URL without user and password.
    fn name(&self) -> &str;

    /// Reads documents. Returns one for each id, in their order; `None` where there is none, or where the product cannot
    /// say which of several is the last one.
    ///
    /// # Errors
    /// When the server does not answer.
    async fn read(&self, ids: &[String]) -> Result<Vec<Option<String>>, BrokerError>;

    /// Writes documents, each with its id and how long it is kept; `None` = until [`keep_for`](Self::keep_for).
    ///
    /// # Errors
    /// When it is not known whether all were written.
    async fn write(&self, documents: &[ResultDocument]) -> Result<(), BrokerError>;

    /// Sets how long documents are kept from now on, where the product can; `None` = until the next call.
    ///
    /// # Errors
    /// When it is not known whether this took effect.
    async fn keep_for(&self, ids: &[String], span: Option<Duration>) -> Result<(), BrokerError>;

    /// Removes documents whose time is over, where the product does not do this by itself. Returns their number, which is
    /// limited for each call.
    ///
    /// # Errors
    /// When the server does not answer.
    async fn purge(&self) -> Result<u64, BrokerError> {
        Ok(0)
    }
}

/// What clients of a result backend have configured.
#[derive(Debug, Clone, Copy)]
pub struct ResultSettings<'a> {
    /// How long documents are kept.
    pub keep: Duration,
    /// Between the UUIDs of a group, in a table.
    pub separator: &'a str,
}

/// A document to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultDocument {
    /// UUID of the task or group.
    pub id: String,
    /// The document.
    pub text: String,
    /// How long it is kept.
    pub keep: Option<Duration>,
}

/// What the library keeps on a server, as of about one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Documents, by the UUIDs of tasks and groups.
    pub documents: BTreeMap<String, String>,
    /// Queues that have signatures.
    pub queues: BTreeMap<String, Waiting>,
    /// Signatures that wait for their time, with that time in nanoseconds since 1970.
    pub delayed: Vec<(String, i64)>,
    /// Signatures that servers of Windlass have taken, and whose tasks are not yet on disk.
    pub in_flight: Vec<String>,
    /// Whether this is all: only so much is looked at.
    pub is_whole: bool,
}

/// A queue that has signatures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The signatures, in their order.
    pub signatures: Vec<String>,
    /// Whether a server of Windlass reads it, or has read it.
    pub is_read_here: bool,
}

/// A broker with signatures.
#[async_trait]
pub trait SignatureBroker: Send + Sync {
    /// The kind of the queues that hold signatures; `None` = it follows from the name of each queue.
    fn queue_kind(&self) -> Option<&'static str>;

    /// Whether queues get signatures through an exchange.
    fn has_exchange(&self) -> bool;

    /// Checks whether a signature can ever be sent to this queue, at this time.
    ///
    /// # Errors
    /// Says why not.
    fn check(&self, _queue: &str, _at: Option<i64>) -> Result<(), BrokerError> {
        Ok(())
    }

    /// Sends a signature to a queue: at once, or at this time, in nanoseconds since 1970.
    ///
    /// # Errors
    /// When it is not known whether it was sent.
    async fn send(&self, queue: &str, signature: &str, at: Option<i64>) -> Result<(), BrokerError>;

    /// Moves signatures whose time has come to their queues, or to `default_queue` where they name none. Returns their
    /// number, which is limited for each call, and 0 where the broker does this by itself.
    ///
    /// # Errors
    /// When the server does not answer.
    async fn move_due(&self, default_queue: &str) -> Result<u64, BrokerError>;
}

/// The time from `now` until `at`, in nanoseconds since 1970, as a number of these units, rounded up; 0 = it is over.
#[cfg(any(feature = "rabbitmq", feature = "sqs"))]
pub(crate) fn time_left(at: i64, now: SystemTime, unit: Duration) -> u64 {
    let now = now.duration_since(UNIX_EPOCH).map_or(u128::MAX, |now| now.as_nanos());
    let left = u128::try_from(at).unwrap_or(0).saturating_sub(now);
    u64::try_from(left.div_ceil(unit.as_nanos())).unwrap_or(u64::MAX)
}
