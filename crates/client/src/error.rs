//! The errors of calls to a server.

use windlass_api::Problem;

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No answer: the server is unreachable, or stopped while it answered. The call may have taken effect
    /// nevertheless. Calls with an idempotency key or a token may be repeated.
    #[error("no server answers at {server}: {source}")]
    Unreachable {
        /// The address of the server.
        server: String,
        /// The network error, or [what TLS refuses](windlass_tls::Refused).
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server refused the call; the problem contains the reason and the fix.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// The answer breaks the API contract: the server has another version, or is not a Windlass server.
    #[error(
        "unexpected answer from {server} to {call}: {detail}; check that it is a Windlass server of this version"
    )]
    Malformed {
        /// The address of the server.
        server: String,
        /// The method and the path.
        call: String,
        /// The fault of the answer.
        detail: String,
    },
    /// The broker refused permanently.
    #[error("the broker {broker}: {reason}")]
    Broker {
        /// The name of the broker.
        broker: String,
        /// Its reason.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The coordinator refused permanently.
    #[error("the coordinator {coordinator}: {reason}")]
    Coordinator {
        /// The name of the coordinator.
        coordinator: String,
        /// Its reason.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The input of the program is invalid; nothing was sent.
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

    /// Whether the unchanged call may succeed later: the server is unavailable or overloaded, or its certificate has
    /// expired.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => self.tls_refusal().is_none_or(windlass_tls::Refused::is_temporary),
            Self::Refused(_) if self.refuses_token() => false,
            Self::Refused(problem) => problem.status >= 500 || matches!(problem.status, 408 | 425 | 429),
            Self::Malformed { .. } | Self::Broker { .. } | Self::Coordinator { .. } | Self::Invalid(_) => {
                false
            }
        }
    }

    /// Whether the server does not accept the access token: it is missing, unknown, revoked or expired, or does not allow
    /// the call.
    #[must_use]
    pub fn refuses_token(&self) -> bool {
        // A server that has refused many tokens of an address still accepts valid ones.
        matches!(
            self,
            Self::Refused(problem) if matches!(problem.status, 401 | 403) || problem.name() == "too-many-failures"
        )
    }

    /// What TLS refuses, if that is why the server is unreachable.
    pub(crate) fn tls_refusal(&self) -> Option<&windlass_tls::Refused> {
        match self {
            Self::Unreachable { source, .. } => source.downcast_ref(),
            _ => None,
        }
    }
}
