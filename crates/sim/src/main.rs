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
mod flows;
#[cfg(feature = "planted")]
mod hunt;
mod invariants;
mod judge;
mod kinds;
mod rows;
mod run;
mod stores;
mod story;
mod truth;
mod world;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::Parser;
use kinds::Kind;

/// The number of events within which every reason must have occurred, and every removable blocker must have
/// been removed.
const EVERYTHING_STEPS: u64 = 5_000_000;

/// The distance between the first worlds of two runs that start a millisecond apart.
const FRESH_APART: u64 = 1000;

/// The lines shown of the story of a violation.
const LINES_SHOWN: usize = 400;

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

    fn goes_on(&self, worlds: u64, steps: u64, begun: Instant) -> bool {
        if self.steps.is_none() && self.minutes.is_none() {
            return worlds < if self.seed.is_some() { 1 } else { self.seeds };
        }
        self.steps.is_some_and(|wanted| steps < wanted)
            || self.minutes.is_some_and(|minutes| begun.elapsed() < Duration::from_secs(minutes * 60))
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let passed = match &cli.planted {
        Some(bug) => hunt(bug, &cli),
        None => search(&cli),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs world after world until a violation, or with `--all` to the end.
fn search(cli: &Cli) -> bool {
    let begun = Instant::now();
    let first = cli.first();
    println!("worlds from {first} on, commit {}", cli.commit);
    let (mut steps, mut worlds, mut tally) = (0, 0, BTreeMap::<&str, u64>::new());
    let mut violations = Vec::new();
    while cli.goes_on(worlds, steps, begun) && (cli.all || violations.is_empty()) {
        let seed = first + worlds;
        let run = run::run(seed, &cli.kind, cli.story);
        worlds += 1;
        steps += run.steps;
        for (what, times) in &run.tally {
            *tally.entry(what).or_default() += times;
        }
        if cli.story {
            run.story.iter().for_each(|line| println!("{line}"));
        }
        if cli.story || cli.seed.is_some() {
            println!("world {seed}: {} events, {} ms, trace {:016x}", run.steps, run.ms, run.hash);
        }
        if let Some(violation) = run.violation {
            if !cli.story && !cli.all {
                let (again, task) =
                    (run::run(seed, &cli.kind, true), violation.task.map(|task| task.to_string()));
                let lines = story::last(&again.story, LINES_SHOWN, task.as_deref());
                lines.iter().for_each(|line| println!("{line}"));
            }
            println!("\n{}: {}", violation.invariant, violation.message);
            println!("world {seed}, event {}; again {}", run.steps, cli.again(seed));
            violations.push(seed);
        }
    }
    if !violations.is_empty() {
        println!("\n{worlds} worlds, {steps} events, violations in {}: {violations:?}", violations.len());
        return false;
    }
    for (what, times) in &tally {
        println!("{times:>10}  {what}");
    }
    let kinds = answer::KINDS.iter().chain(&answer::TAKEN_AWAY);
    let never: Vec<&str> = kinds.filter(|kind| !tally.contains_key(**kind)).copied().collect();
    if steps >= EVERYTHING_STEPS && !never.is_empty() {
        println!("not once in {steps} events: {never:?}");
        return false;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{worlds} worlds from {first} on, {steps} events, no violation, {seconds:.1} s, commit {}",
        cli.commit
    );
    true
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
    hunt::hunt(&bugs, cli.first(), &cli.kind)
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

    #[cfg(feature = "planted")]
    #[test]
    fn a_planted_bug_is_found() {
        assert!(hunt::hunt(&[windlass_core::planted::Bug::AcknowledgedEarly], 1, &[]));
    }
}
