//! A file system under SQLite that forwards everything to the usual one and records it.
//!
//! It becomes the default of this process, so the store under test is the real one, unchanged. It records only files in
//! the recorded folders. SQLite keeps a table of functions with each open file. Here a copy of the usual table has its
//! own functions for what changes the disk, and all other calls go directly to the usual functions:
//!
//! ```text
//!   sqlite3_file: │ methods ──▶ own table │ … what the usual file system keeps … │ handle │
//! ```
//!
//! The store writes to the log without SQLite as well, when it fills the log ahead with zeros. Such writes are noticed by
//! the length of the file, and count as written and not synced until SQLite syncs the file. The shared memory of the log
//! is not recorded, because every start creates it again.

#![allow(unsafe_code, reason = "SQLite's file systems are tables of C functions")]

use std::{
    collections::BTreeMap,
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rusqlite::ffi::{
    SQLITE_ERROR, SQLITE_OK, SQLITE_OPEN_CREATE, SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL,
    SQLITE_OPEN_SUPER_JOURNAL, SQLITE_OPEN_WAL, sqlite3_file, sqlite3_io_methods, sqlite3_vfs,
    sqlite3_vfs_find, sqlite3_vfs_register,
};

use crate::recording::{FileId, Inner, Recorder};

/// Files that contain transactions. SQLite syncs the folder with the first sync of a file that it may have created.
const JOURNALS: c_int = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL;

/// The folders that are recorded.
static FOLDERS: Mutex<BTreeMap<PathBuf, Arc<Recorder>>> = Mutex::new(BTreeMap::new());

/// The usual file system.
struct Usual(*mut sqlite3_vfs);

// SAFETY: SQLite itself calls it from any thread, and it is never changed or freed.
unsafe impl Send for Usual {}
// SAFETY: as above.
unsafe impl Sync for Usual {}

static USUAL: OnceLock<Usual> = OnceLock::new();

/// The record of an open file in a recorded folder.
struct Handle {
    recorder: Arc<Recorder>,
    file: FileId,
    usual: *const sqlite3_io_methods,
    /// The table of functions that SQLite calls.
    methods: sqlite3_io_methods,
    /// Whether the next sync also syncs the folder.
    syncs_folder: AtomicBool,
}

/// Records everything SQLite does in `folder` from now on, until [`end`] is called with it.
pub(crate) fn begin(folder: &Path) -> io::Result<Arc<Recorder>> {
    install()?;
    let recorder = Arc::new(Recorder::new(folder)?);
    folders().insert(folder.to_owned(), recorder.clone());
    Ok(recorder)
}

/// Stops recording `folder`.
pub(crate) fn end(folder: &Path) {
    folders().remove(folder);
}

fn folders() -> MutexGuard<'static, BTreeMap<PathBuf, Arc<Recorder>>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this the default file system of the process, once.
fn install() -> io::Result<()> {
    let mut result = SQLITE_OK;
    USUAL.get_or_init(|| {
        // SAFETY: a null name asks for the default, which lives as long as the process. The copy is leaked, so SQLite may
        // keep it. What is not replaced in the copy uses only the fields that were copied.
        unsafe {
            let usual = sqlite3_vfs_find(ptr::null());
            let mut own = *usual;
            own.pNext = ptr::null_mut();
            own.zName = c"windlass-powercut".as_ptr();
            own.szOsFile = handle_offset(usual) + size_of::<*mut Handle>() as c_int;
            own.xOpen = Some(open);
            own.xDelete = Some(delete);
            result = sqlite3_vfs_register(Box::leak(Box::new(own)), 1);
            Usual(usual)
        }
    });
    if result == SQLITE_OK { Ok(()) } else { Err(io::Error::other("SQLite refuses another file system")) }
}

fn usual() -> *mut sqlite3_vfs {
    USUAL.get().map_or(ptr::null_mut(), |usual| usual.0)
}

/// The position of the handle in an open file: behind the data that the usual file system keeps there.
///
/// # Safety
/// `usual` must be the usual file system.
unsafe fn handle_offset(usual: *mut sqlite3_vfs) -> c_int {
    // SAFETY: the caller's promise.
    let size = unsafe { (*usual).szOsFile };
    (size + 7) / 8 * 8
}

/// The handle of an open file that is recorded.
///
/// # Safety
/// `file` must have been opened by [`open`] and be recorded.
unsafe fn handle_place(file: *mut sqlite3_file) -> *mut *mut Handle {
    // SAFETY: SQLite allocates as many bytes for a file as `szOsFile` says, aligned to 8.
    unsafe { file.cast::<u8>().add(handle_offset(usual()) as usize).cast() }
}

/// As [`handle_place`].
///
/// # Safety
/// As for [`handle_place`].
unsafe fn handle<'a>(file: *mut sqlite3_file) -> &'a Handle {
    // SAFETY: `open` put it there, `close` takes it, and SQLite uses no file after it was closed.
    unsafe { &**handle_place(file) }
}

/// The recorder of the folder of a file, and the file's name in it.
///
/// # Safety
/// `path` must be a path as SQLite gives it.
unsafe fn recorder_of(path: *const c_char) -> Option<(Arc<Recorder>, String)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: SQLite's paths end with a zero byte and live during the call.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    let recorder = folders().get(path.parent()?)?.clone();
    Some((recorder, path.file_name()?.to_str()?.to_owned()))
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    path: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's arguments are passed on. The usual file system fills the beginning of `file`, whose
    // functions take it as it is; only the pointer to the table is replaced, and `close` puts it back.
    unsafe {
        let Some(usual_open) = (*usual()).xOpen else { return SQLITE_ERROR };
        let code = usual_open(usual(), path, file, flags, out_flags);
        if code != SQLITE_OK || flags & (SQLITE_OPEN_MAIN_DB | JOURNALS) == 0 {
            return code;
        }
        let Some((recorder, name)) = recorder_of(path) else { return code };
        let table = (*file).pMethods;
        let mut methods = *table;
        methods.xClose = Some(close);
        methods.xWrite = Some(write);
        methods.xTruncate = Some(truncate);
        methods.xSync = Some(sync);
        methods.xFileControl = Some(control);
        let id = recorder.lock().open(&name);
        let syncs_folder = flags & SQLITE_OPEN_CREATE != 0 && flags & JOURNALS != 0;
        let handle = Box::new(Handle {
            recorder,
            file: id,
            usual: table,
            methods,
            syncs_folder: AtomicBool::new(syncs_folder),
        });
        (*file).pMethods = &raw const handle.methods;
        let handle = Box::into_raw(handle);
        handle_place(file).write(handle);
        notice(&mut (*handle).recorder.lock(), &*handle, file);
        code
    }
}

unsafe extern "C" fn delete(_: *mut sqlite3_vfs, path: *const c_char, sync_folder: c_int) -> c_int {
    // SAFETY: SQLite's arguments are passed on.
    unsafe {
        let Some(usual_delete) = (*usual()).xDelete else { return SQLITE_ERROR };
        let Some((recorder, name)) = recorder_of(path) else {
            return usual_delete(usual(), path, sync_folder);
        };
        let mut recorded = recorder.lock();
        let code = usual_delete(usual(), path, sync_folder);
        if code == SQLITE_OK {
            recorded.delete(&name);
            if sync_folder != 0 {
                recorded.sync_folder();
            }
        }
        code
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: the file is recorded, or this function would not be in its table; its handle goes with it.
    unsafe {
        let handle = Box::from_raw(*handle_place(file));
        (*file).pMethods = handle.usual;
        (*handle.usual).xClose.map_or(SQLITE_ERROR, |usual_close| usual_close(file))
    }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    data: *const c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: the file is recorded; SQLite gives `length` bytes at `data`.
    unsafe {
        let handle = handle(file);
        let mut recorded = handle.recorder.lock();
        notice(&mut recorded, handle, file);
        let Some(usual_write) = (*handle.usual).xWrite else { return SQLITE_ERROR };
        let code = usual_write(file, data, length, offset);
        if code == SQLITE_OK {
            let bytes = std::slice::from_raw_parts(data.cast::<u8>(), length as usize);
            recorded.write(handle.file, offset as u64, bytes.to_vec());
        }
        code
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, length: i64) -> c_int {
    // SAFETY: the file is recorded.
    unsafe {
        let handle = handle(file);
        let mut recorded = handle.recorder.lock();
        let Some(usual_truncate) = (*handle.usual).xTruncate else { return SQLITE_ERROR };
        let code = usual_truncate(file, length);
        // The file may be longer than the caller asked for, because files grow and shrink in chunks.
        notice(&mut recorded, handle, file);
        code
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the file is recorded. Other threads may work during the sync; the sync does not cover what they do then.
    unsafe {
        let handle = handle(file);
        let covers = {
            let mut recorded = handle.recorder.lock();
            notice(&mut recorded, handle, file);
            recorded.position()
        };
        let Some(usual_sync) = (*handle.usual).xSync else { return SQLITE_ERROR };
        let code = usual_sync(file, flags);
        if code == SQLITE_OK {
            let mut recorded = handle.recorder.lock();
            recorded.sync(handle.file, covers);
            if handle.syncs_folder.swap(false, Ordering::Relaxed) {
                recorded.sync_folder();
            }
        }
        code
    }
}

unsafe extern "C" fn control(file: *mut sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the file is recorded.
    unsafe {
        let handle = handle(file);
        let mut recorded = handle.recorder.lock();
        let Some(usual_control) = (*handle.usual).xFileControl else { return SQLITE_ERROR };
        let code = usual_control(file, operation, argument);
        // The file system may have made the file longer ahead of writes.
        notice(&mut recorded, handle, file);
        code
    }
}

/// Records changes of the file's length that came without a recorded write.
///
/// # Safety
/// `handle` must be that of `file`.
unsafe fn notice(recorded: &mut Inner, handle: &Handle, file: *mut sqlite3_file) {
    // SAFETY: the caller's promise; the buffer has the length that is read.
    unsafe {
        let (Some(size_of_file), Some(read)) = ((*handle.usual).xFileSize, (*handle.usual).xRead) else {
            return;
        };
        let mut length = 0;
        if size_of_file(file, &raw mut length) != SQLITE_OK {
            return;
        }
        let (length, known) = (length as u64, recorded.length(handle.file));
        if length < known {
            recorded.truncate(handle.file, length);
        } else if length > known {
            let mut data = vec![0_u8; (length - known) as usize];
            if read(file, data.as_mut_ptr().cast(), data.len() as c_int, known as i64) == SQLITE_OK {
                recorded.write(handle.file, known, data);
            }
        }
    }
}
