//! The audit log.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An entry of the audit log: somebody changed something. It was stored together with the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Its number. Numbers only grow, with gaps.
    pub number: u64,
    /// When the change was made.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The `operationId` of the request in this document, such as `cancel_task`.
    pub operation: String,
    /// Who sent the request: the name of the access token. On a server that asks for no tokens, the client's own
    /// `Windlass-Actor`, marked as claimed. Absent if nobody said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The address that the request came from. Behind a balancer it is the balancer's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The kind of what was changed: `task`, `flow`, `queue`, `limit`, `lock`, `alarm`, `trigger`, `device`, `rollout` or
    /// `access token`.
    pub kind: String,
    /// Its name, or the id of a task or an alarm.
    pub name: String,
}
