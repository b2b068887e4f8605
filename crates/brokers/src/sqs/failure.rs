//! What went wrong, in the words of the port.

use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::BrokerError;

/// Codes of answers that say that there is no such queue. The first is that of the protocol in use; others linger.
const NO_QUEUE: &[&str] =
    &["QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "NonExistentQueue"];

/// Parts of codes of answers that say that we may not.
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

/// Parts of codes of answers that say that the same will never do.
const INVALID: &[&str] = &[
    "InvalidAddress",
    "InvalidAttribute",
    "InvalidMessageContents",
    "InvalidParameter",
    "MissingParameter",
    "QueueNameExists",
    "UnsupportedOperation",
];

/// What a call about the queue `queue` ended with.
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
            // There are none, or the place that has them did not give them.
            if text.contains("redential") {
                BrokerError::Refused(text)
            } else {
                BrokerError::Unreachable(text)
            }
        }
        _ => BrokerError::Failed(DisplayErrorContext(&error).to_string()),
    }
}

/// What an answer says, of a whole call or of one message.
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
