//! Maps errors of Redis.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{BrokerError, tls};

/// The meaning of an error of a call about this queue.
pub(super) fn explain(error: &RedisError, queue: &str) -> BrokerError {
    let text = error.to_string();
    match error.kind() {
        // The TLS library reports this only in its text, among other errors of the connection.
        ErrorKind::Io => return tls::refusal(&text).unwrap_or(BrokerError::Unreachable(text)),
        ErrorKind::Parse => return BrokerError::Unreachable(text),
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

/// Whether the next call may succeed over a new connection: this one is lost, has lost its permissions, or
/// leads to a server that has become a replica.
pub(super) fn wants_another_connection(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io
        | ErrorKind::Parse
        | ErrorKind::AuthenticationFailed
        | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => true,
        _ => error.code() == Some("NOAUTH"),
    }
}

/// Whether the stream or its group no longer exists.
pub(super) fn is_gone(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOGROUP" | "UNBLOCKED"))
}
