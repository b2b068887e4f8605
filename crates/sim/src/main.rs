//! Windlass in a deterministic world.
//!
//! The real core and the real engine with all its services, over the real resident store or over shared rows,
//! run in worlds where servers and workers are killed, hang and are disconnected, where calls are lost, late
//! or duplicated, where disks fail and clocks jump. The [`invariants`] must hold after every event. After a
//! while the faults end, and then every task must end. A world depends only on its seed.

mod actors;
mod answer;
mod config;
mod damage;
mod fleet;
mod flows;
#[cfg(feature = "planted")]
mod hunt;
mod invariants;
mod judge;
mod kinds;
mod rollouts;
mod rows;
mod run;
mod search;
mod stores;
mod story;
mod threads;
mod truth;
mod world;

use std::{
    num::NonZero,
    process::ExitCode,
    thread::available_parallelism,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Parser;
use kinds::Kind;

/// The distance between the first worlds of two runs that start a millisecond apart.
const FRESH_APART: u64 = 1000;

/// Runs Windlass in deterministic worlds, and checks the invariants after every event.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask sim")]
struct Cli {
    /// The number of worlds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Only this world; with --seeds, --steps or --minutes: the first of many
    #[arg(long)]
    seed: Option<u64>,
    /// Start with a world that no earlier run had: the seed is taken from the clock, and printed
    #[arg(long, conflicts_with = "seed")]
    fresh: bool,
    /// The commit of this build, for reports
    #[arg(long, default_value = "unknown", hide = true)]
    commit: String,
    /// Make all worlds also of this kind; may be given more than once
    #[arg(long, value_name = "KIND", value_parser = Kind::named)]
    kind: Vec<Kind>,
    /// Continue after a violation, and list all of them at the end
    #[arg(long)]
    all: bool,
    /// Continue until this number of events was delivered
    #[arg(long)]
    steps: Option<u64>,
    /// Continue for this number of minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// The number of threads that run worlds; the results do not depend on it [default: the number of cores]
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Print the story of each world
    #[arg(long)]
    story: bool,
    /// Plant bugs and hunt them: this one or all
    #[arg(long, num_args = 0..=1, default_missing_value = "all", value_name = "BUG")]
    planted: Option<String>,
}

impl Cli {
    /// The first world. Fresh ones are far above those that people and checks use.
    fn first(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let of_clock = u64::try_from(since).unwrap_or(0).saturating_mul(FRESH_APART);
        self.seed.unwrap_or(if self.fresh { of_clock } else { 1 })
    }

    /// The command that runs a world again with its story.
    fn again(&self, seed: u64) -> String {
        let kinds: String = self.kind.iter().map(|kind| format!(" --kind {kind:?}")).collect();
        format!("at commit {}: cargo xtask sim --seed {seed}{kinds} --story", self.commit)
    }

    /// The number of threads that run worlds.
    fn threads(&self) -> usize {
        let cores = || available_parallelism().map_or(1, NonZero::get);
        self.threads.map_or_else(cores, NonZero::get)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let passed = match &cli.planted {
        Some(bug) => hunt(bug, &cli),
        None => search::search(&cli),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "planted")]
fn hunt(bug: &str, cli: &Cli) -> bool {
    use windlass_core::planted::Bug;

    let wanted = |candidate: &&Bug| bug == "all" || format!("{candidate:?}").eq_ignore_ascii_case(bug);
    let bugs: Vec<Bug> = Bug::ALL.iter().filter(wanted).copied().collect();
    if bugs.is_empty() {
        println!("there is no bug {bug}; there are {:?}", Bug::ALL);
        return false;
    }
    hunt::hunt(&bugs, cli.first(), &cli.kind, cli.threads())
}

#[cfg(not(feature = "planted"))]
fn hunt(_bug: &str, _cli: &Cli) -> bool {
    println!("this build cannot plant bugs: use `cargo xtask sim --planted`");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_run() {
        for seed in 1..=5 {
            let (first, again, other) =
                (run::run(seed, &[], false), run::run(seed, &[], true), run::run(seed + 100, &[], false));
            assert_eq!((first.hash, first.steps, &first.tally), (again.hash, again.steps, &again.tally));
            assert_ne!(first.hash, other.hash);
            assert!(again.story.len() > first.story.len(), "the story exists only on request");
        }
    }

    #[test]
    fn every_promise_holds_in_some_worlds() {
        let fresh = Cli::parse_from(["sim", "--fresh"]).first();
        for seed in (1..=20).chain(fresh..fresh + 20) {
            let violation = run::run(seed, &[], false).violation;
            assert!(violation.is_none(), "world {seed}: {violation:?}");
        }
    }
}
