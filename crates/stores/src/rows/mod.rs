//! The store that several servers share, whatever the product.
//!
//! ```text
//! Store ─▶ RowStore<D> ─▶ query, load, sessions, … ─▶ D: a script of SQL ─▶ rows ─▶ decoded here
//!
//! commit: changes ─▶ Keys: what the batch touches ─▶ find: D reads and locks it ─▶ Found
//!                 ─▶ decide(changes, found) ─▶ outcomes, and Writes ─▶ D writes them and commits
//! ```
//!
//! So versions, keys and claims are checked in one place, change by change, and SQL only reads and writes. A product
//! ([`Dialect`]) has its connections, its SQL, its way to claim, and the meaning of its errors.

#![expect(private_bounds, reason = "the products are the only dialects: nobody outside can make another one")]

mod archive;
pub(crate) mod claims;
mod columns;
pub(crate) mod commit;
mod damaged;
mod decide;
pub(crate) mod enqueued;
mod fault;
pub(crate) mod find;
mod flow_cache;
pub(crate) mod flows;
mod found;
mod keys;
mod limits;
mod link;
mod listing;
pub(crate) mod load;
pub(crate) mod locks;
mod newest;
mod place;
pub(crate) mod policy;
pub(crate) mod query;
pub(crate) mod servers;
pub(crate) mod sessions;
pub(crate) mod snapshot;
pub(crate) mod store;
pub(crate) mod sweep;
mod tasks;
mod turns;
mod version;
mod writes;

pub(crate) use crate::encoding::*;
pub(crate) use archive::{ENQUEUED, FILLED, RESERVED, SNAPSHOT_LOST, mark_of, stage_of, submit_key};
pub(crate) use columns::Columns;
pub(crate) use damaged::{any_name, count, left_out, limit_or_closed, lock, message, unreadable_alarm};
pub(crate) use decide::decide;
pub(crate) use fault::{Fault, Kind};
pub(crate) use fault::{damaged, sound};
pub(crate) use flow_cache::{FlowCache, stored_flow};
pub(crate) use flows::Flows;
pub(crate) use found::{Found, FoundWait};
pub(crate) use keys::Keys;
pub(crate) use limits::Limits;
pub(crate) use link::{Answers, Database, Link};
pub(crate) use listing::{Listing, only_ended};
pub(crate) use locks::free_holder_bytes;
pub(crate) use newest::Newest;
pub(crate) use place::{KeyInLine, place_among};
pub(crate) use snapshot::DatabaseSnapshot;
pub(crate) use store::{Dialect, News, RowStore};
pub(crate) use tasks::{TaskParts, claimed_wait, name, of_task};
pub(crate) use turns::{Candidate, Hands, KeysInTurn, Turn, choose};
pub(crate) use version::check_version;
pub(crate) use writes::{SubmitKeyWrite, TaskWrite, WaitWrite, Writes};
