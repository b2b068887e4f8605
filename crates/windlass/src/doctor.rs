//! The report of `windlass doctor` about a store.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use windlass_api::TaskStatus;

/// Facts about the file of a store.
#[derive(Debug, Serialize)]
pub(crate) struct FileDiagnosis {
    /// When it was created.
    pub(crate) created_at: Option<Timestamp>,
    /// The number of times it was opened.
    pub(crate) opened: u32,
    /// Its size in bytes.
    pub(crate) file_bytes: u64,
    /// The size of the write-ahead log in bytes; most of it is preallocated and empty.
    pub(crate) wal_bytes: u64,
    /// Free bytes of its file system.
    pub(crate) free_bytes: u64,
}

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    /// The store.
    pub(crate) store: String,
    /// Version of its format.
    pub(crate) format: i64,
    /// Facts that only a file has.
    #[serde(flatten)]
    pub(crate) file: Option<FileDiagnosis>,
    /// The server that has it open; none if none has.
    pub(crate) opened_by: Option<String>,
    /// Tasks that have not ended.
    pub(crate) active: u64,
    /// Tasks that have ended, by status.
    pub(crate) ended: BTreeMap<TaskStatus, u64>,
    /// The number of flows, and of all their versions.
    pub(crate) flows: (u64, u64),
    /// Alarms that are not resolved.
    pub(crate) open_alarms: u64,
    /// The problems found.
    pub(crate) problems: Vec<String>,
}
