//! The reason why a client has no connection.
//!
//! A failed call only reports that there was no connection in time. The library reports the cause separately
//! from the calls, and the same cause at most every half minute. So the last cause is kept until a call
//! succeeds.

use std::sync::{Arc, Mutex, MutexGuard};

use rdkafka::{ClientContext, consumer::ConsumerContext, error::KafkaError, types::RDKafkaErrorCode as Code};

use crate::{BrokerError, Queue, kafka::failure, tls};

/// The text of the library for a connection lost during login.
const LOST: &str = "Broker transport failure";

/// The start of the library's own advice, which names settings that cannot be made here.
const ADVICE_OF_LIBRARY: &str = ": broker certificate could not be verified";

/// The last reason for which one client could not connect.
#[derive(Clone, Default)]
pub(super) struct Reason(Arc<Mutex<Option<BrokerError>>>);

impl Reason {
    /// Records an error that the library has reported.
    pub(super) fn hear(&self, error: &KafkaError, text: &str) {
        let reason = match error.rdkafka_error_code() {
            Some(code) if failure::is_refusal(code) && !text.contains(LOST) => {
                BrokerError::Refused(advise(text))
            }
            Some(Code::BrokerTransportFailure) if tls::advice(text).is_some() => {
                BrokerError::Refused(advise(text))
            }
            Some(code) if failure::is_refusal(code) => BrokerError::Unreachable(text.to_owned()),
            Some(Code::BrokerTransportFailure | Code::Resolve) => BrokerError::Unreachable(text.to_owned()),
            // "All brokers down" is not a cause.
            _ => return,
        };
        *self.lock() = Some(reason);
    }

    /// The error of a call about a topic, replaced by the recorded cause if the call only reports a missing
    /// connection.
    pub(super) fn explain(&self, queue: &Queue, error: &KafkaError) -> BrokerError {
        let failure = failure::of(queue, error);
        let tells_nothing = matches!(failure, BrokerError::Unreachable(_))
            || error.rdkafka_error_code().is_some_and(failure::is_refusal);
        let reason = if tells_nothing { self.lock().clone() } else { None };
        reason.unwrap_or(failure)
    }

    /// A call has succeeded.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<BrokerError>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn advise(text: &str) -> String {
    let what = text.split_once(ADVICE_OF_LIBRARY).map_or(text, |(what, _)| what);
    tls::advice(text).map_or_else(|| text.to_owned(), |advice| format!("{what}: {advice}"))
}

impl ClientContext for Reason {
    fn error(&self, error: KafkaError, reason: &str) {
        self.hear(&error, reason);
    }
}

impl ConsumerContext for Reason {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a call without a connection.
    fn explained(reason: &Reason) -> BrokerError {
        reason.explain(&Queue::new("q"), &KafkaError::MetadataFetch(Code::OperationTimedOut))
    }

    #[test]
    fn a_reason_stands_until_something_else_is_known() {
        let reason = Reason::default();
        let in_time = explained(&reason);
        assert!(matches!(in_time, BrokerError::Unreachable(_)));
        reason.hear(&KafkaError::Global(Code::Authentication), "wrong");
        reason.hear(&KafkaError::Global(Code::AllBrokersDown), "1/1 brokers are down");
        assert_eq!(explained(&reason), BrokerError::Refused("wrong".to_owned()));
        let error = KafkaError::MetadataFetch(Code::UnknownTopic);
        assert_eq!(reason.explain(&Queue::new("q"), &error), BrokerError::NoQueue("q".to_owned()));
        reason.hear(&KafkaError::Global(Code::BrokerTransportFailure), "nobody listens");
        assert_eq!(explained(&reason), BrokerError::Unreachable("nobody listens".to_owned()));
        reason.forget();
        assert_eq!(explained(&reason), in_time);
    }

    #[test]
    fn what_is_no_refusal_is_told_apart() {
        let heard = |code, text| {
            let reason = Reason::default();
            reason.hear(&KafkaError::Global(code), text);
            explained(&reason)
        };
        let lost = "SASL handshake failed: Local: Broker transport failure: supported mechanisms: (n/a)";
        assert!(matches!(heard(Code::Authentication, lost), BrokerError::Unreachable(_)));
        for code in [Code::SSL, Code::BrokerTransportFailure] {
            let text = "SSL handshake failed: certificate verify failed: broker certificate could not be verified, verify \
                        that ssl.ca.location is configured (install ca-certificates package)";
            let BrokerError::Refused(why) = heard(code, text) else { panic!("it is taken for away") };
            assert!(why.contains("?cacert=FILE") && !why.contains("ssl.ca.location"), "{why}");
        }
    }
}
