//! Access tokens.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Span;

/// What the user of an access token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessRole {
    /// Read.
    Viewer,
    /// Read, submit tasks, and act on tasks, queues, limits, locks, alarms, triggers, devices and rollouts.
    Operator,
    /// Everything, flows and access tokens included.
    Admin,
    /// Take attempts and report them, and nothing else.
    Worker,
}

impl AccessRole {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Admin, Self::Worker];

    /// Its name in documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Worker => "worker",
        }
    }
}

impl std::str::FromStr for AccessRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let role = Self::ALL.into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| format!("invalid role {text:?}: use viewer, operator, admin or worker"))
    }
}

/// An access token to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAccessToken {
    /// Its name. The history shows it as the actor.
    pub name: String,
    /// What its user may do.
    pub role: AccessRole,
    /// Only these queues, which are modules. A token with `queues` or `flows` may use what they name and nothing else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    /// Only these flows and their tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<String>,
    /// How long it is valid; for ever when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
}

/// An access token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessToken {
    /// Its name.
    pub name: String,
    /// Its id: the part of the token between the first `_` and the second one. It is not a secret.
    pub id: String,
    /// What its user may do.
    pub role: AccessRole,
    /// The queues that it is limited to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    /// The flows that it is limited to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<String>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Who created it; absent if a server did at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// From when on it is refused; absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// When it was last used, about a minute late; absent if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Timestamp>,
}

/// An access token that was created. Only this answer has the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessTokenCreated {
    /// The token itself, for the header `Authorization: Bearer`. It cannot be shown again.
    pub secret: String,
    /// What is known of it.
    pub token: AccessToken,
}

impl std::fmt::Debug for AccessTokenCreated {
    /// Leaves out the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessTokenCreated").field("token", &self.token).finish_non_exhaustive()
    }
}
