//! The search for violations: world after world, on several threads.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use crate::{
    Cli, answer,
    run::{self, Run},
    story, threads,
};

/// The number of events within which every reason must have occurred, and every removable blocker must have
/// been removed.
const EVERYTHING_STEPS: u64 = 5_000_000;

/// The lines shown of the story of a violation.
const LINES_SHOWN: usize = 400;

/// Runs world after world until a violation, or with `--all` to the end. The result does not depend on the number of
/// threads, except with `--minutes`.
pub(crate) fn search(cli: &Cli) -> bool {
    let mut search = Search::new(cli);
    println!("worlds from {} on, commit {}", search.first, cli.commit);
    if search.goes_on() {
        let seeds = search.first..;
        let take = |(seed, run)| {
            search.take(seed, run);
            if search.goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        threads::in_order(cli.threads(), seeds, |seed| (seed, run::run(seed, &cli.kind, cli.story)), take);
    }
    search.report()
}

/// What must happen in a long run, and has not.
fn missing(tally: &BTreeMap<&str, u64>) -> Vec<&'static str> {
    let kinds = answer::KINDS.iter().chain(&answer::TAKEN_AWAY);
    kinds.filter(|kind| !tally.contains_key(**kind)).copied().collect()
}

struct Search<'a> {
    cli: &'a Cli,
    begun: Instant,
    first: u64,
    worlds: u64,
    steps: u64,
    tally: BTreeMap<&'static str, u64>,
    /// The worlds with a violation.
    violations: Vec<u64>,
}

impl<'a> Search<'a> {
    fn new(cli: &'a Cli) -> Self {
        Self {
            cli,
            begun: Instant::now(),
            first: cli.first(),
            worlds: 0,
            steps: 0,
            tally: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    fn goes_on(&self) -> bool {
        (self.cli.all || self.violations.is_empty()) && (self.is_asked_for_more() || self.waits_for_rare())
    }

    fn is_asked_for_more(&self) -> bool {
        let Cli { steps, minutes, .. } = self.cli;
        if steps.is_none() && minutes.is_none() {
            return self.worlds < if self.cli.seed.is_some() { 1 } else { self.cli.seeds };
        }
        steps.is_some_and(|wanted| self.steps < wanted)
            || minutes.is_some_and(|minutes| self.begun.elapsed() < Duration::from_secs(minutes * 60))
    }

    /// Whether a run that was long enough goes on because something has not happened in it: up to twice its steps.
    fn waits_for_rare(&self) -> bool {
        self.cli.steps.is_some_and(|wanted| wanted >= EVERYTHING_STEPS && self.steps < 2 * wanted)
            && !missing(&self.tally).is_empty()
    }

    fn take(&mut self, seed: u64, run: Run) {
        self.worlds += 1;
        self.steps += run.steps;
        for (what, times) in &run.tally {
            *self.tally.entry(what).or_default() += times;
        }
        let cli = self.cli;
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
            self.violations.push(seed);
        }
    }

    /// Prints the result. Returns whether the search has passed.
    fn report(&self) -> bool {
        let Self { worlds, steps, violations, .. } = self;
        if !violations.is_empty() {
            println!("\n{worlds} worlds, {steps} events, violations in {}: {violations:?}", violations.len());
            return false;
        }
        for (what, times) in &self.tally {
            println!("{times:>10}  {what}");
        }
        let never = missing(&self.tally);
        if *steps >= EVERYTHING_STEPS && !never.is_empty() {
            println!("not once in {steps} events: {never:?}");
            return false;
        }
        println!(
            "{worlds} worlds from {} on, {steps} events, no violation, {:.1} s, commit {}",
            self.first,
            self.begun.elapsed().as_secs_f64(),
            self.cli.commit
        );
        true
    }
}
