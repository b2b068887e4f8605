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
mod batch;
pub(crate) mod claims;
mod columns;
mod damaged;
pub(crate) mod enqueued;
mod fault;
mod link;
mod news;
mod opening;
pub(crate) mod policy;
mod reading;
pub(crate) mod servers;
pub(crate) mod snapshot;
mod store;
pub(crate) mod sweep;
mod version;

pub(crate) use archive::{Direct, ENQUEUED, FILLED, RESERVED, RowArchive, SNAPSHOT_LOST, schema, submit_key};
pub(crate) use batch::{
    Found, FoundLock, FoundWait, Keys, SubmitKeyWrite, TaskWrite, WaitBefore, WaitWrite, Writes, commit,
    decide, find,
};
pub(crate) use claims::{Blocked, Candidate, KeyTurn, KeysInTurn, sessions, write_turn};
pub(crate) use columns::Columns;
pub(crate) use damaged::{any_name, count, left_out, limit_or_closed, lock, message, unreadable_alarm};
pub(crate) use fault::{Fault, Kind, damaged, sound};
pub(crate) use link::{Answers, Database, Link};
pub(crate) use news::{LISTEN_AGAIN_AFTER, LastNotified, Listener, News};
pub(crate) use opening::{check_readable, random_bytes};
pub(crate) use reading::{
    FlowCache, Flows, Listing, Newest, TaskParts, claimed_wait, flows, free_holder_bytes, load, locks, name,
    of_task, only_ended, query, stored_flow,
};
pub(crate) use snapshot::DatabaseSnapshot;
pub(crate) use store::{Dialect, RowStore};
pub(crate) use version::check_version;

pub(crate) use crate::encoding::*;
