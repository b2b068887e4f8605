//! Outcomes of attempts.

use std::time::Duration;

use serde::Serialize;
use windlass_api::Payload;

use super::Failure;

/// The outcome of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// Success. The result, a JSON object of at most 256 KiB, is merged into the task's parameters.
    Succeeded(Option<Payload>),
    /// Failure.
    Failed(Failure),
    /// Retry later: after the delay (10 s by default), and without counting as a retry.
    RetryLater {
        /// The delay.
        delay: Option<Duration>,
        /// The reason, for operators.
        message: Option<String>,
    },
    /// Not started: another worker gets the attempt, which does not count.
    Declined,
}

impl Outcome {
    /// Success with `result` serialized as JSON: an object, or null for no result.
    #[must_use]
    pub fn succeeded(result: &impl Serialize) -> Self {
        match serde_json::value::to_raw_value(result) {
            Ok(json) if json.get() == "null" => Self::Succeeded(None),
            Ok(json) => Self::Succeeded(Some(json)),
            Err(error) => {
                Self::Failed(Failure::permanent(format!("the result cannot be written as JSON: {error}")))
            }
        }
    }
}

/// Code 75 means "retry later".
impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        if failure.code == Failure::RETRY_LATER {
            return Self::RetryLater { delay: None, message: Some(failure.message) };
        }
        Self::Failed(failure)
    }
}
