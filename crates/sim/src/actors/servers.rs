//! Servers: the real engine and its services over a store, in the loops that the program runs them in.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use windlass_core::{Millis, TaskId, Timestamp};
use windlass_engine::{
    Committer, Engine, EngineError,
    services::{
        ChangePoller, Dispatcher, HEARTBEAT_EVERY, LeaseKeeper, Membership, Messenger, OutboxRelay,
        Reclaimer, Timekeeper,
    },
};
use windlass_store::{
    Now, ServerId, ServerState, Store,
    memory::{MemorySink, SharedStore},
    resident::Resident,
};

use super::upkeep;
use crate::{
    config::Config,
    judge::Seen,
    kinds::Kind,
    stores::{Database, Disk, EnqueuedRows, EnqueuedThere, Numbers, Topics, topic},
    world::{DatabaseClock, Device, Host, MachineClock, World, Wrong},
};

/// What tokens are signed with in every world.
const TOKEN_KEY: [u8; 32] = [7; 32];

/// The longest and the shortest time between two looks at what is due, as in the program.
const TICK_MS: u64 = 100;
const TICK_MIN_MS: u64 = 1;

/// Between two rounds of announcements, as in the program.
const ANNOUNCE_PAUSE_MS: u64 = 5;

/// Between two looks at what others made ready, as in the program.
const NEWS_PAUSE_MS: u64 = 20;

/// A question for the time that took longer says little about it, as in the program.
const ROUND_TRIP_MAX_MS: u64 = 1000;

/// For how long a server that is asked to stop answers the calls it has.
const STOPPING_MS_MAX: u64 = 400;

/// The servers of a world, and the rows that survive them.
pub(crate) struct Servers {
    seats: Vec<Seat>,
    rows: Rows,
}

enum Rows {
    Disk(MemorySink),
    Shared(SharedRows),
}

/// A database.
struct SharedRows {
    store: SharedStore,
    /// Its clock, where servers have clocks of their own that follow it.
    followed: Option<DatabaseClock>,
    /// Tasks that applications enqueue.
    enqueued: EnqueuedRows,
    /// Else the clock that all servers go by.
    common: RefCell<Option<Rc<MachineClock>>>,
}

/// A machine for a server.
struct Seat {
    live: RefCell<Option<Rc<Live>>>,
    device: RefCell<Device>,
    clock_wrong: Wrong,
}

/// A server that runs.
pub(crate) struct Live {
    pub(crate) engine: Arc<Engine>,
    clock: Rc<MachineClock>,
    membership: Option<Membership>,
    pub(super) world: Rc<World>,
}

impl Live {
    pub(crate) fn now(&self) -> Now {
        self.clock.now(&self.world)
    }
}

impl Servers {
    pub(crate) fn new(config: &Config, elapsed: &Arc<AtomicU64>) -> Self {
        let seat =
            |_| Seat { live: RefCell::default(), device: RefCell::default(), clock_wrong: Wrong::default() };
        let seats: Vec<Seat> = (0..config.servers).map(seat).collect();
        let rows = match config.shared {
            true => Rows::Shared(SharedRows {
                store: SharedStore::new(TOKEN_KEY),
                followed: config
                    .is(Kind::OwnClocks)
                    .then(|| DatabaseClock { elapsed: elapsed.clone(), wrong: seats[0].clock_wrong.clone() }),
                enqueued: EnqueuedRows::default(),
                common: RefCell::default(),
            }),
            false => Rows::Disk(MemorySink::new(TOKEN_KEY)),
        };
        Self { seats, rows }
    }

    pub(crate) fn clear(&self) {
        for seat in &self.seats {
            seat.live.take();
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.seats.len()
    }

    /// The server there, if it runs.
    pub(crate) fn live(&self, server: usize) -> Option<Rc<Live>> {
        self.seats[server].live.borrow().clone()
    }

    /// The store's device there.
    pub(crate) fn device(&self, server: usize) -> Device {
        self.seats[server].device.borrow().clone()
    }

    /// A transaction that enqueues a task is committed in the database.
    pub(super) fn enqueue(&self, id: TaskId, task: String) {
        if let Rows::Shared(rows) = &self.rows {
            rows.enqueued.enqueue(id, task);
        }
    }

    /// The tasks that applications enqueued, where there is a database.
    pub(crate) fn enqueued(&self) -> Option<&EnqueuedRows> {
        match &self.rows {
            Rows::Shared(rows) => Some(&rows.enqueued),
            Rows::Disk(_) => None,
        }
    }

    /// Damages the rows of a task on a disk.
    pub(super) fn damage(&self, task: TaskId) {
        if let Rows::Disk(rows) = &self.rows {
            rows.damage(task);
        }
    }

    /// How many tasks with damaged rows servers that run have met.
    pub(crate) fn damaged_tasks(&self) -> usize {
        let live = self.seats.iter().filter_map(|seat| seat.live.borrow().clone());
        live.map(|live| live.engine.damaged_tasks()).max().unwrap_or(0)
    }

    /// Sets the clock there, so that it is wrong by so many milliseconds. A database's clock is that of the first machine.
    pub(crate) fn set_clock(&self, server: usize, wrong: i64) {
        let machine = if matches!(self.rows, Rows::Shared(..)) { 0 } else { server };
        self.seats[machine].clock_wrong.store(wrong, Relaxed);
    }
}

/// Starts a server on its machine.
pub(crate) fn start(world: &Rc<World>, server: usize) {
    world.count("server started");
    world.tell(|| format!("server {server} starts"));
    let device = Device::default();
    *world.servers.seats[server].device.borrow_mut() = device.clone();
    world.add_device(device.clone());
    let here = world.clone();
    world.spawn(Host::Server(server), async move {
        let world = here;
        let (store, clock) = open(&world, server, device).await;
        let engine = Arc::new(Engine::new(store, world.random()));
        let membership = world.config.shared.then(|| membership(&world, &engine, &clock));
        let live = Rc::new(Live { engine, clock, membership, world: world.clone() });
        if let Some(membership) = &live.membership {
            // Whatever runs the program starts it again when this fails.
            while be_heard_once(&world, &live, membership).await.is_err() {
                world.sleep(TICK_MS).await;
            }
        }
        if world.config.announces {
            world.spawn(
                Host::Server(server),
                announce(world.clone(), live.clone(), outbox_relay(&world, &live)),
            );
        }
        world.spawn(Host::Server(server), commit(live.clone()));
        match world.config.shared {
            true => world.spawn(Host::Server(server), commit_many(live.clone())),
            false => world.spawn(Host::Server(server), commit(live.clone())),
        };
        world.spawn(Host::Server(server), keep_leases(world.clone(), live.clone()));
        world.spawn(Host::Server(server), keep_time(world.clone(), live.clone()));
        if world.config.shared {
            world.spawn(Host::Server(server), be_heard(world.clone(), live.clone()));
            world.spawn(Host::Server(server), hear_news(world.clone(), live.clone()));
        }
        upkeep::begin(&world, server, &live);
        *world.servers.seats[server].live.borrow_mut() = Some(live);
        world.see(Seen::ServerStarted);
        world.tell(|| format!("server {server} runs"));
    });
}

/// The server is gone at once, with what was not written yet.
pub(crate) fn kill(world: &Rc<World>, server: usize) {
    world.tell(|| format!("server {server} is killed"));
    world.note_touch(server);
    world.see(Seen::ServerKilled);
    let seat = &world.servers.seats[server];
    seat.live.take();
    world.kill(Host::Server(server));
    let device = seat.device.borrow().clone();
    device.power_off(world);
    world.remove_device(&device);
    world.break_calls_to(server);
}

async fn open(world: &Rc<World>, server: usize, device: Device) -> (Arc<dyn Store>, Rc<MachineClock>) {
    let wrong = world.servers.seats[server].clock_wrong.clone();
    let journal = world.journal.clone();
    match &world.servers.rows {
        Rows::Shared(SharedRows { store, followed, enqueued, common }) => {
            let clock = match followed {
                Some(_) => Rc::new(MachineClock::start(world, wrong, Timestamp(0))),
                None => {
                    let wrong = world.servers.seats[0].clock_wrong.clone();
                    let start = || Rc::new(MachineClock::start(world, wrong, Timestamp(0)));
                    common.borrow_mut().get_or_insert_with(start).clone()
                }
            };
            let clock_of_rows = followed.clone();
            let enqueued = EnqueuedThere { rows: enqueued.clone(), device: device.clone() };
            let database = Database { rows: store.clone(), device, journal, clock: clock_of_rows, enqueued };
            (Arc::new(database), clock)
        }
        Rows::Disk(rows) => {
            let clock = Rc::new(MachineClock::start(world, wrong, Timestamp(0)));
            loop {
                let disk = Disk { rows: rows.clone(), device: device.clone(), journal: journal.clone() };
                match Resident::open_with(Arc::new(disk), clock.now(world), world.config.rest).await {
                    Ok(store) => {
                        clock.not_before(store.latest_at());
                        store.begin_grace(clock.now(world));
                        return (Arc::new(store), clock);
                    }
                    // Whatever runs the program starts it again.
                    Err(_) => world.sleep(TICK_MS).await,
                }
            }
        }
    }
}

async fn commit(live: Rc<Live>) {
    let committer = Committer::new(live.engine.clone());
    loop {
        live.engine.inbox().wait().await;
        while committer.run_once(|| live.now()).await > 0 {}
    }
}

/// As [`commit`], but only when much waits while another batch is under way, where servers share rows.
async fn commit_many(live: Rc<Live>) {
    let committer = Committer::new(live.engine.clone());
    loop {
        live.engine.inbox().wait_for_many().await;
        committer.run_once(|| live.now()).await;
    }
}

/// Hands out what others made ready, as soon as the rows say so.
async fn hear_news(world: Rc<World>, live: Rc<Live>) {
    let dispatcher = Dispatcher::new(live.engine.clone());
    loop {
        live.engine.news().await;
        for _ in 0..2 {
            // What fails is tried again when time is kept.
            let _ = dispatcher.run_once(live.now()).await;
            world.sleep(NEWS_PAUSE_MS).await;
        }
    }
}

async fn keep_leases(world: Rc<World>, live: Rc<Live>) {
    let engine = &live.engine;
    let lease_keeper = LeaseKeeper::new(engine.clone());
    loop {
        let failed = lease_keeper.run_once(live.now()).await.is_err();
        let wake = engine.next_poll_end(live.now()).unwrap_or(Millis(TICK_MS)).0;
        let pause = if failed { TICK_MS } else { wake.clamp(TICK_MIN_MS, TICK_MS) };
        world.at_most(pause, engine.polls_closed().wait()).await;
    }
}

async fn keep_time(world: Rc<World>, live: Rc<Live>) {
    let engine = &live.engine;
    let timekeeper = Timekeeper::new(engine.clone());
    let reclaimer = Reclaimer::new(engine.clone());
    let messenger = Messenger::new(engine.clone());
    let change_poller = ChangePoller::new(engine.clone());
    let dispatcher = Dispatcher::new(engine.clone());
    loop {
        let failed = reclaimer.run_once(live.now()).await.is_err()
            | timekeeper.run_once(live.now()).await.is_err()
            | messenger.run_once(live.now()).await.is_err()
            | change_poller.run_once(live.now()).await.is_err()
            | dispatcher.run_once(live.now()).await.is_err();
        let wake = engine.next_wake(live.now()).unwrap_or(Millis(TICK_MS)).0;
        let pause = if failed { TICK_MS } else { wake.clamp(TICK_MIN_MS, TICK_MS) };
        match failed {
            true => world.sleep(pause).await,
            false => drop(world.at_most(pause, engine.timers().wait()).await),
        }
    }
}

/// Who announces what this server and others have written.
fn outbox_relay(world: &Rc<World>, live: &Live) -> OutboxRelay {
    let device = Device::default();
    world.add_device(device.clone());
    let dice = Mutex::new(fastrand::Rng::with_seed(world.random()));
    let losses = world.config.announcements_lost;
    let topics = Topics { device, journal: world.journal.clone(), dice, losses };
    OutboxRelay::new(live.engine.clone(), Arc::new(topics), Arc::new(Numbers), topic())
}

async fn announce(world: Rc<World>, live: Rc<Live>, outbox_relay: OutboxRelay) {
    loop {
        let pause = outbox_relay.run_once(|| live.now()).await.map_or(TICK_MS, |pause| pause.0);
        world.sleep(ANNOUNCE_PAUSE_MS).await;
        world.at_most(pause, outbox_relay.stirred()).await;
    }
}

fn membership(world: &World, engine: &Arc<Engine>, clock: &MachineClock) -> Membership {
    let now = clock.now(world);
    let me = ServerState {
        id: ServerId(world.random().into()),
        version: "sim".into(),
        address: "sim".into(),
        level: 0,
        started_at: now.wall,
        heard_at: now.wall,
        heard: now.mono,
    };
    Membership::new(engine.clone(), me)
}

async fn be_heard(world: Rc<World>, live: Rc<Live>) {
    let Some(membership) = &live.membership else { return };
    loop {
        world.sleep(HEARTBEAT_EVERY.0).await;
        // What fails is tried again with the next heartbeat.
        let _ = be_heard_once(&world, &live, membership).await;
    }
}

/// Follows the clock of the database where there is one, and renews the membership.
async fn be_heard_once(world: &World, live: &Live, membership: &Membership) -> Result<(), EngineError> {
    let asked_at = world.now();
    if let Some(time) = membership.time().await?
        && world.now() - asked_at <= ROUND_TRIP_MAX_MS
    {
        if let Some(then) = live.clock.jump_to(time, world) {
            world.count("followed clock: jumped");
            membership.forgive(then).await?;
        }
        live.clock.follow(time, (world.now() - asked_at) / 2, world);
    }
    membership.run_once(live.now()).await
}

/// The server ends in good order: it takes no more calls, answers those that it has, and leaves the others.
pub(super) fn stop(world: &Rc<World>, server: usize) {
    world.tell(|| format!("server {server} is asked to stop"));
    let Some(live) = world.servers.seats[server].live.take() else { return };
    let here = world.clone();
    world.spawn(Host::Server(server), async move {
        here.sleep(here.within(0..=STOPPING_MS_MAX)).await;
        if let Some(membership) = &live.membership {
            // Others take over in time when this fails.
            let _ = membership.end().await;
        }
        here.after(0, "server ends", move |world| kill(world, server));
    });
}
