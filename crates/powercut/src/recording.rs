//! Everything that is done to the files of one folder, in order.

use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// One file; a file that is deleted and made again is another one.
pub(crate) type FileId = usize;

/// Something that was done to the disk.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A file was made.
    Create {
        /// Its name in the folder.
        name: String,
        /// Which it is from now on.
        file: FileId,
    },
    /// A file was deleted.
    Delete {
        /// Its name in the folder.
        name: String,
    },
    /// Bytes were written.
    Write {
        /// To which file.
        file: FileId,
        /// Where they begin.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// A file got another length.
    Truncate {
        /// Which.
        file: FileId,
        /// Its length now.
        length: u64,
    },
    /// A file was synced.
    Sync {
        /// Which.
        file: FileId,
        /// Operations before this number are on the disk by it; those after were done while it ran.
        covers: usize,
    },
    /// The names in the folder were synced.
    SyncFolder,
}

/// Records one folder while it is worked in.
#[derive(Debug)]
pub(crate) struct Recorder {
    inner: Mutex<Inner>,
}

/// What the recorder knows.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    found: BTreeMap<String, Vec<u8>>,
    operations: Vec<Operation>,
    names: BTreeMap<String, FileId>,
    /// Length of each file as far as its operations tell.
    lengths: Vec<u64>,
}

/// A folder as it was found, and everything that was done to it since.
#[derive(Debug)]
pub(crate) struct Recording {
    /// The files that were there, whole and on the disk; their numbers follow their names.
    pub(crate) found: BTreeMap<String, Vec<u8>>,
    /// What was done, in order.
    pub(crate) operations: Vec<Operation>,
}

impl Recorder {
    /// Begins with what is in `folder`.
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

    /// Keeps all others from doing something meanwhile, so that the order told is the order done.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many operations there are by now: a power cut after them would be here.
    pub(crate) fn position(&self) -> usize {
        self.lock().position()
    }

    /// What was recorded; it begins anew with nothing.
    pub(crate) fn take(&self) -> Recording {
        let inner = std::mem::take(&mut *self.lock());
        Recording { found: inner.found, operations: inner.operations }
    }
}

impl Inner {
    /// How many operations there are by now.
    pub(crate) fn position(&self) -> usize {
        self.operations.len()
    }

    /// A file was opened; when the name is new, it was made.
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

    /// The length of a file as far as its operations tell.
    pub(crate) fn length(&self, file: FileId) -> u64 {
        self.lengths[file]
    }
}
