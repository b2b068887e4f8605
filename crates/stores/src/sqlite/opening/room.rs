//! The room on the disk that a store has, and that it needs.
//!
//! The write-ahead log has its room from the start. What needs more is copying it into the file, which grows by
//! what was added since the last copy: at most the size of the log, as each page of the log is one of the file.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, Error, ErrorCode};

use crate::sqlite::{
    connect::GROWTH_BYTES,
    encoding::from_integer,
    error::{Fault, describe, is_full},
    open::directory,
    prefill::wal_path,
};

/// Size of a log that was not made yet, for advice.
const LOG_BYTES: u64 = 64 << 20;

/// That there is not enough room on a file system.
#[derive(Debug)]
pub(in crate::sqlite) struct NoRoom {
    /// The directory of the store.
    directory: PathBuf,
    /// How many bytes must be free in it.
    needed: u64,
    /// How many are.
    free: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, needed, free } = self;
        let (needed, free) = (mebibytes(*needed), mebibytes(*free));
        write!(f, "the disk is full: free {needed} in {}, where {free} are free now", directory.display())
    }
}

/// As people read it, rounded up.
fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// What keeps the log from being copied. SQLite reports a file that cannot grow as any failed write.
pub(in crate::sqlite) fn fault_of_copying(connection: &Connection, path: &Path, error: Error) -> Fault {
    let may_be_full = is_full(&error) || error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure);
    match no_room(connection, path).filter(|_| may_be_full) {
        Some(no_room) => Fault::full(with_advice(&no_room, &describe(&error))),
        None => error.into(),
    }
}

/// The same fault of a write, with advice where it is the disk that is full.
pub(in crate::sqlite) fn explain(connection: &Connection, path: &Path, fault: Fault) -> Fault {
    match no_room(connection, path).filter(|_| fault.is_full()) {
        Some(no_room) => Fault::full(with_advice(&no_room, &fault.to_string())),
        None => fault,
    }
}

fn with_advice(no_room: &NoRoom, why: &str) -> String {
    format!("{no_room}; it goes on by itself then ({why})")
}

/// Whether there is too little room to copy the log. The connection knows how large the file will be.
fn no_room(connection: &Connection, path: &Path) -> Option<NoRoom> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get(0).map(from_integer)).ok();
    let becomes = number("page_count")? * number("page_size")?;
    // The file grows in whole pieces.
    let growth = u64::from(GROWTH_BYTES.unsigned_abs());
    let grows = becomes.saturating_sub(fs::metadata(path).ok()?.len());
    let needed = grows.div_ceil(growth).max(1) * growth;
    let free = free_bytes(path).ok()?;
    (free < needed).then(|| NoRoom { directory: directory(path).to_owned(), needed, free })
}

/// What to say of a store that cannot be opened for want of room, and why. Its log is to be copied then, so it
/// needs as much as that has at most.
pub(in crate::sqlite) fn to_start(path: &Path, why: &str) -> String {
    let log = fs::metadata(wal_path(path)).map_or(0, |metadata| metadata.len());
    let directory = directory(path);
    match free_bytes(directory) {
        Ok(free) => {
            let no_room = NoRoom { directory: directory.to_owned(), needed: log.max(LOG_BYTES), free };
            format!("{no_room}, then start again; what was accepted is kept ({why})")
        }
        Err(error) => format!("the disk is full ({why}), and does not say how much is free ({error})"),
    }
}

fn free_bytes(path: &Path) -> io::Result<u64> {
    let file_system = rustix::fs::statvfs(path)?;
    Ok(file_system.f_bavail.saturating_mul(file_system.f_frsize))
}
