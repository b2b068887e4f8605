//! One power cut: the store is opened on what was left, and must hold what was promised.

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
    /// What was acknowledged is not there: so many entries, or that it was ever opened.
    Missing(usize),
    /// It holds what no whole number of entries makes.
    Half,
    /// `doctor` finds something wrong.
    Damaged,
    /// It takes no commits, or does not keep them.
    Stuck,
}

/// Something that was found.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Which cut it was.
    pub cut: usize,
    /// After how many operations.
    pub position: usize,
    /// What is wrong.
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

/// What was promised by the time of the cut.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    /// Of the entries in their order, at least the acknowledged ones are there and at most the given ones.
    pub(crate) entries: RangeInclusive<usize>,
    /// The last opening whose state was told.
    pub(crate) opening: Option<Opening>,
}

/// What every check of a recording needs.
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
    /// What the store holds, where it could be read and is not what it should be.
    pub(crate) contents: Option<Contents>,
}

impl Problem {
    fn new(fault: Fault, details: impl fmt::Display) -> Self {
        Self { fault, details: details.to_string(), contents: None }
    }
}

/// A store that was opened on an image and holds what was promised.
struct Opened {
    sink: SqliteSink,
    opening: Opening,
}

impl Checker {
    /// Lays `image` out in a folder of its own and checks what the store makes of it. The error is one of this
    /// machine.
    pub(crate) fn check(&self, image: &Image, promise: &Promise) -> anyhow::Result<Result<(), Problem>> {
        let place = lay_out(image)?;
        Ok(self.open(place.path(), promise).and_then(|opened| goes_on(opened, place.path())))
    }

    /// As [`Checker::check`], and then the start itself is cut off somewhere, and what that leaves is checked.
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
        // Whether somebody knows of this start depends on whether its state was told by then.
        let known = if position == told_at { Some(opening) } else { promise.opening };
        let promise = Promise { opening: known, ..promise.clone() };
        let second = self.check(&disk.cut(random), &promise)?;
        Ok(second.map_err(|problem| Problem {
            details: format!("the start was cut off too, after operation {position}: {}", problem.details),
            ..problem
        }))
    }

    /// Opens the store in `folder` and compares what it holds with what was promised.
    fn open(&self, folder: &Path, promise: &Promise) -> Result<Opened, Problem> {
        let sink = SqliteSink::open(&folder.join(FILE), options())
            .map_err(|error| Problem::new(Fault::Refused, error))?;
        let refused = |error| Problem::new(Fault::Refused, error);
        let recovered = block_on(sink.recover(Room::ENDLESS)).map_err(refused)?;
        let opening = Opening { at: 0, epoch: recovered.epoch, token_key: recovered.token_key };
        if let Some(before) = promise.opening {
            if opening.token_key != before.token_key {
                return Err(Problem::new(Fault::Missing(*promise.entries.start()), "it is a new store"));
            }
            if opening.epoch <= before.epoch {
                let details = format!("epoch {} comes a second time", opening.epoch);
                return Err(Problem::new(Fault::Missing(0), details));
            }
        }
        let contents = block_on(Contents::read(&sink, recovered, &self.names)).map_err(refused)?;
        let digest = contents.digest();
        if promise.entries.clone().any(|count| self.references.matches(count, digest)) {
            return Ok(Opened { sink, opening });
        }
        let details = "it holds something else than what was given to it".to_owned();
        Err(Problem { fault: Fault::Half, details, contents: Some(contents) })
    }
}

/// The store takes a commit and keeps it, and nothing is wrong with it then.
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
        return Err(stuck(&"a commit was acknowledged and is not there"));
    }
    Ok(())
}

fn lay_out(image: &Image) -> anyhow::Result<TempDir> {
    let place = tempfile::tempdir()?;
    for (name, bytes) in image {
        fs::write(place.path().join(name), bytes).context("an image cannot be written")?;
    }
    Ok(place)
}
