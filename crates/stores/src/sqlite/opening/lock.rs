//! The lock file that keeps a second server away.
//!
//! SQLite's own locks let any number of processes write in turn; active tasks live in one server's memory, so
//! there may be only one. The lock is the system's (`flock`): it ends with the process however that dies, so a
//! file that is left behind locks nothing. Its content is only for display: who has it.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};

use crate::sqlite::inode_lock::InodeLock;

/// How often the lock is tried before it counts as held. A server that was killed keeps it until the system has
/// taken its memory apart, and is often started again at once; a process that only looks ([`holder`]) has it
/// for a moment.
const ATTEMPTS: u32 = 50;
const ATTEMPT_EVERY: Duration = Duration::from_millis(20);

/// A lock that is held.
#[derive(Debug)]
pub(in crate::sqlite) struct LockFile {
    file: File,
    path: PathBuf,
    /// There was no such file before.
    is_new: bool,
    /// The lock on the database, once there is one.
    database: Option<InodeLock>,
    /// The index of the write-ahead log, only to be open: it is closed after SQLite's own handles.
    index: Option<File>,
}

/// Why the lock was not taken.
#[derive(Debug)]
pub(in crate::sqlite) enum LockError {
    /// Another process has it; this is what it wrote about itself.
    Held(String),
    /// The file cannot be made or opened.
    Io(io::Error),
}

impl LockFile {
    /// Takes the lock of the store at `path`, and writes who has it.
    pub(in crate::sqlite) fn take(path: &Path, hint: &str) -> Result<Self, LockError> {
        let path = lock_path(path);
        let is_new = !path.exists();
        let mut lock = Self { file: open(&path)?, path, is_new, database: None, index: None };
        for attempt in 1.. {
            if try_lock(&lock.file).map_err(LockError::Io)? {
                // One that was given up meanwhile locks nothing any more: others would make another file.
                if lock.is_in_place() {
                    break;
                }
                lock.file = open(&lock.path)?;
            } else if attempt >= ATTEMPTS {
                return Err(LockError::Held(read_holder(&mut lock.file)));
            } else {
                thread::sleep(ATTEMPT_EVERY);
            }
        }
        let hint = if hint.is_empty() { String::new() } else { format!(" ({hint})") };
        let text = format!("process {}{hint}\n", std::process::id());
        let written = lock.file.set_len(0).and_then(|()| lock.file.write_all(text.as_bytes()));
        match written {
            // On a full disk the lock works too, but the file does not name its holder.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(LockError::Io(error)),
            _ => Ok(lock),
        }
    }

    /// Locks the database itself as well, if it is there and is not locked yet.
    pub(in crate::sqlite) fn take_database(&mut self, path: &Path) -> Result<(), LockError> {
        if self.database.is_none() {
            self.database = InodeLock::take(path)?;
        }
        Ok(())
    }

    /// Keeps the index of the write-ahead log open.
    pub(in crate::sqlite) fn keep_open(&mut self, index: File) {
        self.index = Some(index);
    }

    /// Gives the lock up of what turned out to be no store, and leaves no file behind that was not there.
    pub(in crate::sqlite) fn give_up(self) {
        if self.is_new {
            // What cannot be removed locks nothing, so it only stays in people's way.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Whether the file is still the one that others find.
    fn is_in_place(&self) -> bool {
        match (self.file.metadata(), std::fs::metadata(&self.path)) {
            (Ok(ours), Ok(found)) => (ours.dev(), ours.ino()) == (found.dev(), found.ino()),
            _ => false,
        }
    }
}

fn open(path: &Path) -> Result<File, LockError> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    options.map_err(LockError::Io)
}

/// Who has the store at `path` open, if anyone.
pub(in crate::sqlite) fn holder(path: &Path) -> io::Result<Option<String>> {
    let mut file = match File::open(lock_path(path)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A shared lock is enough to learn that nobody has the exclusive one, and ends with this file handle.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(Some(read_holder(&mut file))),
        Err(error) => Err(error.into()),
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Tries to lock a file for as long as a server that was killed may keep it. False = somebody has it.
pub(in crate::sqlite) fn try_until_free(file: &File) -> Result<bool, LockError> {
    for _ in 1..ATTEMPTS {
        if try_lock(file).map_err(LockError::Io)? {
            return Ok(true);
        }
        thread::sleep(ATTEMPT_EVERY);
    }
    try_lock(file).map_err(LockError::Io)
}

fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    // The holder may be about to write; then all that is known is that it exists.
    match file.take(200).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => "a process that did not say which".to_owned(),
    }
}
