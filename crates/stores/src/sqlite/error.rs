//! What SQLite's errors mean here.

use std::{fmt, path::Path};

use rusqlite::{Error, ErrorCode, ffi};
use windlass_core::TaskId;
use windlass_store::{DamagedTask, StoreError};

use super::room;

/// Why the file does not take writes any more. The same answer goes to every batch until it is read again.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    kind: FaultKind,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultKind {
    Full,
    Unavailable,
    Damaged,
}

impl Fault {
    /// A fault that has nothing to do with what the file holds.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Unavailable, message: message.into() }
    }

    /// What the file holds cannot be right.
    pub(super) fn damaged(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Damaged, message: message.into() }
    }

    /// There is no room for it.
    pub(super) fn full(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Full, message: message.into() }
    }

    /// Whether there is no room.
    pub(super) fn is_full(&self) -> bool {
        self.kind == FaultKind::Full
    }

    /// The same for an operator who starts a server on the store at `path`: with advice, where there is no room.
    pub(super) fn at_start(self, path: &Path) -> Self {
        if self.kind != FaultKind::Full {
            return self;
        }
        Self { message: room::to_start(path, &self.message), ..self }
    }

    /// Whether what was synced before may have to be synced again: after anything but a full disk.
    pub(super) fn distrusts_disk(&self) -> bool {
        self.kind != FaultKind::Full
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let kind = match error.sqlite_error_code() {
            _ if is_full(&error) => FaultKind::Full,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => FaultKind::Damaged,
            // A column of another type than the one that was written.
            None if matches!(
                error,
                Error::InvalidColumnType(..)
                    | Error::FromSqlConversionFailure(..)
                    | Error::QueryReturnedNoRows
            ) =>
            {
                FaultKind::Damaged
            }
            _ => FaultKind::Unavailable,
        };
        Self { kind, message: describe(&error) }
    }
}

/// Whether the error says that the disk is full. SQLite says so of the file and the log; the index of the log it
/// only fails to make larger, which has no other cause and loses nothing that was synced.
pub(super) fn is_full(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull) || is_full_index(error)
}

fn is_full_index(error: &Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_SHMSIZE)
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault.kind {
            FaultKind::Full => Self::Full(fault.message),
            FaultKind::Unavailable => Self::Unavailable(fault.message),
            FaultKind::Damaged => Self::Damaged(fault.message),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full(message) => Self { kind: FaultKind::Full, message },
            StoreError::Unavailable(message) => Self { kind: FaultKind::Unavailable, message },
            StoreError::Damaged(message) => Self { kind: FaultKind::Damaged, message },
            // Said of databases that servers share; no file says it.
            StoreError::Outgrown(message) => Self { kind: FaultKind::Unavailable, message },
            StoreError::LeaseLost => Self { kind: FaultKind::Unavailable, message: error.to_string() },
        }
    }
}

/// SQLite's message with its extended code, which names the system call that failed.
pub(super) fn describe(error: &Error) -> String {
    match error.sqlite_error() {
        Some(code) if is_full_index(error) => {
            format!("SQLite: no room for the index of the write-ahead log (code {})", code.extended_code)
        }
        Some(code) => format!("SQLite: {error} (code {})", code.extended_code),
        None => format!("SQLite: {error}"),
    }
}

/// What was read of a task, or what is wrong with its rows. Any other fault does not concern this task alone.
pub(super) fn or_damaged<T>(id: TaskId, read: Result<T, Fault>) -> Result<Result<T, DamagedTask>, Fault> {
    match read {
        Ok(read) => Ok(Ok(read)),
        Err(fault) if fault.kind == FaultKind::Damaged => {
            Ok(Err(DamagedTask { id, row: Box::default(), reason: fault.message.into() }))
        }
        Err(fault) => Err(fault),
    }
}

/// What was read, or why it is damaged. Any other fault does not concern this row alone.
pub(super) fn or_reason<T>(read: Result<T, Fault>) -> Result<Result<T, String>, Fault> {
    match read {
        Err(fault) if fault.kind == FaultKind::Damaged => Ok(Err(fault.message)),
        read => read.map(Ok),
    }
}

/// As [`or_reason`], of a row that is of no task, or that harms no other work of its task: `row` says which one it is.
pub(super) fn or_row<T>(
    read: Result<T, Fault>,
    row: impl FnOnce(&str) -> DamagedTask,
) -> Result<Result<T, DamagedTask>, Fault> {
    Ok(or_reason(read)?.map_err(|reason| row(&reason)))
}

/// Names the task that something of the store's format was read for.
pub(super) fn of_task(task: TaskId, error: impl Into<Fault>) -> Fault {
    let fault = error.into();
    Fault { message: format!("task {task}: {}", fault.message), ..fault }
}
