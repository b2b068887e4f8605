//! What brokers refuse, and why they do not answer.

use thiserror::Error;

/// Why a broker did not do what it was asked. None of these has the URL's password in it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BrokerError {
    /// It does not answer, or the connection was lost. Whether what was asked was done is unknown: ask again.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// It does not let us: the password, the rights, the certificate.
    #[error("the broker refuses: {0}")]
    Refused(String),
    /// The queue is not there (any more).
    #[error("there is no queue {0}")]
    NoQueue(String),
    /// The message is larger than the broker takes.
    #[error("a message of {bytes} bytes is larger than the {limit} that the broker takes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest that it takes.
        limit: usize,
    },
    /// The URL, or the queue's name or kind, is not what the product understands.
    #[error("{0}")]
    Invalid(String),
    /// It answered something else.
    #[error("the broker failed: {0}")]
    Failed(String),
}

impl BrokerError {
    /// Whether the same may go well later, with nobody doing anything about it here.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NoQueue(_) | Self::Failed(_))
    }
}
