//! A store in a file: everything that people and programs would miss in another store.
//!
//! ```text
//! windlass-export 5↵   { length  record }…   { length  end: counts, SHA-256 of all before }
//! ```
//!
//! A record is postcard of one thing, with its state as `stored` writes it: so a file is read as long as the stored data
//! of its time is. What belongs to the moment is not in it: sessions and claims of workers, servers and their leases,
//! starts that limits have counted, and the key that tokens are signed with. An attempt that a worker may have had is
//! marked as such, and is handed out again; one that a pause parked waits for the resume.

mod export;
mod file;
mod import;
mod pieces;
mod record;

use std::io;

use thiserror::Error;

pub use self::{export::export, import::import, record::Totals};
use crate::port::StoreError;

/// Who hears how much was written or read so far, every 100,000 records.
pub type Progress<'p> = &'p mut (dyn FnMut(Totals) + Send);

/// Why nothing was taken out of a store or into one.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// It is something else.
    #[error("this is not an export of a store: it does not begin as `windlass export` writes it")]
    Foreign,
    /// A newer program wrote it.
    #[error(
        "the export has format {found}, and this version of windlass reads format {known}: use a newer one"
    )]
    Newer {
        /// Its format.
        found: u32,
        /// The format known here.
        known: u32,
    },
    /// It is not whole.
    #[error("the export ends at byte {0}, before its end: it was cut off, so make it again")]
    Cut(u64),
    /// It is not as it was written.
    #[error("the export is damaged: {0}")]
    Damaged(String),
    /// The store does not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store does not take what is in it.
    #[error("{0}")]
    Refused(String),
}
