//! Serves folders as modules: `windlass worker --modules DIR` serves every executable
//! `DIR/<module>/<command>`.
//!
//! The path of an attempt:
//!
//! ```text
//!   worker library ── Job ──▶ runner ── name ──▶ catalogue        finds the file
//!                               │
//!                               ├─▶ input                          stdin and environment
//!                               ├─▶ spawner ──▶ stub ──▶ command   its own process group
//!                               │      └──────▶ guard              cleans up after a dead worker
//!                               ├─▶ process ──▶ output             run, read, stop, clean up
//!                               └─▶ verdict ── Outcome ──▶ worker library
//! ```
//!
//! A command gets a JSON document on stdin and `WINDLASS_…` variables, and runs in its own folder. It prints
//! a JSON object (or nothing) on stdout and log lines on stderr. It exits with 0 for success, 75 for "try
//! again later", 65 for a final failure, and any other code for a failure that may be retried.
//!
//! A command that must stop gets SIGTERM and, 5 s later, SIGKILL, with all processes that it has started. A
//! worker that dies, even by SIGKILL, takes its commands along: each has a parent-death signal (the stub sets
//! it), and a guard process kills the processes that they have started. A process that leaves its group on
//! purpose (`setsid`) is only reached if the worker may create control groups.

mod catalogue;
mod cgroup;
mod deadline;
mod groups;
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

pub(crate) use deadline::Deadline;
pub(crate) use serve::{default_name, hide_from_commands, this_program};
pub(crate) use spawner::{CommandLine, Group, Spawner};

pub use catalogue::{Catalogue, CatalogueError, PassedOver};
pub use guard::{GUARD_COMMAND, guard_main};
pub use process::TERM_GRACE;
pub use runner::Runner;
pub use serve::{BrokerOptions, Exclusive, SecretSources, WorkerOptions, serve};
pub use stub::{EXEC_COMMAND, exec_main, exec_stub};
