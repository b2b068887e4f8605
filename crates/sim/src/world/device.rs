//! Disks and database connections: the input and output of stores waits, fails, or succeeds here.

use std::{
    collections::VecDeque,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_channel::oneshot;
use windlass_store::StoreError;

use super::World;

/// The longest operation of a temporarily slow device, in milliseconds.
const SLOW_MS_MAX: u64 = 2500;

/// An operation of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A read.
    Read,
    /// A write of a batch, in the order of the batches.
    Write,
    /// A write of an empty batch: it ends with the writes before it.
    Flush,
    /// The call of a database write, and its answer.
    There,
    Back,
    /// Nothing happens for this number of milliseconds.
    Wait(u64),
}

impl Operation {
    fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::Flush)
    }
}

/// The result of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is done.
    Done,
    /// It is not done.
    Failed(StoreError),
    /// It is done, but reported as failed.
    DoneUntold(StoreError),
}

/// A device. A clone is another handle of it.
#[derive(Clone, Default)]
pub(crate) struct Device(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Ticket>,
    /// Writes in progress, in order, with their continuations.
    writes: VecDeque<Ticket>,
    /// When the last write in progress ends.
    busy_until: u64,
    /// Whether a write has failed: then all fail until the rows are read again.
    broken: bool,
    full: bool,
    /// Until when all operations take much longer.
    slow_until: u64,
    /// When the last operation started in a slow phase ends, or the last full phase ended.
    disturbed_until: u64,
}

struct Ticket {
    operation: Operation,
    then: Box<dyn FnOnce(Fate) + Send>,
}

impl Device {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Queues an operation for its result.
    pub(crate) fn submit(&self, operation: Operation, then: impl FnOnce(Fate) + Send + 'static) {
        self.inner().waiting.push_back(Ticket { operation, then: Box::new(then) });
    }

    /// Waits for the result of an operation.
    pub(crate) async fn wait(&self, operation: Operation) -> Result<(), StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.submit(operation, move |fate| {
            let _ = sender.send(fate);
        });
        match receiver.await {
            Ok(Fate::Done) => Ok(()),
            Ok(Fate::Failed(error) | Fate::DoneUntold(error)) => Err(error),
            Err(_) => Err(StoreError::Unavailable("the device is gone".to_owned())),
        }
    }

    /// The rows are read again: earlier writes fail, and new ones work.
    pub(crate) fn mend(&self) {
        let void = {
            let mut inner = self.inner();
            inner.broken = false;
            let (void, waiting) = std::mem::take(&mut inner.waiting)
                .into_iter()
                .partition::<VecDeque<_>, _>(|ticket| ticket.operation.is_write());
            inner.waiting = waiting;
            std::mem::take(&mut inner.writes).into_iter().chain(void)
        };
        for ticket in void {
            (ticket.then)(Fate::Failed(StoreError::Unavailable("a write before it failed".to_owned())));
        }
    }

    pub(crate) fn set_full(&self, full: bool, world: &World) {
        let mut inner = self.inner();
        inner.full = full;
        inner.disturbed_until = inner.disturbed_until.max(world.now());
    }

    /// Whether it is full, or slower than the world's stores.
    pub(crate) fn is_disturbed(&self, world: &World) -> bool {
        let inner = self.inner();
        inner.full || inner.disturbed_until > world.now()
    }

    /// The last time so far at which it was full, or slower than the world's stores.
    pub(crate) fn disturbed_at(&self, world: &World) -> u64 {
        let inner = self.inner();
        if inner.full { world.now() } else { inner.disturbed_until.min(world.now()) }
    }

    pub(crate) fn slow_down(&self, until: u64) {
        let mut inner = self.inner();
        inner.slow_until = until;
        // Operations started in the slow phase end a while later.
        inner.disturbed_until = inner.disturbed_until.max(until + SLOW_MS_MAX);
    }

    /// The machine stops: some of the writes in progress have reached the disk, the first ones first.
    pub(crate) fn power_off(&self, world: &World) {
        let (writes, waiting, broken) = {
            let mut inner = self.inner();
            (std::mem::take(&mut inner.writes), std::mem::take(&mut inner.waiting), inner.broken)
        };
        drop(waiting);
        // After a failed write none succeeds.
        let begun = if broken { 0 } else { writes.len() as u64 };
        let reached = usize::try_from(world.below(begun + 1)).unwrap_or(0);
        for ticket in writes.into_iter().take(reached) {
            let gone = StoreError::Unavailable("the machine stopped".to_owned());
            (ticket.then)(Fate::DoneUntold(gone));
        }
    }

    /// Decides when the waiting operations end.
    pub(super) fn serve(&self, world: &Rc<World>) {
        loop {
            let (ticket, slow) = {
                let mut inner = self.inner();
                let Some(ticket) = inner.waiting.pop_front() else { return };
                (ticket, inner.slow_until > world.now())
            };
            if let Operation::Wait(ms) = ticket.operation {
                world.after(ms, "wait", move |_| (ticket.then)(Fate::Done));
                continue;
            }
            let faults = &world.config.faults;
            let took =
                if slow { world.within(200..=SLOW_MS_MAX) } else { world.within(0..=faults.device_ms) };
            let device = self.clone();
            if ticket.operation.is_write() {
                let until = {
                    let mut inner = self.inner();
                    let joins = ticket.operation == Operation::Flush && !inner.writes.is_empty();
                    let took = if joins { 0 } else { took };
                    inner.writes.push_back(ticket);
                    inner.busy_until = inner.busy_until.max(world.now()) + took;
                    if slow {
                        inner.disturbed_until = inner.disturbed_until.max(inner.busy_until);
                    }
                    inner.busy_until
                };
                world.after(until - world.now(), "write", move |world| device.finish_write(world));
            } else {
                let fate = device.fate(ticket.operation, world);
                world.after(took, "input and output", move |_| (ticket.then)(fate));
            }
        }
    }

    fn finish_write(&self, world: &World) {
        // A power cut has removed all writes in progress.
        let Some(ticket) = self.inner().writes.pop_front() else { return };
        let fate = self.fate(ticket.operation, world);
        if fate != Fate::Done {
            self.inner().broken = true;
        }
        (ticket.then)(fate);
    }

    fn fate(&self, operation: Operation, world: &World) -> Fate {
        let faults = &world.config.faults;
        let writes = operation.is_write() || operation == Operation::There;
        let inner = self.inner();
        if operation.is_write() && inner.broken {
            return Fate::Failed(StoreError::Unavailable("a write before it failed".to_owned()));
        }
        if writes && inner.full {
            world.count("fault: store full");
            return Fate::Failed(StoreError::Full("no space left".to_owned()));
        }
        if world.is_calm() || !world.chance(faults.device_errors) {
            return Fate::Done;
        }
        let error = StoreError::Unavailable("input or output error".to_owned());
        if operation.is_write() && world.chance(500) {
            world.count("fault: written, but reported as failed");
            Fate::DoneUntold(error)
        } else {
            world.count("fault: store error");
            Fate::Failed(error)
        }
    }
}
