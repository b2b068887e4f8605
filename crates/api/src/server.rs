//! Servers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A server. Several may work on one store, and any of them answers any request.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Server {
    /// The UUID it made when it started.
    pub id: String,
    /// Version of the program.
    pub version: String,
    /// Where it says that it can be reached.
    pub address: String,
    /// The highest level of features that it knows.
    pub level: u32,
    /// Whether it was heard of lately.
    pub state: ServerState,
    /// Whether it is the one that answers.
    pub answers: bool,
    /// When it started.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it was last heard of.
    #[schema(value_type = String, format = DateTime)]
    pub last_seen_at: Timestamp,
}

/// Whether a server was heard of lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Active within the last 5 s.
    Up,
    /// Not active within that time: it is gone, or cannot reach the store.
    Silent,
}
