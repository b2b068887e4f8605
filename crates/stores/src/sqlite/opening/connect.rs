//! The settings of each connection, and why they are so.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, DEFAULT_NAME, FileControl, OpenFlags, config::DbConfig};

use crate::sqlite::encoding::to_integer;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) enum Role {
    /// Writes; there is one.
    Writer,
    /// Copies the write-ahead log into the file.
    Checkpointer,
    /// Answers queries.
    Reader,
    /// Looks at a file that nobody changes and that has no write-ahead log, and leaves no other file beside it.
    Onlooker,
}

/// How much of the file a connection keeps in memory, in KiB. The writer touches the ends of its tables and
/// the active rows over and over; with 256 MiB it spent 12 % of its time on giving memory back.
const CACHE_KIB: i64 = 4 * 1024;

/// How much a reader keeps in memory, in KiB. A page of a list touches little, and the system caches the file.
const READER_CACHE_KIB: i64 = 2 * 1024;

/// The file grows by this much at once. It is the checkpoint thread that waits for it, and a file in few large
/// pieces is faster to write and to read.
pub(in crate::sqlite) const GROWTH_BYTES: i32 = 4 << 20;

/// How long a connection waits for a lock of another one. The writer is alone, so this is for a shell with
/// `sqlite3` that looks at the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a connection with the settings of its role.
pub(in crate::sqlite) fn connect(path: &Path, role: Role) -> rusqlite::Result<Connection> {
    // Each connection stays with one thread, so SQLite need not lock around every call.
    let access = match role {
        Role::Writer => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        Role::Checkpointer => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Role::Reader => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Role::Onlooker => OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
    };
    let named = if role == Role::Onlooker { immutable(path) } else { path.to_owned() };
    let connection = Connection::open_with_flags(named, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Otherwise SQLite compiles a statement again each time it is run with other values, to look for a better plan.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Sorting and recursion stay in memory: a temporary file could fail, and queries here are bounded.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // A damaged file must not be able to run anything: its schema may not call functions with side effects.
    connection.pragma_update(None, "trusted_schema", false)?;
    // Rows that agree with the page's own bookkeeping are found out early, for a few instructions per page.
    connection.pragma_update(None, "cell_size_check", true)?;
    let cache_kib = if role == Role::Writer { CACHE_KIB } else { READER_CACHE_KIB };
    connection.pragma_update(None, "cache_size", -cache_kib)?;
    // No memory map: an I/O error in it would be a signal that ends the process, not an error.
    connection.pragma_update(None, "mmap_size", 0)?;
    if !matches!(role, Role::Reader | Role::Onlooker) {
        // A commit returns when the write-ahead log is on disk. NORMAL would sync only at checkpoints, and a
        // power cut would lose what was acknowledged.
        connection.pragma_update(None, "synchronous", "FULL")?;
        // Checkpoints are made by a thread of their own, off the writer's way.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        // The log is never shortened: it keeps the size it was filled to, so commits overwrite.
        connection.pragma_update(None, "journal_size_limit", -1)?;
        connection.file_control(DEFAULT_NAME, FileControl::PersistWal(&mut 1))?;
        connection.file_control(DEFAULT_NAME, FileControl::ChunkSize(&mut GROWTH_BYTES.clone()))?;
    }
    Ok(connection)
}

/// The URI of a file that nobody changes.
fn immutable(path: &Path) -> PathBuf {
    let mut uri = OsString::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.push(format!("%{byte:02x}")),
            byte => uri.push(OsStr::from_bytes(&[*byte])),
        }
    }
    uri.push("?immutable=1");
    uri.into()
}

/// Keeps the file from growing beyond `bytes`.
pub(in crate::sqlite) fn limit_size(connection: &Connection, bytes: Option<u64>) -> rusqlite::Result<()> {
    let Some(bytes) = bytes else { return Ok(()) };
    let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    // The file grows in whole pieces, and SQLite raises the limit to what the file has.
    let growth = u64::from(GROWTH_BYTES.unsigned_abs());
    let pages = to_integer(bytes.div_ceil(growth).saturating_mul(growth)) / page;
    // SQLite answers with the limit it took: never less than what the file has already.
    connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
}

/// Has the file use a write-ahead log: a commit is one append to it, and readers and the writer never wait for
/// one another. It is a property of the file and stays.
pub(in crate::sqlite) fn use_wal(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| {
        let mode: String = row.get(0)?;
        if mode.eq_ignore_ascii_case("wal") {
            return Ok(());
        }
        // A file system without shared memory, such as some network mounts.
        let message =
            format!("the file cannot have a write-ahead log (it stays in mode {mode}); use a local disk");
        Err(rusqlite::Error::ToSqlConversionFailure(message.into()))
    })
}
