//! Two stores that keep their rows in memory.
//!
//! - [`MemorySink`] is what a resident store writes to when nothing is to outlive the process: the `memory:`
//!   store, tests of restarts, and simulation.
//! - [`SharedStore`] implements the store port directly over rows, the way a store in SQL does: nothing is
//!   cached, versions are checked at the commit, claims and leases are rows. Several engines may work on one.
//!
//! Both keep the same [`tables`], so what they have in common is written once.

mod damage;
mod servers;
mod sessions;
mod shared;
mod sink;
mod snapshot;
mod starts;
mod tables;
mod waits;

pub use damage::Row;
pub(crate) use servers::Servers;
pub use shared::SharedStore;
pub use sink::MemorySink;
pub use snapshot::MemorySnapshot;
