//! Whether what happens is what was promised: the truth that is on disk, and the invariants that look at it.

use std::{rc::Rc, sync::Arc};

use windlass_core::{Outcome, TaskId};
use windlass_engine::HandedOut;
use windlass_store::{AttemptId, Change, resident::Batch};

use crate::{
    answer::Answer,
    config::Config,
    invariants::{self, Invariant},
    truth::Truth,
    world::World,
};

/// Something that happened and that can be seen from outside.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Seen {
    /// A server that owns its disk goes by these changes from now on, which are on their way there.
    Staged(Arc<Batch>),
    /// It has read its disk and goes by what is there: what was staged and not written is void.
    Recovered,
    /// A change is on disk.
    Written(Change),
    /// The event of a task with this number was heard on the topic.
    Announced {
        task: TaskId,
        n: u64,
    },
    /// A submitter was told that its task is taken in.
    Accepted {
        task: TaskId,
        key: Option<[u8; 32]>,
        /// What it has in common with tasks that are the same, where its flow is `unique`.
        same: Option<Box<str>>,
    },
    /// A person was told that a task did what was asked; so many events are said to have happened.
    Told {
        task: TaskId,
        events: u64,
    },
    /// A person was shown a task with so many events.
    Shown {
        task: TaskId,
        events: u64,
    },
    /// A server said why a task is where it is.
    Explained(Rc<Answer>),
    /// It did not, or what it said was not so.
    Unexplained {
        task: TaskId,
        message: String,
    },
    /// A server runs and hears.
    ServerStarted,
    ServerKilled,
    /// A server that stood still goes on.
    ServerResumed,
    WorkerKilled {
        worker: usize,
    },
    /// A server hears a poll of a worker (`called`), answers it, or can do so no longer.
    InTouch {
        worker: usize,
        called: bool,
    },
    /// A server hears from a worker how many slots are free, in the call with this number.
    Offered {
        worker: usize,
        seq: u64,
        free: u32,
    },
    /// A server hears what a worker says it runs.
    Named {
        ids: Vec<AttemptId>,
    },
    /// An attempt was claimed in shared rows.
    Claimed {
        id: AttemptId,
    },
    /// A server gives an attempt to a worker.
    Given {
        worker: usize,
        id: AttemptId,
    },
    /// The same attempt as the worker gets it.
    HandedOut(Box<HandedOut>),
    /// A worker will report that an attempt ended like this.
    Said {
        id: AttemptId,
        outcome: Outcome,
    },
    /// A worker does not begin what it was given.
    Declined {
        worker: usize,
        id: AttemptId,
    },
    /// A worker was told what became of the report of an ended attempt.
    Reported {
        id: AttemptId,
        accepted: bool,
    },
    /// A command was started.
    RunBegan {
        worker: usize,
        run: u64,
        id: AttemptId,
    },
    /// It ended; without a report when the worker could not renew its lease.
    RunEnded {
        run: u64,
        reported: bool,
    },
    /// A command did something outside.
    Effect {
        id: AttemptId,
        key: String,
    },
}

/// An invariant that does not hold.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) message: String,
    /// The task it is about.
    pub(crate) task: Option<TaskId>,
}

impl Violation {
    pub(crate) fn new(invariant: &'static str, message: String) -> Self {
        Self { invariant, message, task: None }
    }
}

/// Watches over a world.
pub(crate) struct Judge {
    pub(crate) truth: Truth,
    invariants: Vec<Box<dyn Invariant>>,
}

impl Judge {
    pub(crate) fn new(config: &Config) -> Self {
        Self { truth: Truth::default(), invariants: invariants::all(config) }
    }

    /// Looks at what happened.
    pub(crate) fn see(&mut self, seen: &Seen, world: &World) -> Result<(), Violation> {
        self.truth.see(seen, world)?;
        for invariant in &mut self.invariants {
            invariant.see(seen, &self.truth, world)?;
        }
        Ok(())
    }

    /// Looks at the end of a run, when nothing moves any more.
    pub(crate) fn at_rest(&mut self) -> Result<(), Violation> {
        for invariant in &mut self.invariants {
            invariant.at_rest(&self.truth)?;
        }
        Ok(())
    }
}
