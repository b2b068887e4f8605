//! The memory scheduler: a store with a single owner, whose hot path only writes.
//!
//! Active tasks, ready queues, due times, claims and sessions live in memory ([`Scheduler`](scheduler::Scheduler)); a [`RowSink`]
//! gets every change in order and is read only for what has ended. A commit is three steps:
//!
//! ```text
//! commit ─▶ BuiltOn::decide      the rule that all stores share, over what is staged          (memory)
//!        ─▶ Scheduler::stage     state replaced, old queue rows taken away                    (memory)
//!        ─▶ RowSink::write       one transaction, shared with whatever else waits             (disk)
//!        ─▶ Scheduler::publish   new queue rows, due times and messages become visible        (memory)
//! ```
//!
//! Parameters and results of tasks leave memory above a limit in bytes, and are read when they are needed ([`bodies`]).
//! A task that nothing will wake soon is forgotten once it is written ([`rest`]), and comes back before it is
//! changed or due ([`waking`]).
//!
//! So later commits build on staged state while it is on its way to the disk, and nothing is handed out before
//! it is there. When a write fails, everything staged and not published is void: the scheduler is built again
//! from the sink, keeping what workers hold.

mod bodies;
mod claims;
mod damaged_locks;
mod entry;
mod holding;
mod limiting;
mod limits;
mod list;
mod messages;
mod overlay;
mod place;
mod publishing;
mod queue;
mod recover;
mod rest;
mod scheduler;
mod sessions;
mod sink;
mod standing;
mod state;
mod store;
mod ticket;
mod turns;
mod unused_flows;
mod view;
mod waking;

pub use bodies::Room;
pub use rest::{BodyPolicy, Line, LinePlace, Rest, RestPolicy, WakePlace};
pub use sink::*;
pub use state::Resident;
