//! A folder is a module: `windlass worker --modules DIR` serves every executable `DIR/<module>/<command>`.
//!
//! What becomes of an attempt, and where:
//!
//! ```text
//!   worker library ── Job ──▶ runner ── name ──▶ catalogue        which file?
//!                               │
//!                               ├─▶ input                          what it is told
//!                               ├─▶ spawner ──▶ stub ──▶ command   its own process group
//!                               │      └──────▶ guard              what dies with the worker
//!                               ├─▶ process ──▶ output             run, read, stop, clean up
//!                               └─▶ verdict ── Outcome ──▶ worker library
//! ```
//!
//! A command gets a JSON document on stdin and `WINDLASS_…` variables, runs in its own folder, prints a JSON
//! object (or nothing) on stdout and log lines on stderr, and ends with 0 for success, 75 for "try again later",
//! 65 for a failure that is final, and anything else for a failure that may be tried again.
//!
//! When something goes wrong: a command that is told to stop gets SIGTERM and, 5 s later, SIGKILL, with all that
//! it has started. A worker that dies, even by SIGKILL, takes its commands along: each has a parent-death signal
//! (the stub sets it), and a guard process kills what they have started. A process that leaves its group on
//! purpose (`setsid`) is reached where the worker may make control groups.

mod catalogue;
mod cgroup;
mod guard;
mod input;
pub(crate) mod malformed;
mod output;
mod process;
mod runner;
mod serve;
mod spawner;
mod stub;
mod verdict;

pub use catalogue::{Catalogue, CatalogueError, PassedOver};
pub use guard::{GUARD_COMMAND, guard_main};
pub use process::TERM_GRACE;
pub use runner::Runner;
pub use serve::{BrokerOptions, WorkerOptions, serve};
pub use stub::{EXEC_COMMAND, exec_main, exec_stub};
