//! Errors of coordinators.

use thiserror::Error;

/// The reason why a call of a coordinator failed. None contains the URL's password.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CoordinatorError {
    /// None of the addresses answered, or the coordinator has no quorum. It is unknown whether the call took
    /// effect: repeat it. A leadership does not end because of this: it ends when its time is over.
    #[error("the coordinator is unavailable: {0}")]
    Unavailable(String),
    /// The coordinator denies access: check the password, the token and the permissions.
    #[error("the coordinator refuses: {0}")]
    Refused(String),
    /// The leadership has ended: stop at once.
    #[error("the leadership has ended: {0}")]
    Lost(String),
    /// The candidate was elected, and cannot act because somebody else leads whom another coordinator has elected.
    #[error("{0}")]
    Contested(String),
    /// The URL, the name or the lease is invalid for the product or for this server's settings.
    #[error("{0}")]
    Invalid(String),
}

impl CoordinatorError {
    /// Whether the same call may succeed later without a change by the caller.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Contested(_))
    }
}
