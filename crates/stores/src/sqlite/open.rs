//! Opening the file: what is checked before, and the settings of each connection.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, DEFAULT_NAME, ErrorCode, FileControl, OpenFlags};
use thiserror::Error;

use super::{
    encoding::to_integer,
    error::describe,
    lock::{LockError, LockFile},
    migrate::{self, Format, VERSION},
    prefill::prefill_wal,
};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// What the lock file tells people beside the process number, such as where the server listens.
    pub lock_hint: String,
    /// Size of the write-ahead log in bytes. It takes that much disk from the start, and a checkpoint must end
    /// before it is used up, or the writer waits.
    pub wal_bytes: u64,
    /// The file may not grow beyond this, rounded up to 4 MiB; nothing = as the disk allows. What does not fit is
    /// refused as on a full disk.
    pub file_bytes_max: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { lock_hint: String::new(), wal_bytes: 64 << 20, file_bytes_max: None }
    }
}

/// Why a store was not opened. Nothing was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another server has it.
    #[error(
        "{path} is open in {holder}: a store has one server; stop that one, or give this one a file of its own"
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// What the other server wrote about itself: its process number and a hint.
        holder: String,
    },
    /// The directory is not there.
    #[error("the directory of {path} does not exist: create it, or choose another path")]
    NoDirectory {
        /// The file.
        path: PathBuf,
    },
    /// The path is no file.
    #[error("{path} is a directory, and must be a file (or nothing yet)")]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{path} is no database of Windlass: {found}; it was left as it is, choose another path")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it seems to be.
        found: String,
    },
    /// A newer program wrote it.
    #[error(
        "{path} has format {found}, and this version of windlass knows formats up to {known}: use the version that wrote it, or a newer one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i32,
        /// The newest one known here.
        known: i32,
    },
    /// The system refuses.
    #[error("cannot {what} {path}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// SQLite refuses.
    #[error("cannot open {path}: {message}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        message: String,
    },
}

impl OpenError {
    pub(super) fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        if matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase)) {
            return Self::Foreign { path: path.into(), found: describe(error) };
        }
        Self::Sqlite { path: path.into(), message: describe(error) }
    }

    pub(super) fn io(what: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Io { what, path: path.into(), error }
    }
}

/// Takes the lock, checks the file and brings it to today's format, or makes a new one. Gives the connection
/// that is to write: closing it would checkpoint the whole log, which a start need not wait for.
pub(super) fn prepare(path: &Path, options: &SqliteOptions) -> Result<(LockFile, Connection), OpenError> {
    check_path(path)?;
    let lock = LockFile::take(path, &options.lock_hint).map_err(|error| match error {
        LockError::Held(holder) => OpenError::Locked { path: path.into(), holder },
        LockError::Io(error) => OpenError::io("make the lock file of", path, error),
    })?;
    check_header(path)?;
    let sqlite = |error| OpenError::sqlite(path, &error);
    let mut connection = connect(path, Role::Writer).map_err(sqlite)?;
    let from = match migrate::format(&connection).map_err(sqlite)? {
        Format::Empty => 0,
        Format::Windlass(version) if version <= VERSION => version,
        Format::Windlass(found) => {
            return Err(OpenError::Newer { path: path.into(), found, known: VERSION });
        }
        Format::Foreign => {
            let found = "a SQLite database of another program".to_owned();
            return Err(OpenError::Foreign { path: path.into(), found });
        }
    };
    use_wal(&connection).map_err(sqlite)?;
    let mut token_key = [0; 32];
    getrandom::fill(&mut token_key)
        .map_err(|error| OpenError::io("get random bytes for", path, io::Error::other(error)))?;
    migrate::migrate(&mut connection, from, &token_key).map_err(sqlite)?;
    limit_size(&connection, options.file_bytes_max).map_err(sqlite)?;
    prefill_wal(path, options.wal_bytes)
        .map_err(|error| OpenError::io("fill the write-ahead log of", path, error))?;
    sync_directory(path).map_err(|error| OpenError::io("sync the directory of", path, error))?;
    Ok((lock, connection))
}

fn check_path(path: &Path) -> Result<(), OpenError> {
    if path.is_dir() {
        return Err(OpenError::NotAFile { path: path.into() });
    }
    match std::fs::metadata(directory(path)) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(OpenError::io("reach the directory of", path, error))
        }
        _ => Err(OpenError::NoDirectory { path: path.into() }),
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// What every SQLite file begins with.
const SQLITE_HEADER: &[u8; 16] = b"SQLite format 3\0";

/// Looks at the file before SQLite does: SQLite takes a file that is shorter than a page for a new database.
/// Also whether the system lets us read and write it. The lock must be held: closing a file ends all locks that
/// this process has on it, and so those of SQLite.
fn check_header(path: &Path) -> Result<(), OpenError> {
    let mut file = match File::options().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(OpenError::io("open", path, error)),
    };
    let mut header = Vec::new();
    let read = Read::by_ref(&mut file).take(SQLITE_HEADER.len() as u64).read_to_end(&mut header);
    read.map_err(|error| OpenError::io("read", path, error))?;
    if header.is_empty() || header == SQLITE_HEADER {
        return Ok(());
    }
    Err(OpenError::Foreign { path: path.into(), found: "a file that is no SQLite database".to_owned() })
}

/// A new file is there after a power cut only once its directory is on disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory(path))?.sync_all()
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Writes; there is one.
    Writer,
    /// Copies the write-ahead log into the file.
    Checkpointer,
    /// Answers queries.
    Reader,
}

/// How much of the file a connection keeps in memory, in KiB. The writer touches the ends of its tables and
/// the active rows over and over; with 256 MiB it spent 12 % of its time on giving memory back.
const CACHE_KIB: i64 = 4 * 1024;

/// How much a reader keeps in memory, in KiB. A page of a list touches little, and the system caches the file.
const READER_CACHE_KIB: i64 = 2 * 1024;

/// The file grows by this much at once. It is the checkpoint thread that waits for it, and a file in few large
/// pieces is faster to write and to read.
const GROWTH_BYTES: i32 = 4 << 20;

/// How long a connection waits for a lock of another one. The writer is alone, so this is for a shell with
/// `sqlite3` that looks at the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a connection with the settings of its role.
pub(super) fn connect(path: &Path, role: Role) -> rusqlite::Result<Connection> {
    // Each connection stays with one thread, so SQLite need not lock around every call.
    let access = match role {
        Role::Writer => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        Role::Checkpointer => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Role::Reader => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
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
    if role != Role::Reader {
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

/// Keeps the file from growing beyond `bytes`.
pub(super) fn limit_size(connection: &Connection, bytes: Option<u64>) -> rusqlite::Result<()> {
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
fn use_wal(connection: &Connection) -> rusqlite::Result<()> {
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
