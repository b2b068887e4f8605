//! Power cuts under the SQLite store.
//!
//! Killing a process shows nothing about syncs: what it wrote is in the system's memory and reaches the disk all
//! the same. Here everything that the real store does to its disk is recorded while it works, and the disk is
//! then built again as a power cut would have left it, at many places of the recording: what was synced is there,
//! and of what was not, any sectors may be. On each of these disks the real store is opened, and must hold
//! exactly what some whole number of its transactions made, every acknowledged one among them; `doctor` finds
//! nothing wrong; it goes on working. Some of the starts are cut off as well.
//!
//! ```text
//!  walk, stories ─▶ Resident ─▶ ledger ─▶ SqliteSink ─▶ SQLite ─▶ vfs ─▶ files
//!                                  │                               │
//!                  what was acknowledged when            what was done to the disk
//!                                  └───────▶ check ◀── disk ◀──────┘
//! ```
//!
//! A disk that ignores syncs must be found out, or all of this shows nothing: see [`Honesty`].
//!
//! | file | holds |
//! |---|---|
//! | `vfs.rs` | the file system under SQLite that records; the only unsafe code |
//! | `recording.rs`, `disk.rs` | what was done, and what a power cut leaves of it |
//! | `ledger.rs` | what was acknowledged when |
//! | `record.rs`, `story.rs` | what the store is made to do |
//! | `contents.rs`, `references.rs` | what a store holds, and what it should |
//! | `check.rs`, `cuts.rs` | one power cut, and many |

mod check;
mod contents;
mod cuts;
mod disk;
mod ledger;
mod record;
mod recording;
mod references;
mod story;
mod vfs;

pub use check::{Fault, Finding};
pub use cuts::Figures;
pub use disk::Honesty;
pub use record::{Recorded, record};
