//! The key-value store: lists by blocking query, and changes that compare.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, understand};
use crate::{CoordinatorError, http::PATIENCE_MAX};

/// The longest list that is read, in bytes of its answer: about 40,000 values of 1 KB.
const LIST_BYTES_MAX: usize = 64 << 20;

/// What is written as it is in the path of a key.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The key-value store of a cluster. A call tries the addresses in turn, and begins with the one that answered last.
#[derive(Debug)]
pub struct Kv {
    api: Api,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEntry {
    /// The key.
    pub key: String,
    /// The value; empty where the key has none.
    pub value: Vec<u8>,
    /// A number for the programs that use the key.
    pub flags: u64,
    /// The index of the cluster when the key was created: another one after it was deleted and written again.
    pub create_index: u64,
    /// The index of the cluster when the key was changed last.
    pub modify_index: u64,
}

/// The keys below a prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KvList {
    /// In the order of their keys.
    pub entries: Vec<KvEntry>,
    /// What [`Kv::list`] waits for a change of. It never counts as seen if Consul has gone back, as after it was
    /// restored from a backup.
    pub index: u64,
}

/// One operation of a transaction.
#[derive(Debug, Clone, Copy)]
pub enum KvChange<'a> {
    /// Refuses the transaction unless this was the key's last change.
    Check {
        /// The key.
        key: &'a str,
        /// Its `ModifyIndex`.
        modify_index: u64,
    },
    /// Replaces the value of an entry, unless it was changed since it was read.
    Replace {
        /// The entry as it was read.
        entry: &'a KvEntry,
        /// Its new value.
        value: &'a str,
    },
    /// Deletes an entry, unless it was changed since it was read.
    Delete {
        /// The entry as it was read.
        entry: &'a KvEntry,
    },
    /// Writes a key, whatever it has.
    Set {
        /// The key.
        key: &'a str,
        /// Its value.
        value: &'a str,
        /// A number for the programs that use the key.
        flags: u64,
    },
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvCommitted {
    /// All of it was done.
    Done,
    /// Nothing of it was done: Consul has refused the operation at this place, the first one of those refused.
    Refused(usize),
}

/// An entry as Consul writes it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Written {
    key: String,
    value: Option<String>,
    flags: u64,
    create_index: u64,
    modify_index: u64,
}

impl Kv {
    pub(super) fn new(api: Api) -> Self {
        Self { api: api.with_answers_up_to(LIST_BYTES_MAX) }
    }

    /// The keys below a prefix. With the index of an earlier list it waits for a change, for up to about `wait`; with 0
    /// it returns at once.
    ///
    /// # Errors
    /// When Consul does not answer, or refuses.
    pub async fn list(&self, prefix: &str, seen: u64, wait: Duration) -> Result<KvList, CoordinatorError> {
        let path = path(prefix);
        let (path, patience) = match seen {
            0 => (format!("{path}?recurse"), PATIENCE_MAX),
            // Consul adds up to a sixteenth.
            seen => (
                format!("{path}?recurse&index={seen}&wait={}ms", wait.as_millis().max(1)),
                wait + wait / 16 + PATIENCE_MAX,
            ),
        };
        let (answer, index) = self.api.get(path, patience).await?;
        let entries = entries(&answer)?;
        Ok(KvList { entries, index: next_index(seen, index) })
    }

    /// Reads a key from a leader that has just confirmed that it is one.
    ///
    /// # Errors
    /// When Consul does not answer, or refuses.
    pub async fn read(&self, key: &str) -> Result<Option<KvEntry>, CoordinatorError> {
        let (answer, _) = self.api.get(format!("{}?consistent", path(key)), PATIENCE_MAX).await?;
        Ok(entries(&answer)?.pop())
    }

    /// Does all of these changes, or none. If a call fails, it is unknown whether they were done.
    ///
    /// # Errors
    /// When Consul does not answer, or refuses the call.
    pub async fn commit(&self, changes: &[KvChange<'_>]) -> Result<KvCommitted, CoordinatorError> {
        let operations: Value = changes.iter().map(KvChange::operation).collect();
        let answer = self.api.commit(&operations, PATIENCE_MAX).await?;
        if answer.status != StatusCode::CONFLICT {
            return understand::<Value>(&answer).map(|_| KvCommitted::Done);
        }
        refused(&serde_json::from_slice(&answer.body).unwrap_or_default())
    }
}

/// Why Consul has done nothing: the first change that it refuses. A missing permission has the same status as a value that
/// somebody else has written, and does not go away by itself.
fn refused(answer: &Value) -> Result<KvCommitted, CoordinatorError> {
    let errors = || answer["Errors"].as_array().into_iter().flatten();
    let mut reasons = errors().filter_map(|error| error["What"].as_str());
    if let Some(why) = reasons.find(|why| why.to_ascii_lowercase().contains("permission denied")) {
        return Err(CoordinatorError::Refused(why.to_owned()));
    }
    let place = errors().filter_map(|error| error["OpIndex"].as_u64()).min().unwrap_or(0);
    Ok(KvCommitted::Refused(usize::try_from(place).unwrap_or(usize::MAX)))
}

impl KvChange<'_> {
    fn operation(&self) -> Value {
        let kv = match *self {
            Self::Check { key, modify_index } => {
                json!({ "Verb": "check-index", "Key": key, "Index": modify_index })
            }
            Self::Replace { entry, value } => json!({
                "Verb": "cas",
                "Key": entry.key,
                "Value": BASE64_STANDARD.encode(value),
                "Flags": entry.flags,
                "Index": entry.modify_index,
            }),
            Self::Delete { entry } => {
                json!({ "Verb": "delete-cas", "Key": entry.key, "Index": entry.modify_index })
            }
            Self::Set { key, value, flags } => {
                json!({ "Verb": "set", "Key": key, "Value": BASE64_STANDARD.encode(value), "Flags": flags })
            }
        };
        json!({ "KV": kv })
    }
}

fn path(key: &str) -> String {
    format!("/v1/kv/{}", utf8_percent_encode(key, PLAIN))
}

fn entries(answer: &crate::http::Answer) -> Result<Vec<KvEntry>, CoordinatorError> {
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(Vec::new());
    }
    let written: Vec<Written> = understand(answer)?;
    let entry = |written: Written| {
        let Written { key, value, flags, create_index, modify_index } = written;
        let value = value.and_then(|value| BASE64_STANDARD.decode(value).ok()).unwrap_or_default();
        KvEntry { key, value, flags, create_index, modify_index }
    };
    Ok(written.into_iter().map(entry).collect())
}

/// The index that the next list begins with: from the start again where Consul has gone back, because it would wait for
/// an index that is far away.
fn next_index(seen: u64, index: u64) -> u64 {
    if index < seen { 0 } else { index }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_goes_back_counts_from_the_start() {
        assert_eq!(next_index(0, 7), 7);
        assert_eq!(next_index(7, 7), 7);
        assert_eq!(next_index(7, 9), 9);
        assert_eq!(next_index(7, 6), 0);
    }

    #[test]
    fn a_missing_permission_is_no_lost_comparison() {
        let other =
            json!({ "Errors": [{ "OpIndex": 2, "What": "x" }, { "OpIndex": 1, "What": "index is stale" }] });
        assert_eq!(refused(&other), Ok(KvCommitted::Refused(1)));
        let denied =
            json!({ "Errors": [{ "OpIndex": 0, "What": "Permission denied: token lacks permission" }] });
        assert!(matches!(refused(&denied), Err(CoordinatorError::Refused(why)) if why.contains("token")));
    }

    #[test]
    fn keys_have_any_characters() {
        assert_eq!(path("oracleTask/task_1"), "/v1/kv/oracleTask/task_1");
        assert_eq!(path("a b?c#\u{e4}%"), "/v1/kv/a%20b%3Fc%23%C3%A4%25");
    }
}
