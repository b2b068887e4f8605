//! Maps errors of SQS to errors of the port.

use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::{BrokerError, tls};

/// Error codes for a missing queue. The first one belongs to the current protocol; the others still occur.
const NO_QUEUE: &[&str] =
    &["QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "NonExistentQueue"];

/// Parts of error codes for denied access.
const REFUSED: &[&str] = &[
    "AccessDenied",
    "AuthFailure",
    "ExpiredToken",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSecurity",
    "MissingAuthenticationToken",
    "NotAuthorized",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnrecognizedClient",
];

/// Parts of error codes for permanent errors.
const INVALID: &[&str] = &[
    "InvalidAddress",
    "InvalidAttribute",
    "InvalidMessageContents",
    "InvalidParameter",
    "MissingParameter",
    "QueueNameExists",
    "UnsupportedOperation",
];

/// The error of a call about the queue `queue`.
pub(super) fn of_call<E, R>(queue: &str, error: SdkError<E, R>) -> BrokerError
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    match &error {
        SdkError::ServiceError(context) => {
            let error = context.err();
            of_code(queue, error.code().unwrap_or("an error without a code"), error.message())
        }
        SdkError::DispatchFailure(_) | SdkError::TimeoutError(_) | SdkError::ConstructionFailure(_) => {
            let text = DisplayErrorContext(&error).to_string();
            if let Some(refusal) = tls::refusal(&text) {
                refusal
            } else if text.contains("redential") {
                // There are no credentials, or their source did not return them.
                BrokerError::Refused(text)
            } else {
                BrokerError::Unreachable(text)
            }
        }
        _ => BrokerError::Failed(DisplayErrorContext(&error).to_string()),
    }
}

/// The meaning of an error code, of a whole call or of one message.
pub(super) fn of_code(queue: &str, code: &str, message: Option<&str>) -> BrokerError {
    let is_one_of = |parts: &[&str]| parts.iter().any(|part| code.contains(part));
    let text = message.map_or_else(|| code.to_owned(), |message| format!("{code}: {message}"));
    if NO_QUEUE.contains(&code) {
        BrokerError::NoQueue(queue.to_owned())
    } else if is_one_of(REFUSED) {
        BrokerError::Refused(text)
    } else if is_one_of(INVALID) {
        BrokerError::Invalid(text)
    } else {
        BrokerError::Failed(text)
    }
}
