//! Steering many tasks at once.

use windlass_api::{BulkAnswer, BulkChange};

use super::Client;
use crate::Error;

impl Client {
    /// Cancels, pauses or resumes all tasks that meet a filter; without `expect` it only counts them. One call acts
    /// on at most 10,000 and tells how many are left.
    ///
    /// # Errors
    /// [`Error::Refused`] if the filter is malformed or empty (400), or the count is far from what was expected (409).
    pub async fn bulk(&self, change: &BulkChange) -> Result<BulkAnswer, Error> {
        self.post(&["v1", "tasks", "bulk"], change).await
    }
}
