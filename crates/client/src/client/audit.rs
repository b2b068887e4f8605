//! The audit log.

use windlass_api::{AuditEntry, List};

use super::Client;
use crate::Error;

impl Client {
    /// The newest entries of the audit log, the newest first: at most `limit`. `filter` has pairs of `name`, `by`, `operation`
    /// and `since`, as `GET /v1/audit` takes them.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn audit_log(
        &self,
        filter: &[(&str, String)],
        limit: usize,
    ) -> Result<List<AuditEntry>, Error> {
        self.newest(&["v1", "audit"], filter, limit).await
    }
}
