//! The engine: takes tasks in, lets the core decide, has the store remember, hands out and hears reports.
//!
//! It needs no runtime and spawns nothing. Its work is done by services, each a struct with `run_once`; the
//! program owns the loops, threads and timers around them, and so does the simulator. Time comes in as an
//! argument. The engine holds no task state: that is the store's ([`ports::Store`]).
//!
//! The way of a task through these files:
//!
//! ```text
//! Engine::submit ─▶ Inbox ─▶ Committer ─▶ core::apply ─▶ Store::commit ─▶ Engine::dispatch ─▶ a waiting poll
//! Engine::exchange (reports) ─▶ Inbox ─▶ Committer ─▶ …
//! Timekeeper, Reclaimer, Messenger ─▶ Inbox ─▶ Committer ─▶ …
//! Dispatcher (ready without a commit here: after a start, by other servers) ─▶ Engine::dispatch ─▶ …
//! Janitor ─▶ Store::sweep
//! ```

mod adhoc;
mod announcing;
pub mod archive;
mod ask;
#[cfg(feature = "conformance")]
pub mod conformance;
mod counts;
mod engine;
mod examine;
mod exchange;
mod feed;
mod ids;
mod inbox;
mod known;
mod last_heard;
mod latest_time;
mod leading;
mod limit;
#[doc(hidden)]
pub mod malformed;
pub mod memory;
mod offering;
pub mod ports;
mod progress;
mod queue_rates;
mod rerun;
pub mod resident;
mod rounds;
pub mod services;
mod sessions;
mod signal;
pub mod stored;
mod submit;
mod tell;
mod token;
mod why;

pub use adhoc::*;
pub use counts::Counts;
pub use engine::*;
pub use examine::*;
pub use exchange::*;
pub use feed::*;
pub use inbox::*;
pub use last_heard::LastHeard;
pub use limit::*;
pub use offering::OfferedAt;
pub use rerun::*;
pub use rounds::*;
pub use signal::Signal;
pub use submit::*;
pub use tell::*;
pub use token::{Tokens, is_token};
pub use why::*;
