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

/// One of this number of starts is cut off as well.
const CUT_STARTS: u32 = 4;

/// A cut during a start comes within this number of operations before the start returns its state.
const START_OPERATIONS: usize = 80;

/// How many entries a store may have lost from its end and still count as a store with lost entries. With more, it counts
/// as torn. The reference is read after each of these entries.
const LOST_MAX: usize = 32;

/// The results of many power cuts.
#[derive(Debug, Clone)]
pub struct Figures {
    /// The number of power cuts.
    pub cuts: usize,
    /// The number of starts that were cut off as well.
    pub cut_starts: usize,
    /// The number of operations on the disk in the recording: writes, syncs, and so on.
    pub operations: usize,
    /// The number of entries in the recording: batches and sweeps that were passed to the store.
    pub entries: usize,
    /// The number of acknowledged entries that were checked, over all cuts.
    pub acknowledged: usize,
    /// The number of them that were missing.
    pub missing: usize,
    /// The problems that were found.
    pub findings: Vec<Finding>,
    /// The duration of the cuts, without the recording.
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

/// A planned power cut.
#[derive(Debug)]
struct Cut {
    /// Its number. With the seed it determines all random choices of this cut.
    number: usize,
    /// The number of operations before the cut.
    position: usize,
}

impl Recorded {
    /// Cuts the power `count` times, at places that depend on `seed`, over a disk of this honesty. With `only`, makes
    /// this cut alone.
    ///
    /// # Errors
    /// When something fails that does not concern the store, such as writing images.
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

    /// The places where the power is cut, in the order of the recording. Half of them are anywhere; most of these are in
    /// writes to the log. A quarter is near all other operations, such as those of a checkpoint. A quarter is in the
    /// creation or opening of the store.
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

    /// The operations that are neither writes to a log nor syncs of one.
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

    /// The possible number of entries: at least those that were acknowledged, at most those that had been passed to the
    /// store.
    fn promised_entries(&self, position: usize) -> RangeInclusive<usize> {
        let is_acknowledged = |at: &std::sync::OnceLock<usize>| at.get().is_some_and(|at| *at <= position);
        let last = self.entries.iter().rposition(|entry| is_acknowledged(&entry.acknowledged_at));
        let given = self.entries.partition_point(|entry| entry.given_at <= position);
        last.map_or(0, |last| last + 1)..=given
    }

    /// Distinguishes lost entries from torn ones, and describes the difference.
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
                (Fault::Missing(missing), format!("the last {missing} acknowledged entries are missing"))
            }
            None => (fault, format!("{details}: {differences}")),
        })
    }
}

/// Some of the differences.
fn difference(expected: &Contents, found: &Contents) -> String {
    let some = |one: &Contents, other: &Contents| {
        let lines: Vec<&str> = one.lines_beyond(other).collect();
        let first: String = lines.first().copied().unwrap_or_default().chars().take(400).collect();
        format!("{} ({first})", lines.len())
    };
    format!("missing lines {}, lines too many {}", some(expected, found), some(found, expected))
}
