//! Power cuts under the SQLite store.
//!
//! Killing a process says nothing about syncs: the system keeps what the process wrote in memory, and writes it to the
//! disk later. So this crate records everything that the real store does to its disk while it works. It then recreates
//! the disk as a power cut would have left it, at many places of the recording: synced data is kept, and of the other
//! writes any sectors may be kept. On each of these disks it opens the real store and checks:
//!
//! - The contents match a whole number of transactions, and all acknowledged ones are among them.
//! - `doctor` finds no problem.
//! - The store accepts and keeps further commits.
//!
//! Some of the starts are cut off as well.
//!
//! ```text
//!  walk, stories ─▶ Resident ─▶ ledger ─▶ SqliteSink ─▶ SQLite ─▶ vfs ─▶ files
//!                                  │                               │
//!                  what was acknowledged when            what was done to the disk
//!                                  └───────▶ check ◀── disk ◀──────┘
//! ```
//!
//! The checks must also find a disk that ignores syncs, because they would otherwise prove nothing: see [`Honesty`].
//!
//! | file | holds |
//! |---|---|
//! | `vfs.rs` | the file system under SQLite that records everything; the only unsafe code |
//! | `recording.rs`, `disk.rs` | the operations, and what a power cut leaves of them |
//! | `ledger.rs` | when each entry was acknowledged |
//! | `record.rs`, `story.rs` | the work of the store during the recording |
//! | `contents.rs`, `references.rs` | what a store holds, and what it should hold |
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
