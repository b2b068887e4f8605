//! Refusals, as `application/problem+json` (RFC 9457).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Stable name of the kind of problem, as an address.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong here and what to do about it.
    pub detail: String,
    /// Line of the document, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Column of the line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    /// Names this refusal, `urn:uuid:…`. The server's log has it as well, so it finds the request there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// All mistakes in the document, if it has several. The first one is also in `detail`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ProblemError>,
}

/// A mistake in a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemError {
    /// What is wrong and what to do about it.
    pub detail: String,
    /// Line of the document, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Column of the line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
}

impl Problem {
    /// The prefix of every `type`.
    pub const TYPE_PREFIX: &'static str = "https://windlass.invalid/problems/";

    /// The name that clients give to a refusal without a problem document: something other than a Windlass
    /// server has answered.
    pub const UNEXPLAINED: &'static str = "unexplained";

    /// A problem of the type `name`.
    #[must_use]
    pub fn new(status: u16, name: &str, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("{}{name}", Self::TYPE_PREFIX),
            title: title.to_owned(),
            status,
            detail: detail.into(),
            line: None,
            column: None,
            instance: None,
            errors: Vec::new(),
        }
    }

    /// The short name of the type.
    #[must_use]
    pub fn name(&self) -> &str {
        self.kind.strip_prefix(Self::TYPE_PREFIX).unwrap_or(&self.kind)
    }
}
