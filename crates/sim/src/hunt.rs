//! The hunt for planted bugs: each must be found from worlds of the same kind as all others.

use std::time::Instant;

use windlass_core::planted::{Bug, plant};

use crate::run;

/// Events in which a bug must be found.
const STEPS_MAX: u64 = 20_000_000;

/// Hunts each bug from the world `first` on, prints a table, and tells whether all were found.
pub(crate) fn hunt(bugs: &[Bug], first: u64) -> bool {
    println!(
        "{:<24} {:<18} {:>7} {:>10} {:>7}  world",
        "planted bug", "found by", "worlds", "events", "seconds"
    );
    let mut all = true;
    for bug in bugs {
        let begun = Instant::now();
        plant(Some(*bug));
        let (mut worlds, mut steps, mut found) = (0, 0, None);
        while steps < STEPS_MAX && found.is_none() {
            let run = run::run(first + worlds, false);
            worlds += 1;
            steps += run.steps;
            found = run.violation;
        }
        plant(None);
        let seconds = begun.elapsed().as_secs_f64();
        let by = found.as_ref().map_or("NOT FOUND", |violation| violation.invariant);
        let world = first + worlds - 1;
        println!("{:<24} {by:<18} {worlds:>7} {steps:>10} {seconds:>7.2}  {world}", format!("{bug:?}"));
        all &= found.is_some();
    }
    all
}
