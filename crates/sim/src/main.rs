//! Windlass in a deterministic world.
//!
//! The real core and the real engine with all its services, over the real resident store or over shared rows, run
//! in worlds where servers and workers are killed, stand still and are cut off, where calls are lost, late or
//! doubled, where disks fail and clocks jump. After every event the [`invariants`] must hold; after a while nothing
//! goes wrong any more, and then every task must come to its end. A world comes from its seed alone.

mod actors;
mod config;
mod flows;
mod invariants;
mod judge;
mod run;
mod stores;
mod story;
mod truth;
mod world;

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;

/// Runs Windlass in deterministic worlds, and checks what was promised after every event.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask sim")]
struct Cli {
    /// How many worlds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// Only this world, or the first of many
    #[arg(long)]
    seed: Option<u64>,
    /// Go on until so many events were delivered
    #[arg(long)]
    steps: Option<u64>,
    /// Go on for so many minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// Tell the story of each world
    #[arg(long)]
    story: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let begun = Instant::now();
    let first = cli.seed.unwrap_or(1);
    let (mut steps, mut worlds, mut tally) = (0, 0, BTreeMap::<&str, u64>::new());
    let goes_on = |worlds: u64, steps: u64| match (cli.steps, cli.minutes) {
        (None, None) => worlds < if cli.seed.is_some() { cli.seeds.min(1) } else { cli.seeds },
        (wanted, minutes) => {
            wanted.is_some_and(|wanted| steps < wanted)
                || minutes.is_some_and(|minutes| begun.elapsed() < Duration::from_secs(minutes * 60))
        }
    };
    while goes_on(worlds, steps) {
        let seed = first + worlds;
        let run = run::run(seed, cli.story);
        worlds += 1;
        steps += run.steps;
        for (what, times) in &run.tally {
            *tally.entry(what).or_default() += times;
        }
        if cli.story {
            run.story.iter().for_each(|line| println!("{line}"));
            println!("world {seed}: {} events, {} ms, trace {:016x}", run.steps, run.ms, run.hash);
        }
        if let Some(violation) = run.violation {
            let again = run::run(seed, true);
            again.story.iter().for_each(|line| println!("{line}"));
            again.tally.iter().for_each(|(what, times)| println!("{times:>10}  {what}"));
            println!("\n{}: {}", violation.invariant, violation.message);
            println!("world {seed}, event {}; again with: cargo xtask sim --seed {seed}", run.steps);
            return ExitCode::FAILURE;
        }
    }
    for (what, times) in &tally {
        println!("{times:>10}  {what}");
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{worlds} worlds, {steps} events, no violation, {:.1} s", seconds);
    ExitCode::SUCCESS
}
