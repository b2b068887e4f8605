//! Maps errors of Kafka to errors of the port.

use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};

use crate::{BrokerError, Queue};

/// The error of a call about a topic.
pub(super) fn of(queue: &Queue, error: &KafkaError) -> BrokerError {
    let code = match error {
        // `rdkafka_error_code` leaves this case out.
        KafkaError::AdminOp(code) => Some(*code),
        _ => error.rdkafka_error_code(),
    };
    match (code, error) {
        (Some(code), _) => of_code(queue, code),
        // In most cases invalid certificates.
        (None, KafkaError::ClientCreation(why)) => {
            BrokerError::Invalid(format!("the client of Kafka: {why}"))
        }
        (None, _) => BrokerError::Failed(error.to_string()),
    }
}

/// Whether this is about a connection to one of the servers, or to all of them.
pub(super) fn is_of_connection(error: &KafkaError) -> bool {
    error.rdkafka_error_code().is_some_and(|code| {
        is_refusal(code)
            || matches!(code, Code::BrokerTransportFailure | Code::Resolve | Code::AllBrokersDown)
    })
}

/// Whether this means that the login failed, or that the server's certificate is not trusted.
pub(super) fn is_refusal(code: Code) -> bool {
    matches!(code, Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL)
}

/// The meaning of an error code of Kafka or the library.
pub(super) fn of_code(queue: &Queue, code: Code) -> BrokerError {
    match code {
        Code::UnknownTopicOrPartition
        | Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicId => BrokerError::NoQueue(queue.name.clone()),
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        | Code::Resolve
        | Code::OperationTimedOut
        | Code::MessageTimedOut
        | Code::RequestTimedOut
        | Code::NetworkException
        | Code::BrokerNotAvailable
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::CoordinatorNotAvailable => BrokerError::Unreachable(code.to_string()),
        code if is_refusal(code) => BrokerError::Refused(code.to_string()),
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed => BrokerError::Refused(code.to_string()),
        Code::InvalidTopic
        | Code::InvalidGroupId
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::PolicyViolation
        | Code::InvalidConfig
        | Code::InconsistentGroupProtocol
        | Code::InvalidRecord => BrokerError::Invalid(code.to_string()),
        _ => BrokerError::Failed(code.to_string()),
    }
}
