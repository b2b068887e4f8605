//! `windlass bench`: how fast it is on this machine.

use clap::{Args, ValueEnum};

/// What to measure.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// What kind of tasks
    #[arg(long, value_enum)]
    pub(crate) workload: Workload,

    /// How many tasks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) n: u64,
}

/// The kinds of tasks that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// One step that does nothing
    Noop,
    /// The same, submitted in batches of 1,000
    Bulk,
    /// Three steps
    Chain3,
    /// Three steps of which the last fails: the others are rolled back
    Saga3,
    /// One task at a time: how long until its step is picked up
    Latency,
    /// One task of three steps at a time
    Chain3Latency,
}
