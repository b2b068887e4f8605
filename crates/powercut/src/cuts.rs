//! Many power cuts over one recording.

use std::{
    collections::BTreeSet,
    fmt,
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use anyhow::Result;
use fastrand::Rng;

use crate::{
    check::{Checker, Fault, Finding, Problem, Promise},
    contents::{Contents, Names},
    disk::{Disk, Honesty, is_log},
    record::Recorded,
    recording::Operation,
    references::{References, replay},
};

/// One start in so many is cut off as well.
const CUT_STARTS: u32 = 4;

/// How many operations before the state is told a start is looked at closely.
const START_OPERATIONS: usize = 80;

/// How many entries a store may have lost from its end to be told from one that is torn: it is read after each.
const LOST_MAX: usize = 32;

/// What many power cuts came to.
#[derive(Debug, Clone)]
pub struct Figures {
    /// How many power cuts.
    pub cuts: usize,
    /// How many starts after them were cut off as well.
    pub cut_starts: usize,
    /// What was done to the disk in the recording: writes, syncs, and so on.
    pub operations: usize,
    /// What the store was given in the recording: batches and sweeps.
    pub entries: usize,
    /// Acknowledged entries that were looked for, over all cuts.
    pub acknowledged: usize,
    /// How many of them were not there.
    pub missing: usize,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How long the cuts took, without the recording.
    pub time: Duration,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cuts, cut_starts, operations, entries, acknowledged, missing, findings, time } = self;
        write!(
            f,
            "{cuts} power cuts ({cut_starts} of the starts after them cut off too) in {operations} operations of \
             {entries} commits: {acknowledged} acknowledged, {missing} missing, {} findings, {:.1} s",
            findings.len(),
            time.as_secs_f64()
        )
    }
}

/// One power cut that is to be.
#[derive(Debug)]
struct Cut {
    /// Its number; with the seed it gives all chances of this cut.
    number: usize,
    /// After how many operations.
    position: usize,
}

impl Recorded {
    /// Cuts the power `count` times, at places that `seed` gives, over a disk of this honesty. Where `only` is
    /// given it is that cut alone.
    ///
    /// # Errors
    /// When something fails that is no affair of the store, such as writing images.
    pub fn cut(&self, count: usize, seed: u64, honesty: Honesty, only: Option<usize>) -> Result<Figures> {
        let mut cuts = self.choose(count, seed);
        cuts.retain(|cut| only.is_none_or(|number| number == cut.number));
        let begun = Instant::now();
        let names = Names::of(&self.entries);
        let counts: BTreeSet<usize> =
            cuts.iter().flat_map(|cut| self.promised_entries(cut.position)).collect();
        let references = References::new(&self.entries, &names, &counts)?;
        let checker = Checker { names, references };
        let mut figures = Figures {
            cuts: cuts.len(),
            cut_starts: 0,
            operations: self.recording.operations.len(),
            entries: self.entries.len(),
            acknowledged: 0,
            missing: 0,
            findings: Vec::new(),
            time: Duration::ZERO,
        };
        let mut disk = Disk::new(&self.recording, honesty);
        for cut in cuts {
            disk.advance(cut.position);
            let mut random = Rng::with_seed(seed ^ (cut.number as u64 + 1) << 32);
            let image = disk.cut(&mut random);
            let promise = self.promise(cut.position);
            figures.acknowledged += promise.entries.start();
            let checked = if random.u32(..CUT_STARTS) == 0 {
                figures.cut_starts += 1;
                checker.check_twice(&image, &promise, &mut random)?
            } else {
                checker.check(&image, &promise)?
            };
            if let Err(problem) = checked {
                let (fault, details) = self.explain(&checker.names, problem, &promise)?;
                if let Fault::Missing(entries) = fault {
                    figures.missing += entries.max(1);
                }
                figures.findings.push(Finding { cut: cut.number, position: cut.position, fault, details });
            }
        }
        figures.time = begun.elapsed();
        Ok(figures)
    }

    /// Where the power is cut, in the order of the recording: half of the places anywhere, most of which are in
    /// writes to the log; a quarter about everything else, such as what a checkpoint does; a quarter while the
    /// store is made or opened.
    fn choose(&self, count: usize, seed: u64) -> Vec<Cut> {
        let mut random = Rng::with_seed(seed);
        let end = self.recording.operations.len();
        let others = self.outside_logs();
        let mut choose = |number| match number % 4 {
            1 => random.choice(&others).map_or(0, |index| (index + random.usize(..3)).min(end)),
            3 => {
                let told_at = random.choice(&self.openings).map_or(0, |opening| opening.at);
                told_at.saturating_sub(random.usize(..START_OPERATIONS))
            }
            _ => random.usize(..=end),
        };
        let mut cuts: Vec<Cut> = (0..count).map(|number| Cut { number, position: choose(number) }).collect();
        cuts.sort_by_key(|cut| cut.position);
        cuts
    }

    /// The operations that are no writes to a log and no syncs of one.
    fn outside_logs(&self) -> Vec<usize> {
        let mut logs = BTreeSet::new();
        let mut others = Vec::new();
        for (index, operation) in self.recording.operations.iter().enumerate() {
            match operation {
                Operation::Create { name, file } if is_log(name) => drop(logs.insert(*file)),
                Operation::Write { file, .. } | Operation::Sync { file, .. } if logs.contains(file) => {
                    continue;
                }
                _ => {}
            }
            others.push(index);
        }
        others
    }

    fn promise(&self, position: usize) -> Promise {
        let opening = self.openings.iter().rev().find(|opening| opening.at <= position);
        Promise { entries: self.promised_entries(position), opening: opening.copied() }
    }

    /// How many entries may be there: those that were acknowledged, and those that were on their way.
    fn promised_entries(&self, position: usize) -> RangeInclusive<usize> {
        let is_acknowledged = |at: &std::sync::OnceLock<usize>| at.get().is_some_and(|at| *at <= position);
        let last = self.entries.iter().rposition(|entry| is_acknowledged(&entry.acknowledged_at));
        let given = self.entries.partition_point(|entry| entry.given_at <= position);
        last.map_or(0, |last| last + 1)..=given
    }

    /// Tells lost entries from torn ones, and what the difference is.
    fn explain(&self, names: &Names, problem: Problem, promise: &Promise) -> Result<(Fault, String)> {
        let Problem { fault, details, contents } = problem;
        let Some(contents) = contents else { return Ok((fault, details)) };
        let acknowledged = *promise.entries.start();
        let before = acknowledged.saturating_sub(LOST_MAX)..=acknowledged;
        let (mut found, mut differences) = (None, String::new());
        replay(&self.entries, names, &before.collect(), |count, expected| {
            if expected.digest() == contents.digest() {
                found = Some(count);
            } else if count == acknowledged {
                differences = difference(&expected, &contents);
            }
        })?;
        Ok(match found {
            Some(count) => {
                let missing = acknowledged - count;
                (Fault::Missing(missing), format!("the last {missing} acknowledged entries are not there"))
            }
            None => (fault, format!("{details}: {differences}")),
        })
    }
}

/// Some of what is not the same.
fn difference(expected: &Contents, found: &Contents) -> String {
    let some = |one: &Contents, other: &Contents| {
        let lines: Vec<&str> = one.lines_beyond(other).collect();
        let first: String = lines.first().copied().unwrap_or_default().chars().take(400).collect();
        format!("{} ({first})", lines.len())
    };
    format!("missing lines {}, lines too many {}", some(expected, found), some(found, expected))
}
