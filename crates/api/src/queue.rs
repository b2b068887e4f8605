//! Queues: one per module.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The work of one module.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// The module.
    pub name: String,
    /// Attempts that wait for a worker.
    pub ready: u64,
    /// Attempts that workers have.
    pub running: u64,
    /// Since when the oldest waits.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub oldest_ready_at: Option<Timestamp>,
    /// Whether nothing of it is handed out.
    pub paused: bool,
    /// Connected workers that serve it.
    pub workers: u32,
    /// Those of them that take nothing more, because they end, as they said to this server.
    #[serde(default)]
    pub draining: u32,
}
