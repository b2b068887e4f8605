//! The hunt for planted bugs: each must be found, most of them by ordinary worlds, some by worlds of certain kinds.

use std::{ops::ControlFlow, time::Instant};

use windlass_core::planted::{Bug, plant};

use crate::{
    judge::Violation,
    kinds::Kind,
    run::{self, Calm, run_within},
    threads,
};

/// The number of events within which a bug must be found.
const STEPS_MAX: u64 = 20_000_000;

/// The result of a hunt.
#[derive(Default)]
struct Hunted {
    worlds: u64,
    steps: u64,
    /// The violation that the bug caused.
    found: Option<Violation>,
    /// A violation in the same world without any bug: a real defect, which does not prove that the bug can be
    /// found.
    defect: Option<Violation>,
}

/// The kinds of worlds that show a bug. Ordinary worlds show these bugs too, but only one in hundreds.
fn kinds_of(bug: Bug) -> &'static [Kind] {
    match bug {
        Bug::NoFence => &[Kind::Stutters],
        Bug::MessageShownEarly => &[Kind::Repeats],
        Bug::NoAdoptionGrace => &[Kind::OrderlyStops],
        Bug::DeclinedAdopted => &[Kind::Balanced],
        Bug::KeptSignalForgotten => &[Kind::AdHoc],
        Bug::LimitIgnored
        | Bug::StartsForgotten
        | Bug::QueuePauseIgnored
        | Bug::QueuePauseNotTold
        | Bug::TurnsIgnored
        | Bug::StartWithinForgotten => &[Kind::Backlog],
        Bug::ForeignAnswerCounts
        | Bug::AnswerOfAnotherAttempt
        | Bug::JobsAlike
        | Bug::FailedJobMovesOn
        | Bug::JobsStranded
        | Bug::AnswersAcknowledgedEarly
        | Bug::AnswersNotHeardAgain
        | Bug::PublishedUnheard
        | Bug::PresenceIgnored => &[Kind::Devices],
        Bug::RecordChangeLost
        | Bug::DeviceVisitedAgain
        | Bug::RolloutRateForgotten
        | Bug::RolloutWindowIgnored
        | Bug::ThresholdIgnored
        | Bug::ProgressCountedTwice
        | Bug::RecordedNotStarted
        | Bug::RolloutPauseIgnored
        | Bug::RollbackListCut => &[Kind::Rollouts],
        Bug::RolloutKeyForgotten => &[Kind::Rollouts, Kind::Sweeps, Kind::Stutters, Kind::Repeats],
        _ => &[],
    }
}

/// Hunts each bug from the world `first` on, several at once, and prints a table. Returns whether all were found.
pub(crate) fn hunt(bugs: &[Bug], first: u64, kinds: &[Kind], threads: usize) -> bool {
    println!(
        "{:<24} {:<18} {:>7} {:>10} {:>7}  world",
        "planted bug", "found by", "worlds", "events", "seconds"
    );
    let mut all = true;
    // A bug is planted on the thread that hunts it.
    let hunt = |bug: Bug| {
        let begun = Instant::now();
        let kinds = [kinds_of(bug), kinds].concat();
        let hunted = hunt_one(bug, first, &kinds);
        (bug, kinds, hunted, begun.elapsed().as_secs_f64())
    };
    threads::in_order(threads, bugs.iter().copied(), hunt, |(bug, kinds, hunted, seconds)| {
        let Hunted { worlds, steps, found, defect } = hunted;
        let by = found.as_ref().map_or("NOT FOUND", |violation| violation.invariant);
        let world = first + worlds - 1;
        let kinds: String = kinds.iter().map(|kind| format!(" --kind {kind:?}")).collect();
        println!(
            "{:<24} {by:<18} {worlds:>7} {steps:>10} {seconds:>7.2}  {world}{kinds}",
            format!("{bug:?}")
        );
        if let Some(violation) = &defect {
            println!(
                "  world {world} has a defect without any bug: {}: {}",
                violation.invariant, violation.message
            );
            println!("  see it with: cargo xtask sim --seed {world}{kinds}");
        }
        all &= found.is_some() && defect.is_none();
        ControlFlow::Continue(())
    });
    all
}

/// Runs one world after another until one violates an invariant with the bug. Then runs that world without it, as a
/// control. If the control violates an invariant too, it gets more time. If it is clean then, the hunt goes on with the next
/// world.
fn hunt_one(bug: Bug, first: u64, kinds: &[Kind]) -> Hunted {
    let mut hunted = Hunted::default();
    while hunted.steps < STEPS_MAX && hunted.found.is_none() && hunted.defect.is_none() {
        let world = first + hunted.worlds;
        plant(Some(bug));
        let run = run_within(world, kinds, Calm::SHORT, false);
        plant(None);
        hunted.worlds += 1;
        hunted.steps += run.steps;
        if run.violation.is_some() {
            let control = run_within(world, kinds, Calm::SHORT, false);
            hunted.steps += control.steps;
            if control.violation.is_none() {
                hunted.found = run.violation;
            } else {
                let patient = run::run(world, kinds, false);
                hunted.steps += patient.steps;
                hunted.defect = patient.violation;
            }
        }
    }
    hunted
}
