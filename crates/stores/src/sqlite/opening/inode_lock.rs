//! The lock on the database itself, whatever it is called.
//!
//! The lock file is found by its name. It does not keep a second server away that opens the database by a hard link, or
//! after somebody deleted the lock file. This lock is on the database's inode.
//!
//! It is a `flock`, which on Linux has nothing to do with the POSIX locks by which SQLite's connections keep out of one
//! another's way. But closing any handle of a file ends all POSIX locks that this process has on it. So an inode that
//! this process has locked already is refused before a handle is opened, and a handle is closed after SQLite's.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::sqlite::lock::{LockError, try_until_free};

/// A file, whatever its names are: its device and its number there.
type Inode = (u64, u64);

/// What this process has locked.
static LOCKED: Mutex<BTreeSet<Inode>> = Mutex::new(BTreeSet::new());

/// A database that is locked.
#[derive(Debug)]
pub(in crate::sqlite) struct InodeLock {
    inode: Inode,
    /// Only to be open: the lock ends with it.
    _file: File,
}

impl InodeLock {
    /// Locks the database at `path`; nothing where there is no file yet.
    pub(in crate::sqlite) fn take(path: &Path) -> Result<Option<Self>, LockError> {
        // Elsewhere the two kinds of locks may keep one another away.
        if !cfg!(target_os = "linux") {
            return Ok(None);
        }
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LockError::Io(error)),
        };
        let inode = (metadata.dev(), metadata.ino());
        if !locked().insert(inode) {
            return Err(LockError::Held(format!("process {}", std::process::id())));
        }
        match Self::lock(path) {
            Ok(file) => Ok(Some(Self { inode, _file: file })),
            Err(error) => {
                locked().remove(&inode);
                Err(error)
            }
        }
    }

    fn lock(path: &Path) -> Result<File, LockError> {
        let file = File::open(path).map_err(LockError::Io)?;
        if try_until_free(&file)? {
            return Ok(file);
        }
        let holder = "another process, which opened it by another name or whose lock file was deleted";
        Err(LockError::Held(holder.to_owned()))
    }
}

impl Drop for InodeLock {
    fn drop(&mut self) {
        locked().remove(&self.inode);
    }
}

fn locked() -> MutexGuard<'static, BTreeSet<Inode>> {
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The database at `path`, also where that is a symbolic link: SQLite keeps its log beside the database, not beside the
/// link.
pub(in crate::sqlite) fn behind_links(path: &Path) -> PathBuf {
    match path.is_symlink() {
        true => fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
        false => path.to_owned(),
    }
}
