//! What may be wrong with a store: the answer of `windlass doctor`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use windlass_api::TaskStatus;

/// What was found about the file of a store.
#[derive(Debug, Serialize)]
pub(crate) struct FileDiagnosis {
    /// When it was made.
    pub(crate) created_at: Option<Timestamp>,
    /// How often it was opened.
    pub(crate) opened: u32,
    /// Its bytes.
    pub(crate) file_bytes: u64,
    /// Bytes of the write-ahead log; most of it is filled ahead and empty.
    pub(crate) wal_bytes: u64,
    /// Bytes left on its file system.
    pub(crate) free_bytes: u64,
}

/// What was found.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    /// The store.
    pub(crate) store: String,
    /// Version of its format.
    pub(crate) format: i64,
    /// What only a file has.
    #[serde(flatten)]
    pub(crate) file: Option<FileDiagnosis>,
    /// Who has it open.
    pub(crate) opened_by: Option<String>,
    /// Tasks that have not ended.
    pub(crate) active: u64,
    /// Tasks that have ended, by status.
    pub(crate) ended: BTreeMap<TaskStatus, u64>,
    /// Flows, and their versions together.
    pub(crate) flows: (u64, u64),
    /// Alarms that are not resolved.
    pub(crate) open_alarms: u64,
    /// What is wrong; empty = nothing.
    pub(crate) problems: Vec<String>,
}
