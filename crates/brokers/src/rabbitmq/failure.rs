//! Maps errors of the server and the driver.

use std::io;

use lapin::{Error, ErrorKind};

use crate::{BrokerError, tls};

/// The meaning of an error of a call about `queue`, if it was about one.
pub(super) fn failure(queue: Option<&str>, error: &Error) -> BrokerError {
    match error.kind() {
        ErrorKind::ProtocolError(error) => refusal(queue, error.get_id(), error.get_message().as_str()),
        ErrorKind::IOError(error) => {
            let message = error.to_string();
            tls::refusal(&message).unwrap_or_else(|| match error.kind() {
                // What the other side sends is not TLS.
                io::ErrorKind::InvalidData => BrokerError::Refused(message),
                _ => BrokerError::Unreachable(message),
            })
        }
        ErrorKind::RuntimeShutdownError(_)
        | ErrorKind::MissingHeartbeatError
        | ErrorKind::InvalidChannel(_)
        | ErrorKind::InvalidChannelState(..)
        | ErrorKind::InvalidConnectionState(_) => BrokerError::Unreachable(error.to_string()),
        ErrorKind::AuthProviderError(why) => BrokerError::Refused(why.clone()),
        _ => BrokerError::Failed(error.to_string()),
    }
}

/// The meaning of the code with which a server closes a channel or the connection.
fn refusal(queue: Option<&str>, code: u16, text: &str) -> BrokerError {
    let about = |advice: &str| format!("{text}{advice}");
    match code {
        // ACCESS_REFUSED, NOT_ALLOWED.
        403 | 530 => BrokerError::Refused(text.to_owned()),
        // NOT_FOUND. A queue on an unavailable server still exists; creating it again would not help.
        404 if text.contains("down or inaccessible") => BrokerError::Unreachable(text.to_owned()),
        404 => queue.map_or_else(
            || BrokerError::Failed(text.to_owned()),
            |queue| BrokerError::NoQueue(queue.to_owned()),
        ),
        // CONNECTION_FORCED: the server shuts down, or an operator closed the connection.
        320 => BrokerError::Unreachable(text.to_owned()),
        // RESOURCE_LOCKED.
        405 => BrokerError::Invalid(about(": the queue belongs to one connection alone, use another name")),
        // PRECONDITION_FAILED has several meanings, which only its text distinguishes.
        406 => too_large(text).unwrap_or_else(|| {
            if text.contains("timed out") {
                BrokerError::Failed(about(": a message was unacknowledged for longer than the server's consumer_timeout"))
            } else if text.contains("for exchange") {
                BrokerError::Invalid(about(
                    ": there is another kind of exchange under this name; say its kind in the configuration, or delete \
                     the exchange, or use another name",
                ))
            } else if text.contains("inequivalent arg") {
                BrokerError::Invalid(about(
                    ": there is another kind of queue under this name; say its kind in the configuration, or delete \
                     the queue, or use another name",
                ))
            } else {
                BrokerError::Invalid(text.to_owned())
            }
        }),
        _ => BrokerError::Failed(text.to_owned()),
    }
}

/// "message size 4096 is larger than configured max size 1024"
fn too_large(text: &str) -> Option<BrokerError> {
    let (_, sizes) = text.split_once("message size ")?;
    let (bytes, limit) = sizes.split_once(" is larger than configured max size ")?;
    let limit = limit.split(|c: char| !c.is_ascii_digit()).next()?;
    Some(BrokerError::TooLarge { bytes: bytes.parse().ok()?, limit: limit.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_server_is_told() {
        let text = "PRECONDITION_FAILED - message size 4096 is larger than configured max size 1024";
        assert_eq!(refusal(Some("q"), 406, text), BrokerError::TooLarge { bytes: 4096, limit: 1024 });
    }

    #[test]
    fn a_queue_whose_server_is_away_is_not_missing() {
        let missing = refusal(Some("q"), 404, "NOT_FOUND - no queue 'q' in vhost '/'");
        assert_eq!(missing, BrokerError::NoQueue("q".to_owned()));
        let text =
            "NOT_FOUND - home node 'r1@localhost' of durable queue 'q' in vhost '/' is down or inaccessible";
        assert!(matches!(refusal(Some("q"), 404, text), BrokerError::Unreachable(_)));
    }
}
