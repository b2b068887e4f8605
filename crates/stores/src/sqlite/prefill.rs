//! Giving the write-ahead log its full size before it is used.
//!
//! Appending to a file that grows makes `fdatasync` write the file system's journal as well: 2.6 ms instead of
//! 0.08 ms on the disk this was measured on. So the log is filled with zeros once. SQLite overwrites it from
//! its beginning after each complete checkpoint and never shortens it (`connect.rs` says which settings see to
//! that). It reads a log only as far as checksums and the salt of its header agree, so zeros behind the last
//! frame, or a log of nothing but zeros, mean to it that there is nothing more.

use std::{
    fs::OpenOptions,
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// How much is written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Fills the log of the store at `path` up to `size` bytes where it is shorter. SQLite may have the file open,
/// but nobody may be writing.
pub(super) fn prefill_wal(path: &Path, size: u64) -> io::Result<()> {
    let mut wal = OpenOptions::new().write(true).create(true).truncate(false).open(wal_path(path))?;
    let mut at = wal.seek(SeekFrom::End(0))?;
    if at >= size {
        return Ok(());
    }
    let zeros = vec![0; CHUNK_BYTES];
    while at < size {
        let length = CHUNK_BYTES.min(usize::try_from(size - at).unwrap_or(CHUNK_BYTES));
        wal.write_all(&zeros[..length])?;
        at += length as u64;
    }
    // The size and the blocks must be in the file system's journal now: that is what the zeros are for.
    wal.sync_all()
}

/// Where SQLite keeps the write-ahead log of the file at `path`.
pub(super) fn wal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}
