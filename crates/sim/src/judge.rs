//! Checks whether the promises are kept: the truth on disk, and the invariants.

use std::{rc::Rc, sync::Arc};

use windlass_core::{Millis, Name, Outcome, Task, TaskId};
use windlass_engine::HandedOut;
use windlass_store::{
    AttemptId, Change, Leadership, ServerId, Service, ServiceLease, memory::Row, resident::Batch,
};

use crate::{
    answer::Answer,
    config::Config,
    invariants::{self, Invariant},
    stores::MqttEvent,
    truth::Truth,
    world::World,
};

/// An observable event.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Seen {
    /// A server that owns its disk uses these changes from now on; they are on their way to the disk.
    Staged(Arc<Batch>),
    /// It has read its disk and uses that state: staged changes that were not written are void.
    Recovered,
    /// The store was moved into another one, which has these tasks.
    Moved(Vec<Arc<Task>>),
    /// It could not be moved, or the other one differs from it.
    NotMoved(String),
    /// A change is on disk.
    Written(Change),
    /// A row on disk became unreadable.
    Damaged(Row),
    /// The event of a task with this number was published to the topic.
    Announced {
        task: TaskId,
        n: u64,
    },
    /// Something happened at the MQTT broker.
    Mqtt(MqttEvent),
    /// A submitter got the answer that its task is accepted.
    Accepted {
        task: TaskId,
        key: Option<[u8; 32]>,
        /// Its unique key, if its flow has one.
        same: Option<Box<str>>,
    },
    /// An operator got the answer that a command was executed, after this number of events.
    Told {
        task: TaskId,
        events: u64,
    },
    /// An operator was shown a task with this number of events.
    Shown {
        task: TaskId,
        events: u64,
    },
    /// An operator got the answer that a rollout was changed. It has this version since then.
    RolloutTold {
        rollout: Name,
        version: u64,
    },
    /// A server explained why a task is in its state.
    Explained(Rc<Answer>),
    /// It did not, or its explanation was wrong.
    Unexplained {
        task: TaskId,
        message: String,
    },
    /// A server runs and receives calls.
    ServerStarted,
    ServerKilled,
    /// A paused server was resumed.
    ServerResumed,
    WorkerKilled {
        worker: usize,
    },
    /// A server receives a poll of a worker (`called`), answers it, or can no longer do so.
    InTouch {
        worker: usize,
        called: bool,
    },
    /// A server receives a worker's number of free slots, in the call with this number.
    Offered {
        worker: usize,
        seq: u64,
        free: u32,
    },
    /// A server receives the attempts that a worker runs.
    Named {
        ids: Vec<AttemptId>,
    },
    /// A server asked shared rows for the lease of a service at this time, and learned who has it.
    Leased {
        service: Service,
        lease: ServiceLease,
        at: Millis,
    },
    /// A process leads under this fence, and may act until then.
    Leads {
        number: u128,
        fence: u64,
        until: u64,
    },
    /// It has resigned, died, or learned that it does not lead.
    LeadsNoMore {
        number: u128,
    },
    /// A server ended, and with it its leases.
    Left(ServerId),
    /// A write of the leader of a service succeeded in shared rows.
    Led(Leadership),
    /// An attempt was claimed in shared rows.
    Claimed {
        id: AttemptId,
    },
    /// A server gives an attempt to a worker.
    Given {
        worker: usize,
        /// The number of the worker's call.
        seq: u64,
        id: AttemptId,
    },
    /// The same attempt as the worker receives it.
    HandedOut(Box<HandedOut>),
    /// A worker will report that an attempt ended like this.
    Said {
        id: AttemptId,
        outcome: Outcome,
    },
    /// A worker does not start an attempt that it was given.
    Declined {
        worker: usize,
        id: AttemptId,
    },
    /// A worker got the answer that an attempt it did not start is returned.
    Returned {
        worker: usize,
        /// The number of its last call.
        seq: u64,
        id: AttemptId,
    },
    /// A worker got the answer to the report of an ended attempt.
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
    /// A command has ended; without a report if the worker could not renew its lease.
    RunEnded {
        run: u64,
        reported: bool,
    },
    /// A command had an external effect.
    Effect {
        id: AttemptId,
        key: String,
    },
}

/// A violated invariant.
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

/// Checks a world.
pub(crate) struct Judge {
    pub(crate) truth: Truth,
    invariants: Vec<Box<dyn Invariant>>,
}

impl Judge {
    pub(crate) fn new(config: &Config) -> Self {
        Self { truth: Truth::default(), invariants: invariants::all(config) }
    }

    /// Checks an event.
    pub(crate) fn see(&mut self, seen: &Seen, world: &World) -> Result<(), Violation> {
        self.truth.see(seen, world)?;
        for invariant in &mut self.invariants {
            invariant.see(seen, &self.truth, world)?;
        }
        Ok(())
    }

    /// Checks the end of a run, when nothing moves any more.
    pub(crate) fn at_rest(&mut self) -> Result<(), Violation> {
        for invariant in &mut self.invariants {
            invariant.at_rest(&self.truth)?;
        }
        Ok(())
    }
}
