//! Giving the write-ahead log its full size before it is used.
//!
//! Appending to a file that grows makes `fdatasync` write the file system's journal as well: 2.6 ms instead of
//! 0.08 ms on the disk this was measured on. So the log is filled with zeros once. SQLite overwrites it from
//! its beginning after each complete checkpoint and never shortens it (`connect.rs` has the settings for
//! that). It reads a log only as far as checksums and the salt of its header agree, so zeros behind the last
//! frame, or a log of nothing but zeros, mean to it that there is nothing more.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// How much is written at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Size of the header of the log.
const HEADER_BYTES: u64 = 32;

/// Size of what stands before each page in the log: its number, and checksums that make it part of the log.
const FRAME_HEAD_BYTES: usize = 24;

/// Size of a page with its head in the log.
pub(in crate::sqlite) const FRAME_BYTES: u64 = 4096 + FRAME_HEAD_BYTES as u64;

/// Fills the log of the store at `path` up to `size` bytes where it is shorter. SQLite may have the file open,
/// but nobody may be writing.
pub(in crate::sqlite) fn prefill_wal(path: &Path, size: u64) -> io::Result<()> {
    let mut wal = OpenOptions::new().write(true).create(true).truncate(false).open(wal_path(path))?;
    let at = wal.seek(SeekFrom::End(0))?;
    if at >= size {
        return Ok(());
    }
    let filled = fill(&mut wal, at, size);
    if filled.is_err() {
        // The disk is full: the log would be too short, so the room goes back to the disk.
        let _ = wal.set_len(at);
    }
    filled
}

fn fill(wal: &mut File, mut at: u64, size: u64) -> io::Result<()> {
    let zeros = vec![0; CHUNK_BYTES];
    while at < size {
        let length = CHUNK_BYTES.min(usize::try_from(size - at).unwrap_or(CHUNK_BYTES));
        wal.write_all(&zeros[..length])?;
        at += length as u64;
    }
    // The size and the blocks must be in the file system's journal now: that is what the zeros are for.
    wal.sync_all()
}

/// Pages of the log in a part of its index, and the size of such a part. The first part has a little less room.
const INDEX_FRAMES: u64 = 4062;
const INDEX_PART_BYTES: u64 = 32 << 10;

/// Gives the index of the log the room that a log of `size` bytes needs, so that a disk that fills up later cannot stop
/// the log from being used. SQLite must have the file open. Closing any handle of it would end SQLite's locks on it: keep
/// the returned one until SQLite has closed its own.
pub(in crate::sqlite) fn prefill_index(path: &Path, size: u64) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push("-shm");
    let mut index = OpenOptions::new().write(true).open(name)?;
    let wanted = (size / FRAME_BYTES / INDEX_FRAMES + 1) * INDEX_PART_BYTES;
    let at = index.seek(SeekFrom::End(0))?;
    if at < wanted {
        let zeros = vec![0; usize::try_from(wanted - at).unwrap_or_default()];
        // Without the room the log can be used as far as the index goes.
        if index.write_all(&zeros).is_err() {
            let _ = index.set_len(at);
        }
    }
    Ok(index)
}

/// Cuts off what a transaction that was not finished has left behind the log of `frames` frames and its full
/// `size`. It is called where nobody writes to the log.
pub(in crate::sqlite) fn trim_wal(path: &Path, frames: u32, size: u64) -> io::Result<()> {
    let wal = OpenOptions::new().write(true).open(wal_path(path))?;
    let kept = size.max(end_of(frames));
    if wal.metadata()?.len() > kept { wal.set_len(kept) } else { Ok(()) }
}

/// Overwrites the head of the frame that follows `frames` frames. A transaction may fail after all of it is in the
/// log, when there is no room for the index of it: SQLite has given it up then, but would find it again
/// after a crash, although the store returned an error.
pub(in crate::sqlite) fn bury_unfinished(path: &Path, frames: u32) -> io::Result<()> {
    let wal = OpenOptions::new().write(true).open(wal_path(path))?;
    let end = end_of(frames);
    if wal.metadata()?.len() >= end + FRAME_BYTES {
        wal.write_all_at(&[0; FRAME_HEAD_BYTES], end)?;
        wal.sync_data()?;
    }
    Ok(())
}

/// The length of the log with this number of frames.
fn end_of(frames: u32) -> u64 {
    HEADER_BYTES + u64::from(frames) * FRAME_BYTES
}

/// Where SQLite keeps the write-ahead log of the file at `path`.
pub(in crate::sqlite) fn wal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}
