//! All operations on the files of one folder, in order.

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A file. A file that is deleted and created again is another one.
pub(crate) type FileId = usize;

/// An operation on the disk.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A file was created.
    Create {
        /// Its name in the folder.
        name: String,
        /// The file that has this name from now on.
        file: FileId,
    },
    /// A file was deleted.
    Delete {
        /// Its name in the folder.
        name: String,
    },
    /// Bytes were written.
    Write {
        /// The file.
        file: FileId,
        /// The offset of the first byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// The length of a file was changed.
    Truncate {
        /// The file.
        file: FileId,
        /// The new length.
        length: u64,
    },
    /// A file was synced.
    Sync {
        /// The file.
        file: FileId,
        /// Operations before this number are on the disk after the sync. Later ones happened while the sync was running.
        covers: usize,
    },
    /// The names in the folder were synced.
    SyncFolder,
}

/// Records a folder while a store works in it.
#[derive(Debug)]
pub(crate) struct Recorder {
    inner: Mutex<Inner>,
}

/// The state of the recorder.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    found: BTreeMap<String, Vec<u8>>,
    operations: Vec<Operation>,
    names: BTreeMap<String, FileId>,
    /// The length of each file according to its operations.
    lengths: Vec<u64>,
}

/// The initial content of a folder, and all operations on it since.
#[derive(Debug)]
pub(crate) struct Recording {
    /// The initial files, complete and on the disk. Their numbers follow the order of their names.
    pub(crate) found: BTreeMap<String, Vec<u8>>,
    /// The operations, in order.
    pub(crate) operations: Vec<Operation>,
}

impl Recorder {
    /// Starts with the files in `folder`.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let mut inner = Inner::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            inner.found.insert(name, fs::read(entry.path())?);
        }
        for (name, bytes) in &inner.found {
            inner.names.insert(name.clone(), inner.lengths.len());
            inner.lengths.push(bytes.len() as u64);
        }
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// Locks the recorder while an operation is done, so that operations are recorded in the order in which they are done.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of operations so far. A power cut at this position comes after all of them.
    pub(crate) fn position(&self) -> usize {
        self.lock().position()
    }

    /// Returns the recording. The recorder starts again empty.
    pub(crate) fn take(&self) -> Recording {
        let inner = std::mem::take(&mut *self.lock());
        Recording { found: inner.found, operations: inner.operations }
    }
}

impl Inner {
    /// The number of operations so far.
    pub(crate) fn position(&self) -> usize {
        self.operations.len()
    }

    /// A file was opened. If the name is new, the file was created.
    pub(crate) fn open(&mut self, name: &str) -> FileId {
        if let Some(file) = self.names.get(name) {
            return *file;
        }
        let file = self.lengths.len();
        self.lengths.push(0);
        self.names.insert(name.to_owned(), file);
        self.operations.push(Operation::Create { name: name.to_owned(), file });
        file
    }

    pub(crate) fn delete(&mut self, name: &str) {
        self.names.remove(name);
        self.operations.push(Operation::Delete { name: name.to_owned() });
    }

    pub(crate) fn write(&mut self, file: FileId, offset: u64, data: Vec<u8>) {
        self.lengths[file] = self.lengths[file].max(offset + data.len() as u64);
        self.operations.push(Operation::Write { file, offset, data });
    }

    pub(crate) fn truncate(&mut self, file: FileId, length: u64) {
        self.lengths[file] = length;
        self.operations.push(Operation::Truncate { file, length });
    }

    pub(crate) fn sync(&mut self, file: FileId, covers: usize) {
        self.operations.push(Operation::Sync { file, covers });
    }

    pub(crate) fn sync_folder(&mut self) {
        self.operations.push(Operation::SyncFolder);
    }

    /// The length of a file according to its operations.
    pub(crate) fn length(&self, file: FileId) -> u64 {
        self.lengths[file]
    }
}
