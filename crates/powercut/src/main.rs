//! Cuts the power under the SQLite store many times, and prints the results.

use std::{process::ExitCode, time::Instant};

use anyhow::Result;
use clap::Parser;
use windlass_powercut::{Honesty, record};

/// Cuts the power under the SQLite store many times, and checks what is left each time.
#[derive(Debug, Parser)]
struct Cli {
    /// How many power cuts
    #[arg(long, default_value_t = 200)]
    cuts: usize,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Makes only the cut with this number, which a finding names; use the same --cuts and --seed. The recording differs
    /// from run to run, because threads take turns, so only a cut before the store was opened is the same
    #[arg(long)]
    only: Option<usize>,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let begun = Instant::now();
    let recorded = record(cli.seed)?;
    println!("recorded in {:.1} s", begun.elapsed().as_secs_f64());
    let figures = recorded.cut(cli.cuts, cli.seed, Honesty::Honest, cli.only)?;
    for finding in &figures.findings {
        println!("{finding}");
    }
    println!("{figures}");
    Ok(if figures.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
