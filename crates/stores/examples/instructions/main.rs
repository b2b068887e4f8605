//! What `cargo xtask instructions` counts: small pieces of the core, the engine and the store, each run so often that
//! what a process costs by itself does not matter.
//!
//! ```text
//! cargo run --release --example instructions                  lists the cases: name, operations
//! cargo run --release --example instructions -- CASE warm     gets everything ready and warms up
//! cargo run --release --example instructions -- CASE measured does the same, then the operations
//! ```
//!
//! The second run does exactly this number of operations more than the first, so the difference of their instructions
//! is what the operations cost, whatever the start, the preparation and the threads around them do.

mod encoding;
mod line;
mod resident;
mod rules;
mod sqlite;
#[path = "../shared/work.rs"]
mod work;

use std::{error::Error, process::ExitCode};

/// A piece that is counted.
struct Case {
    name: &'static str,
    /// How many operations a measured run does beyond the warm one.
    operations: usize,
    run: fn(Part) -> Result<(), Box<dyn Error>>,
}

/// How far a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Warm,
    Measured,
}

impl Part {
    /// How often to do the operation: `warm` times before what is measured.
    fn rounds(self, warm: usize, measured: usize) -> usize {
        match self {
            Self::Warm => warm,
            Self::Measured => warm + measured,
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match start(&arguments) {
        // Without the threads' and the store's own ends: they are no part of what is counted.
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let cases: Vec<Case> = [rules::cases(), encoding::cases(), resident::cases(), sqlite::cases()]
        .into_iter()
        .flatten()
        .collect();
    let (name, part) = match arguments {
        [] => {
            cases.iter().for_each(|case| println!("{}\t{}", case.name, case.operations));
            return Ok(());
        }
        [name, "warm"] => (name, Part::Warm),
        [name, "measured"] => (name, Part::Measured),
        _ => return Err("say nothing, or a case and `warm` or `measured`".into()),
    };
    let case = cases.iter().find(|case| case.name == *name);
    (case.ok_or_else(|| format!("there is no case \"{name}\""))?.run)(part)
}
