//! How an attempt went.

use std::time::Duration;

use serde::Serialize;
use windlass_api::Payload;

use super::Failure;

/// How an attempt went.
#[derive(Debug)]
pub enum Outcome {
    /// Done. The result, a JSON object of at most 256 KiB, is merged into the task's parameters.
    Succeeded(Option<Payload>),
    /// Failed.
    Failed(Failure),
    /// Not now: tried again after the delay (10 s when left out), without spending a retry.
    RetryLater {
        /// How long to wait.
        delay: Option<Duration>,
        /// Why, for people.
        message: Option<String>,
    },
    /// Not done and not begun: another worker gets the attempt, and it is not counted.
    Declined,
}

impl Outcome {
    /// Success with what `result` looks like as JSON: an object, or null for no result.
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

/// A code of 75 means: not now.
impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        if failure.code == Failure::RETRY_LATER {
            return Self::RetryLater { delay: None, message: Some(failure.message) };
        }
        Self::Failed(failure)
    }
}
