//! A world: time, chance, machines, the network between them, and all events.
//!
//! Everything runs on one thread. A world proceeds from event to event ([`agenda`]); between two events the
//! futures of its machines run until nothing moves ([`executor`]). All randomness comes from one seed, so the
//! same seed gives the same run, which its hash shows.

mod agenda;
mod clock;
mod device;
mod executor;
mod journal;
mod judging;
mod network;
mod rest;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::Future,
    hash::{DefaultHasher, Hash, Hasher},
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
};

use futures_channel::oneshot;

pub(crate) use clock::{DatabaseClock, MachineClock, Wrong};
pub(crate) use device::{Device, Fate, Operation};
pub(crate) use executor::JobId;
pub(crate) use journal::{Entry, Journal};
pub(crate) use network::{Broken, Network};

use crate::{
    actors::Servers,
    config::Config,
    judge::{Judge, Seen, Violation},
    kinds::Kind,
    stores::{Mqtt, Queues},
    story::Story,
};
use agenda::{Agenda, Event};
use executor::Executor;

/// A machine, or a part of one that can stop or fail by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Host {
    /// A server.
    Server(usize),
    /// A worker's communication with servers.
    Worker(usize),
    /// The commands of a worker: they continue while the worker is paused, and die with it.
    Commands(usize),
    /// Somebody who submits tasks or looks after them.
    Person(usize),
    /// The faults of all hosts.
    Nature,
}

/// More polls than any step can need: a future that wakes itself endlessly is a defect.
const POLLS_MAX: u32 = 1_000_000;

/// A world.
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) servers: Servers,
    pub(crate) network: Network,
    /// The state of the broker, in a world with one-way modules.
    pub(crate) queues: Queues,
    /// The broker of devices.
    pub(crate) mqtt: Mqtt,
    pub(crate) story: Story,
    pub(crate) judge: RefCell<Judge>,
    /// The actions of this world's stores.
    pub(crate) journal: Journal,
    /// Shared with the clock of a database, which its connections read.
    now: Arc<AtomicU64>,
    steps: Cell<u64>,
    calm: Cell<bool>,
    submitting: Cell<u64>,
    unblocking: Cell<bool>,
    dice: RefCell<fastrand::Rng>,
    agenda: RefCell<Agenda>,
    executor: Executor,
    devices: RefCell<Vec<Device>>,
    seen: RefCell<Vec<Seen>>,
    hash: RefCell<DefaultHasher>,
    tally: RefCell<BTreeMap<&'static str, u64>>,
}

impl World {
    pub(crate) fn new(seed: u64, forced: &[Kind], tell: bool) -> Rc<Self> {
        let mut dice = fastrand::Rng::with_seed(seed);
        let now = Arc::<AtomicU64>::default();
        let config = Config::draw(forced, &mut dice);
        let journal = Journal::default();
        Rc::new(Self {
            network: Network::default(),
            queues: Queues::default(),
            mqtt: Mqtt::new(journal.clone()),
            story: Story::new(tell),
            judge: RefCell::new(Judge::new(&config)),
            journal,
            servers: Servers::new(&config, &now),
            now,
            steps: Cell::new(0),
            calm: Cell::new(false),
            submitting: Cell::new(0),
            unblocking: Cell::new(false),
            dice: RefCell::new(dice),
            agenda: RefCell::default(),
            executor: Executor::default(),
            devices: RefCell::default(),
            seen: RefCell::default(),
            hash: RefCell::default(),
            tally: RefCell::default(),
            config,
        })
    }

    /// Milliseconds since the world began.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// The number of delivered events.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// A client starts to submit tasks.
    pub(crate) fn begin_to_submit(&self) {
        self.submitting.set(self.submitting.get() + 1);
    }

    /// A client has submitted all its tasks.
    pub(crate) fn end_to_submit(&self) {
        self.submitting.set(self.submitting.get() - 1);
    }

    /// Whether faults have ended; then the caretakers make tasks end.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.get()
    }

    pub(crate) fn become_calm(&self) {
        self.calm.set(true);
    }

    /// Whether blockers of tasks are removed, and no other operator acts.
    pub(crate) fn is_unblocking(&self) -> bool {
        self.unblocking.get()
    }

    pub(crate) fn set_unblocking(&self, unblocking: bool) {
        self.unblocking.set(unblocking);
    }

    /// Distinguishes this run from others.
    pub(crate) fn hash(&self) -> u64 {
        self.hash.borrow().finish()
    }

    /// The counters of the run.
    pub(crate) fn tally(&self) -> BTreeMap<&'static str, u64> {
        self.tally.borrow().clone()
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.tally.borrow_mut().entry(what).or_default() += 1;
    }

    /// A number below `end`.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.dice.borrow_mut().u64(..end.max(1))
    }

    /// A number from a range.
    pub(crate) fn within(&self, range: std::ops::RangeInclusive<u64>) -> u64 {
        self.dice.borrow_mut().u64(range)
    }

    /// True with this probability, in a thousand.
    pub(crate) fn chance(&self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub(crate) fn choose<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        let index = self.below(from.len() as u64);
        from.get(usize::try_from(index).unwrap_or(0))
    }

    /// A fresh random number.
    pub(crate) fn random(&self) -> u64 {
        self.dice.borrow_mut().u64(..)
    }

    /// Schedules an event after this number of milliseconds.
    pub(crate) fn after(&self, ms: u64, label: &'static str, happen: impl FnOnce(&Rc<Self>) + 'static) {
        self.after_with(ms, label, 0, happen);
    }

    pub(crate) fn after_with(
        &self,
        ms: u64,
        label: &'static str,
        detail: u64,
        happen: impl FnOnce(&Rc<Self>) + 'static,
    ) {
        let event = Event { label, detail, happen: Box::new(happen) };
        self.agenda.borrow_mut().add(self.now() + ms, event);
    }

    /// Waits.
    pub(crate) async fn sleep(self: &Rc<Self>, ms: u64) {
        let (sender, receiver) = oneshot::channel();
        self.after(ms, "timer", move |_| {
            let _ = sender.send(());
        });
        let _ = receiver.await;
    }

    /// The output of the future, unless it takes longer than this number of milliseconds.
    pub(crate) async fn at_most<T>(self: &Rc<Self>, ms: u64, future: impl Future<Output = T>) -> Option<T> {
        let (mut future, mut timer) = (pin!(future), pin!(self.sleep(ms)));
        std::future::poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            timer.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    pub(crate) fn spawn(&self, host: Host, future: impl Future<Output = ()> + 'static) -> JobId {
        self.executor.spawn(host, future)
    }

    pub(crate) fn cancel(&self, job: JobId) {
        self.executor.cancel(job);
    }

    /// Ends everything that runs on a host, in its current state.
    pub(crate) fn kill(&self, host: Host) {
        self.executor.kill(host);
    }

    /// Whether anything runs on a host.
    pub(crate) fn is_up(&self, host: Host) -> bool {
        self.executor.is_up(host)
    }

    pub(crate) fn pause(&self, host: Host) {
        self.executor.pause(host);
    }

    pub(crate) fn resume(&self, host: Host) {
        self.executor.resume(host);
    }

    pub(crate) fn is_paused(&self, host: Host) -> bool {
        self.executor.is_paused(host)
    }

    /// Adds a device to this world.
    pub(crate) fn add_device(&self, device: Device) {
        self.devices.borrow_mut().push(device);
    }

    pub(crate) fn remove_device(&self, device: &Device) {
        self.devices.borrow_mut().retain(|other| !other.is(device));
    }

    /// Records an event for the invariants.
    pub(crate) fn see(&self, seen: Seen) {
        self.seen.borrow_mut().push(seen);
    }

    /// Whether the story was requested.
    pub(crate) fn is_told(&self) -> bool {
        self.story.is_told()
    }

    /// Adds a line to the story, if it was requested.
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        self.story.add(self.now(), line);
    }

    /// Takes the world apart: the futures in it refer to it.
    pub(crate) fn end(&self) {
        self.executor.clear();
        let agenda = std::mem::take(&mut *self.agenda.borrow_mut());
        drop(agenda);
        self.network.clear();
        self.servers.clear();
        self.devices.borrow_mut().clear();
    }

    /// Delivers the next event and runs everything until nothing moves. Returns whether there was an event.
    ///
    /// # Errors
    /// The violated invariant.
    pub(crate) fn step(self: &Rc<Self>) -> Result<bool, Violation> {
        let Some((at, event)) = self.agenda.borrow_mut().next() else { return Ok(false) };
        self.now.store(at, Relaxed);
        self.steps.set(self.steps.get() + 1);
        (at, event.label, event.detail).hash(&mut *self.hash.borrow_mut());
        (event.happen)(self);
        self.settle()?;
        Ok(true)
    }

    /// Runs futures until nothing moves, and checks the invariants after each one.
    fn settle(self: &Rc<Self>) -> Result<(), Violation> {
        for _ in 0..POLLS_MAX {
            self.serve_devices();
            self.judge()?;
            let ran = self.executor.run_one(|count| {
                let index = if count == 1 { 0 } else { self.below(count as u64) };
                usize::try_from(index).unwrap_or(0)
            });
            if !ran {
                return Ok(());
            }
        }
        Err(Violation::new("progress", "futures wake one another without end".to_owned()))
    }

    /// Decides the results and times of the operations that wait at devices.
    fn serve_devices(self: &Rc<Self>) {
        let devices = self.devices.borrow().clone();
        for device in devices {
            device.serve(self);
        }
    }
}
