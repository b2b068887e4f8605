//! Opening the file: what is checked before it is used.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, ErrorCode};
use thiserror::Error;

use super::{
    connect::{Role, connect, limit_size, use_wal},
    error::{describe, is_full},
    inode_lock::behind_links,
    lock::{LockError, LockFile},
    migrate::{self, Format, VERSION},
    prefill::{prefill_index, prefill_wal, trim_wal},
    room,
    writer::frames,
};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// What the lock file says beside the process number, such as where the server listens.
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
    /// The path is not a file.
    #[error("{path} is a directory, and must be a file (or nothing yet)")]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{path} is not a database of Windlass: {found}; it was left as it is, choose another path")]
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
    /// There is no room for it.
    #[error("cannot open {path}: {message}")]
    Full {
        /// The file.
        path: PathBuf,
        /// How much room to make, and where.
        message: String,
    },
    /// What a start reads is damaged.
    #[error(
        "{path} is damaged: {found}; it was left as it is: `windlass doctor` lists what is wrong, and a backup may be used instead"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite finds.
        found: String,
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
        if is_full(error) {
            return Self::Full { path: path.into(), message: room::to_start(path, &describe(error)) };
        }
        Self::Sqlite { path: path.into(), message: describe(error) }
    }

    pub(super) fn io(what: &'static str, path: &Path, error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::StorageFull {
            let message = room::to_start(path, &format!("cannot {what} it: {error}"));
            return Self::Full { path: path.into(), message };
        }
        Self::Io { what, path: path.into(), error }
    }
}

/// Takes the lock of the store at `path`.
pub(super) fn take_lock(path: &Path, hint: &str) -> Result<LockFile, OpenError> {
    LockFile::take(path, hint).map_err(|error| not_locked(path, error))
}

fn not_locked(path: &Path, error: LockError) -> OpenError {
    match error {
        LockError::Held(holder) => OpenError::Locked { path: path.into(), holder },
        LockError::Io(error) => OpenError::io("make the lock file of", path, error),
    }
}

/// Takes the lock, checks the file and brings it to today's format, or makes a new one. Gives the connection
/// that is to write: closing it would checkpoint the whole log, which a start need not wait for.
pub(super) fn prepare(path: &Path, options: &SqliteOptions) -> Result<(LockFile, Connection), OpenError> {
    check_path(path)?;
    let mut lock = take_lock(path, &options.lock_hint)?;
    let mut lock_database = || lock.take_database(path).map_err(|error| not_locked(path, error));
    // A new database can be locked only once it is made: nobody else knows of it by then.
    let prepared = lock_database().and_then(|()| prepare_locked(path, options));
    match prepared.and_then(|connection| lock_database().map(|()| connection)) {
        Ok(connection) => {
            match prefill_index(path, options.wal_bytes) {
                Ok(index) => lock.keep_open(index),
                // Other file systems than the machine's may keep it elsewhere.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(OpenError::io("open the index of the log of", path, error)),
            }
            Ok((lock, connection))
        }
        Err(error) => {
            lock.give_up();
            Err(error)
        }
    }
}

fn prepare_locked(path: &Path, options: &SqliteOptions) -> Result<Connection, OpenError> {
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
    check_structure(&connection, path)?;
    limit_size(&connection, options.file_bytes_max).map_err(sqlite)?;
    // A server that was killed on a full disk leaves what it could not finish: room for this one.
    if let Some(frames) = frames(&connection).map_err(sqlite)? {
        trim_wal(path, frames, options.wal_bytes)
            .map_err(|error| OpenError::io("cut off the write-ahead log of", path, error))?;
    }
    match prefill_wal(path, options.wal_bytes) {
        // A shorter log is only slower.
        Err(error) if error.kind() == io::ErrorKind::StorageFull && from > 0 => {
            tracing::warn!(%error, "the write-ahead log could not be filled to its full size");
        }
        filled => filled.map_err(|error| OpenError::io("fill the write-ahead log of", path, error))?,
    }
    sync_directory(path).map_err(|error| OpenError::io("sync the directory of", path, error))?;
    Ok(connection)
}

/// The tables that a start reads whole: a row that is missing from one of them would be missed by nobody.
const READ_WHOLE: [&str; 11] = [
    "sqlite_schema",
    "meta",
    "flow",
    "queue",
    "message",
    "line",
    "active",
    "lock",
    "lock_waiter",
    "limit_rule",
    "record",
];

/// Checks that all rows are found of the tables that are read whole, which takes as long as reading them.
fn check_structure(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    for table in READ_WHOLE {
        let mut found = None;
        let checked = connection.pragma(None, "quick_check", table, |row| {
            found = found.take().or(Some(row.get::<_, String>(0)?));
            Ok(())
        });
        checked.map_err(|error| OpenError::sqlite(path, &error))?;
        if let Some(found) = found.filter(|found| found != "ok") {
            return Err(OpenError::Damaged { path: path.into(), found });
        }
    }
    Ok(())
}

/// Refuses a path at which there can be no store: a directory, or a file whose directory is missing.
///
/// # Errors
/// When the path cannot be one of a store. Nothing was changed.
pub fn check_path(path: &Path) -> Result<(), OpenError> {
    let path = &*behind_links(path);
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

/// Where the file at `path` lies.
pub(super) fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// What every SQLite file begins with.
const SQLITE_HEADER: &[u8; 16] = b"SQLite format 3\0";

/// Looks at the file before SQLite does: SQLite takes a file that is shorter than a page for a new database.
/// A new file is made here, so that only its owner can read it: SQLite gives the write-ahead log and its index the mode of
/// the file. Also whether the system lets us read and write it. The lock must be held: closing a file ends all locks that
/// this process has on it, and so those of SQLite.
fn check_header(path: &Path) -> Result<(), OpenError> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let mut file = file.map_err(|error| OpenError::io("open", path, error))?;
    let mut header = Vec::new();
    let read = Read::by_ref(&mut file).take(SQLITE_HEADER.len() as u64).read_to_end(&mut header);
    read.map_err(|error| OpenError::io("read", path, error))?;
    // A power cut while the first page was written may have left anything there. SQLite takes it back by the
    // journal that it wrote before, or says itself that this is none of its files.
    if header.is_empty() || header == SQLITE_HEADER || rollback_journal(path).exists() {
        return Ok(());
    }
    Err(OpenError::Foreign { path: path.into(), found: "a file that is not a SQLite database".to_owned() })
}

/// Where SQLite keeps what it needs to take a first transaction back, before there is a write-ahead log.
fn rollback_journal(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-journal");
    name.into()
}

/// A new file is there after a power cut only once its directory is on disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory(path))?.sync_all()
}
