//! Changes many tasks with one call.

use windlass_api::{BulkAnswer, BulkChange};

use super::Client;
use crate::Error;

impl Client {
    /// Cancels, pauses or resumes all tasks that match a filter; without `expect` it only counts them. One
    /// call changes at most 10,000 tasks and returns the number left.
    ///
    /// # Errors
    /// [`Error::Refused`] if the filter is malformed or empty (400), or the count differs too much from
    /// `expect` (409).
    pub async fn bulk(&self, change: &BulkChange) -> Result<BulkAnswer, Error> {
        self.post(&["v1", "tasks", "bulk"], change).await
    }
}
