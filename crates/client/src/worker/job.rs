//! One attempt, as its handler sees it.

use std::{collections::HashMap, sync::Arc};

use serde::de::DeserializeOwned;
use windlass_api::{Attempt, Payload, Progress};

use super::{control::JobControl, secrets::Hidden};
use crate::Term;

/// One attempt: its input, and its progress and log.
#[derive(Debug)]
pub struct Job {
    /// The input.
    pub attempt: Attempt,
    control: Arc<JobControl>,
    term: Option<Term>,
}

impl Job {
    pub(super) fn new(attempt: Attempt, control: Arc<JobControl>, term: Option<Term>) -> Self {
        Self { attempt, control, term }
    }

    /// The same job, after this number of tries by this worker.
    #[cfg(feature = "brokers")]
    pub(super) fn again(&self, tries: u32) -> Self {
        let attempt = Attempt { attempt: self.attempt.attempt + tries, ..self.attempt.clone() };
        Self { attempt, control: self.control.clone(), term: self.term.clone() }
    }

    /// Hides these values in the log and the progress.
    pub(super) fn hide(&self, hidden: &Hidden) {
        self.control.hide(hidden);
    }

    /// The parameters, with the results of the earlier steps.
    ///
    /// # Errors
    /// If they do not fit `T`.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.attempt.params.get())
    }

    /// The result of an earlier step. None if it returned nothing, or is not an earlier step.
    ///
    /// # Errors
    /// If it does not fit `T`.
    pub fn result_of<T: DeserializeOwned>(&self, step: &str) -> Result<Option<T>, serde_json::Error> {
        let Some(results) = &self.attempt.results else { return Ok(None) };
        let results: HashMap<String, Payload> = serde_json::from_str(results.get())?;
        results.get(step).map(|result| serde_json::from_str(result.get())).transpose()
    }

    /// The leadership of the worker, if it works only while it leads. Pass its fence to what has the effects of
    /// the attempt.
    #[must_use]
    pub fn term(&self) -> Option<&Term> {
        self.term.as_ref()
    }

    /// Waits until the attempt must stop: it was cancelled, its time, its lease or the leadership of the worker
    /// is over, or the worker shuts down and has waited long enough.
    pub async fn cancelled(&self) {
        self.control.cancelled().await;
    }

    /// Whether the attempt must stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.control.is_cancelled()
    }

    /// Reports progress: a value from 0 to 1, and a message for operators. Never waits. Of several reports in
    /// quick succession only the last is sent.
    pub fn progress(&self, value: Option<f64>, message: Option<String>) {
        self.control.progress(Progress { value, message });
    }

    /// Writes a line to the attempt's log. Never waits. After 64 KiB one line says that the rest was cut.
    pub fn log(&self, line: impl Into<String>) {
        self.control.log(line.into());
    }
}
