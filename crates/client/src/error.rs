//! What can go wrong between a program and its server.

use windlass_api::Problem;

/// Why a call did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No answer came: the server is not there, or it went away while it was answering. What was asked for may
    /// have been done all the same; calls that carry an idempotency key or a token may be made again.
    #[error(
        "no Windlass server answers at {server} (start one with `windlass dev`, or give another address)"
    )]
    Unreachable {
        /// The address that was tried.
        server: String,
        /// What the network said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server answered that it will not do it, and what to do instead.
    #[error("{}", .0.detail)]
    Refused(Problem),
    /// The server answered something that is not in the contract: it is of another version, or no Windlass server.
    #[error(
        "{server} answered {call} with something else than expected: {detail}; check that it is a Windlass server of this version"
    )]
    Malformed {
        /// The address that answered.
        server: String,
        /// The method and the path.
        call: String,
        /// What is wrong with the answer.
        detail: String,
    },
    /// The broker will not do it, and will not later either.
    #[error("the broker {broker}: {reason}")]
    Broker {
        /// Which broker.
        broker: String,
        /// What it said.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What this program was given cannot be used; nothing was sent.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// The HTTP status of a refusal.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(problem) => Some(problem.status),
            _ => None,
        }
    }

    /// Whether the same call may go well later without anybody changing it: the server is away, or asks for time.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused(problem) => problem.status >= 500 || matches!(problem.status, 408 | 425 | 429),
            Self::Malformed { .. } | Self::Broker { .. } | Self::Invalid(_) => false,
        }
    }
}
