//! What Redis says, as what brokers refuse.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::BrokerError;

/// What an error means to whoever asked about this queue.
pub(super) fn explain(error: &RedisError, queue: &str) -> BrokerError {
    let text = error.to_string();
    match error.kind() {
        // The library for TLS says so in words alone: in the midst of what other errors of the connection say.
        ErrorKind::Io if text.contains("certificate") => return BrokerError::Refused(text),
        ErrorKind::Io | ErrorKind::Parse => return BrokerError::Unreachable(text),
        ErrorKind::AuthenticationFailed => return BrokerError::Refused(text),
        ErrorKind::InvalidClientConfig => return BrokerError::Invalid(text),
        _ => {}
    }
    match error.code().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => BrokerError::Refused(text),
        "WRONGTYPE" => BrokerError::Invalid(format!(
            "the key {queue} has something else in it than this kind of queue: name another queue or kind"
        )),
        "NOGROUP" | "UNBLOCKED" => BrokerError::NoQueue(queue.to_owned()),
        "LOADING" | "READONLY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" => BrokerError::Unreachable(text),
        _ if text.contains("no such key") => BrokerError::NoQueue(queue.to_owned()),
        _ => BrokerError::Failed(text),
    }
}

/// Whether the next call may go better over a new connection: this one is lost, lets us do nothing any more, or leads to
/// a server that has become another one's replica.
pub(super) fn wants_another_connection(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io
        | ErrorKind::Parse
        | ErrorKind::AuthenticationFailed
        | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => true,
        _ => error.code() == Some("NOAUTH"),
    }
}

/// Whether the stream or its group is not there any more.
pub(super) fn is_gone(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOGROUP" | "UNBLOCKED"))
}
