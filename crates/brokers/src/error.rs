//! Errors of brokers.

use thiserror::Error;

/// The reason why a call of a broker failed. None contains the URL's password.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BrokerError {
    /// The broker does not answer, or the connection was lost. It is unknown whether the call took effect:
    /// repeat it.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(String),
    /// The broker denies access: check the password, the permissions, the certificate.
    #[error("the broker refuses: {0}")]
    Refused(String),
    /// The queue does not exist (any more).
    #[error("there is no queue {0}")]
    NoQueue(String),
    /// The message is larger than the broker accepts.
    #[error("a message of {bytes} bytes is larger than the {limit} that the broker takes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest accepted size.
        limit: usize,
    },
    /// The URL, or the queue's name or kind, is invalid for the product.
    #[error("{0}")]
    Invalid(String),
    /// Any other answer.
    #[error("the broker failed: {0}")]
    Failed(String),
}

impl BrokerError {
    /// Whether the same call may succeed later without a change by the caller.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::NoQueue(_) | Self::Failed(_))
    }
}
