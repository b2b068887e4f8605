//! What went wrong, in the words of the port.

use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};

use crate::{BrokerError, Queue};

/// What a call about a topic ended with.
pub(super) fn of(queue: &Queue, error: &KafkaError) -> BrokerError {
    let code = match error {
        // The library forgets to give this one.
        KafkaError::AdminOp(code) => Some(*code),
        _ => error.rdkafka_error_code(),
    };
    match code {
        Some(code) => of_code(queue, code),
        None => BrokerError::Failed(error.to_string()),
    }
}

/// What Kafka, or the library, says by a code.
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
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::SSL => BrokerError::Refused(code.to_string()),
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
