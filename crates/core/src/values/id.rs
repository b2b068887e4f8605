//! Names and ids.

use std::{borrow::Borrow, fmt, ops::Deref, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A name of a flow, step, module or command: `[A-Za-z0-9][A-Za-z0-9_.-]{0,127}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Name(Arc<str>);

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// An invalid name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid name {0:?}: use 1 to 128 of A-Z a-z 0-9 _ . - and begin with a letter or digit")]
pub struct NameError(pub String);

impl Name {
    /// Checks `text` and returns it as a name.
    ///
    /// # Errors
    /// When it is empty, too long, or has other characters.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let rest = bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
        if first && rest && text.len() <= NAME_BYTES_MAX {
            return Ok(Self(text.into()));
        }
        Err(NameError(text.chars().take(NAME_BYTES_MAX).collect()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// Identifies a task: a UUID of version 7, so that later ids sort after earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId(pub u128);

impl TaskId {
    /// No task: for alarms that concern no task.
    pub const NONE: Self = Self(0);

    /// The 16 bytes in sort order.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// From the 16 bytes in sort order.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_u128(self.0).hyphenated().fmt(f)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An invalid task id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid task id {0:?}: it must be a UUID")]
pub struct TaskIdError(pub String);

impl FromStr for TaskId {
    type Err = TaskIdError;

    fn from_str(text: &str) -> Result<Self, TaskIdError> {
        uuid::Uuid::try_parse(text)
            .map(|uuid| Self(uuid.as_u128()))
            .map_err(|_| TaskIdError(text.chars().take(64).collect()))
    }
}

/// Who did something: the name of a token, or a name that a client claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Actor {
    /// The name.
    pub name: Arc<str>,
    /// Whether the name is only claimed by the client.
    pub claimed: bool,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.claimed { " (claimed)" } else { "" })
    }
}
