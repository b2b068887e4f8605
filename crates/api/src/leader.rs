//! Leaders: processes of which one at a time holds a name.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A candidate campaigns for a name, or its leader renews. A leader keeps the id and the lease of its campaign.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// The number of the campaign: a random UUID, another one for each. Keep it secret: it permits to resign.
    pub campaign: String,
    /// The id of the candidate: 1 to 128 bytes without control characters.
    pub id: String,
    /// Anything else that others should know of the leader: at most 4096 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The leader must renew in this time, in milliseconds: 2 s to 1 h. It must count it from before it sends a renewal.
    pub lease_ms: u64,
    /// How long a candidate waits for its election, in milliseconds: up to 30 s. 0 = the answer comes at once.
    #[serde(default)]
    pub wait_ms: u64,
    /// The fence of the leadership to renew. Without it the candidate campaigns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews: Option<u64>,
}

/// The result of a campaign or a renewal.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Election {
    /// Whether the candidate leads. After a renewal `false` means that its leadership has ended.
    pub leads: bool,
    /// Who leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<Leader>,
}

/// The leader of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Leader {
    /// What it campaigned for.
    pub name: String,
    /// Its id.
    pub id: String,
    /// The value of its campaign.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Higher than that of each earlier leader of this name.
    pub fence: u64,
    /// Its lease, in milliseconds.
    pub lease_ms: u64,
    /// Since when it leads.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// A leader resigns.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resignation {
    /// The number of its campaign.
    pub campaign: String,
}
