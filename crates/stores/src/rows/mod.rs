//! What stores that several servers share have in common, whatever the product: a batch of changes is decided on what
//! the database has of it, and comes to rows.
//!
//! ```text
//! changes ─▶ Keys: what the batch touches ─▶ the product reads and locks it ─▶ Found
//!        ─▶ decide(changes, found) ─▶ an outcome for each, and Writes ─▶ the product writes them and commits
//! ```
//!
//! So versions, keys and claims are checked in one place, change by change, and SQL only reads and writes.

mod archive;
mod damaged;
mod decide;
mod encoding;
mod flow_cache;
mod found;
mod keys;
mod limits;
mod listing;
mod locks;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod newest;
mod place;
mod tasks;
mod turns;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod version;
mod writes;

pub(crate) use archive::{ENQUEUED, FILLED, RESERVED, SNAPSHOT_LOST, mark_of, stage_of, submit_key};
pub(crate) use damaged::{any_name, count, left_out, limit_or_closed, lock, message, unreadable_alarm};
pub(crate) use decide::decide;
pub(crate) use encoding::*;
pub(crate) use flow_cache::{FlowCache, stored_flow};
pub(crate) use found::{Found, FoundWait};
pub(crate) use keys::Keys;
pub(crate) use limits::Limits;
pub(crate) use listing::{Listing, only_ended};
pub(crate) use locks::{free_holder_bytes, in_order};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use newest::Newest;
pub(crate) use place::{KeyInLine, place_among};
pub(crate) use tasks::{TaskParts, claimed_wait, name, of_task};
pub(crate) use turns::{Candidate, Hands, KeysInTurn, Turn, choose};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use version::check_version;
pub(crate) use writes::{SubmitKeyWrite, TaskWrite, WaitWrite, Writes};
