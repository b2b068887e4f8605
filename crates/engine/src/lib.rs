//! The engine: takes tasks in, lets the core decide, has the store remember, hands out and hears reports.
//!
//! It needs no runtime and spawns nothing. Its work is done by services, each a struct with `run_once`; the
//! program owns the loops, threads and timers around them, and so does the simulator. Time comes in as an
//! argument. The engine holds no task state: that is the store's ([`windlass_store::Store`]).
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

mod announcing;
mod ask;
mod counts;
mod engine;
mod exchange;
mod feed;
mod inbox;
mod known;
mod last_heard;
mod latest_time;
mod leading;
mod limit;
#[doc(hidden)]
pub mod malformed;
mod offering;
mod progress;
mod queue_rates;
mod rerun;
mod rounds;
pub mod services;
mod sessions;
mod submit;
mod tell;
mod token;
mod why;

pub use counts::Counts;
pub use engine::*;
pub use exchange::*;
pub use feed::*;
pub use inbox::*;
pub use last_heard::LastHeard;
pub use limit::*;
pub use offering::OfferedAt;
pub use rerun::*;
pub use rounds::*;
pub use submit::*;
pub use tell::*;
pub use token::{Tokens, is_token};
pub use why::*;
