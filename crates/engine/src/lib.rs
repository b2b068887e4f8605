//! The engine: accepts tasks, lets the core decide, stores the results, hands out attempts and processes reports.
//!
//! It needs no runtime and spawns nothing. Its work is done by services, each a struct with `run_once`, in [`loops`]
//! over a timer that the program or the simulator brings. Time is passed in as an argument. The
//! engine keeps no task state of its own: that belongs to the store ([`windlass_store::Store`]).
//!
//! The path of a task through these folders:
//!
//! ```text
//! commands: Engine::submit ─▶ deciding: Inbox ─▶ Committer ─▶ core::apply ─▶ Store::commit ─▶ exchange: a waiting poll
//! exchange: reports        ─▶ deciding: Inbox ─▶ …
//! services: Timekeeper, Reclaimer, Messenger ─▶ deciding: Inbox ─▶ …
//! services: Dispatcher (ready without a commit here: after a start, by other servers) ─▶ exchange: a waiting poll
//! services: Janitor ─▶ Store::sweep
//! queries: Engine::task, Engine::why, … ─▶ Store
//! ```

mod commands;
mod deciding;
mod engine;
mod exchange;
pub mod loops;
#[doc(hidden)]
pub mod malformed;
mod queries;
pub mod services;

pub use commands::*;
pub use deciding::{Committer, Elsewhere, Inbox};
pub use engine::*;
pub use exchange::*;
pub use queries::*;
pub use services::{FAILING_AFTER, OfferedAt, Rounds, RoundsOf, SentWatch};
pub use windlass_schedule::rfc3339;
