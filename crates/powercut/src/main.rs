//! Cuts the power under the SQLite store many times, and prints what came of it.

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
    /// What chances come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the cut with this number, as a finding names it; with the same --cuts and --seed. Threads take turns
    /// otherwise in each recording, so it is the same cut only as long as the store was not yet opened
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
