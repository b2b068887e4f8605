//! One power cut: opens the store on the files that are left, and checks that the store keeps its guarantees.

use std::{
    fmt, fs,
    ops::RangeInclusive,
    path::Path,
    sync::{Arc, mpsc},
};

use anyhow::Context as _;
use fastrand::Rng;
use tempfile::TempDir;
use windlass_conformance::block_on;
use windlass_store::resident::{Batch, Room, RowSink};
use windlass_stores::sqlite::{Report, SqliteSink, doctor};

use crate::{
    contents::{Contents, Names},
    disk::{Disk, Honesty, Image},
    ledger::Opening,
    record::{FILE, options},
    references::References,
    story::{self, Story},
    vfs,
};

/// What is wrong after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The store does not open, or cannot be read.
    Refused,
    /// Acknowledged entries are missing: how many. Or the store has lost that it was opened before.
    Missing(usize),
    /// The contents of the store do not match any whole number of entries.
    Half,
    /// `doctor` finds a problem.
    Damaged,
    /// The store refuses commits, or loses them.
    Stuck,
}

/// A problem that was found.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The number of the cut.
    pub cut: usize,
    /// The number of operations before the cut.
    pub position: usize,
    /// The kind of problem.
    pub fault: Fault,
    /// Details, for people.
    pub details: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cut, position, fault, details } = self;
        write!(f, "cut {cut}, after operation {position}: {fault:?}: {details}")
    }
}

/// What the store must hold, according to what it had acknowledged at the time of the cut.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    /// The number of entries, in their order: at least the acknowledged ones, at most those that were passed to the store.
    pub(crate) entries: RangeInclusive<usize>,
    /// The last opening that returned the state of the store.
    pub(crate) opening: Option<Opening>,
}

/// What all checks of a recording need.
#[derive(Debug)]
pub(crate) struct Checker {
    pub(crate) names: Names,
    pub(crate) references: References,
}

/// What is wrong with one image.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) fault: Fault,
    pub(crate) details: String,
    /// What the store holds, if it can be read and differs from what it should hold.
    pub(crate) contents: Option<Contents>,
}

impl Problem {
    fn new(fault: Fault, details: impl fmt::Display) -> Self {
        Self { fault, details: details.to_string(), contents: None }
    }
}

/// A store that was opened on an image and keeps its guarantees.
struct Opened {
    sink: SqliteSink,
    opening: Opening,
}

impl Checker {
    /// Writes `image` into a folder of its own and checks how the store works on it. The outer error is an error of this
    /// machine.
    pub(crate) fn check(&self, image: &Image, promise: &Promise) -> anyhow::Result<Result<(), Problem>> {
        let place = lay_out(image)?;
        Ok(self.open(place.path(), promise).and_then(|opened| goes_on(opened, place.path())))
    }

    /// As [`Checker::check`]. Then the power is cut during the start of the store as well, and what is left is checked.
    pub(crate) fn check_twice(
        &self,
        image: &Image,
        promise: &Promise,
        random: &mut Rng,
    ) -> anyhow::Result<Result<(), Problem>> {
        let place = lay_out(image)?;
        let folder = place.path().canonicalize()?;
        let recorder = vfs::begin(&folder)?;
        let opened = self.open(&folder, promise);
        let told_at = recorder.position();
        let opening = opened.and_then(|opened| {
            let opening = opened.opening;
            goes_on(opened, &folder).map(|()| opening)
        });
        vfs::end(&folder);
        let opening = match opening {
            Ok(opening) => opening,
            Err(problem) => return Ok(Err(problem)),
        };

        let start = recorder.take();
        let position = random.usize(..=told_at);
        let mut disk = Disk::new(&start, Honesty::Honest);
        disk.advance(position);
        // If the cut came before the start had returned its state, no caller knows of this start.
        let known = if position == told_at { Some(opening) } else { promise.opening };
        let promise = Promise { opening: known, ..promise.clone() };
        let second = self.check(&disk.cut(random), &promise)?;
        Ok(second.map_err(|problem| Problem {
            details: format!("the start was cut off too, after operation {position}: {}", problem.details),
            ..problem
        }))
    }

    /// Opens the store in `folder` and checks its contents against `promise`.
    fn open(&self, folder: &Path, promise: &Promise) -> Result<Opened, Problem> {
        let sink = SqliteSink::open(&folder.join(FILE), options())
            .map_err(|error| Problem::new(Fault::Refused, error))?;
        let refused = |error| Problem::new(Fault::Refused, error);
        let recovered = block_on(sink.recover(Room::ENDLESS)).map_err(refused)?;
        let opening = Opening { at: 0, epoch: recovered.epoch, token_key: recovered.token_key };
        if let Some(before) = promise.opening {
            if opening.token_key != before.token_key {
                return Err(Problem::new(Fault::Missing(*promise.entries.start()), "the store is a new one"));
            }
            if opening.epoch <= before.epoch {
                let details = format!("the epoch {} occurs a second time", opening.epoch);
                return Err(Problem::new(Fault::Missing(0), details));
            }
        }
        let contents = block_on(Contents::read(&sink, recovered, &self.names)).map_err(refused)?;
        let digest = contents.digest();
        if promise.entries.clone().any(|count| self.references.matches(count, digest)) {
            return Ok(Opened { sink, opening });
        }
        let details = "the contents do not match what was passed to the store".to_owned();
        Err(Problem { fault: Fault::Half, details, contents: Some(contents) })
    }
}

/// Checks that the store accepts a commit and keeps it, and that `doctor` finds no problem.
fn goes_on(opened: Opened, folder: &Path) -> Result<(), Problem> {
    let path = folder.join(FILE);
    let stuck = |error: &dyn fmt::Display| Problem::new(Fault::Stuck, error);
    let flow = story::flow("afterwards").map_err(|error| stuck(&error))?;
    let mut story = Story::new(&flow, 0, 300).map_err(|error| stuck(&error))?;
    let mut changes = vec![story::flow_change(&flow), story.accept().map_err(|error| stuck(&error))?];
    while let Some(change) = story.go_on(None).map_err(|error| stuck(&error))? {
        changes.push(change);
    }
    let before = doctor(&path).map_err(|error| Problem::new(Fault::Damaged, error))?;
    let (sender, receiver) = mpsc::channel();
    let written = move |result| drop(sender.send(result));
    opened.sink.write(Arc::new(Batch::from(changes)), Box::new(written));
    match receiver.recv() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(stuck(&error)),
        Err(error) => return Err(stuck(&error)),
    }
    opened.sink.close();
    let after = doctor(&path).map_err(|error| Problem::new(Fault::Damaged, error))?;
    if let Some(problem) = before.problems.first().or(after.problems.first()) {
        return Err(Problem::new(Fault::Damaged, problem));
    }
    let ended = |report: &Report| report.ended.values().sum::<u64>();
    if ended(&after) != ended(&before) + 1 {
        return Err(stuck(&"an acknowledged commit is missing"));
    }
    Ok(())
}

fn lay_out(image: &Image) -> anyhow::Result<TempDir> {
    let place = tempfile::tempdir()?;
    for (name, bytes) in image {
        fs::write(place.path().join(name), bytes).context("cannot write an image")?;
    }
    Ok(place)
}
