//! How small things are written in columns: statuses, acts and ids as SQLite knows them.

use rusqlite::{Row, types::Type};
use windlass_core::TaskId;

// `final.status` is what `ENDED` says, newest listed in this order; `history.act` and `log.act` are act codes.
pub(super) use crate::encoding::{ENDED, act_code, act_key, ending_code, from_integer, to_integer};

/// Reads a task's id.
pub(super) fn task_id(row: &Row<'_>, column: usize) -> rusqlite::Result<TaskId> {
    match row.get_ref(column)?.as_blob().ok().and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => Ok(TaskId::from_bytes(bytes)),
        None => {
            Err(rusqlite::Error::InvalidColumnType(column, "a task id of 16 bytes".to_owned(), Type::Blob))
        }
    }
}
