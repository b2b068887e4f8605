//! Servers: the real engine and its services over a store, in the same loops as the program.

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
    loops::{self, StoreClock, Timer},
    services::{DeviceKeeper, Membership, OutboxRelay, TopicSubscriber},
};
use windlass_store::{
    Announced, Clock, Cluster as _, Now, ServerId, ServerState, Store,
    memory::{MemorySink, Row, SharedStore},
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

/// The key for signing tokens in every world.
const TOKEN_KEY: [u8; 32] = [7; 32];

/// The delay before a failed start of a server is repeated.
const RESTART_MS: u64 = 100;

/// How long a stopping server may answer the calls in progress.
const STOPPING_MS_MAX: u64 = 400;

/// The servers of a world, and the rows that survive them.
pub(crate) struct Servers {
    seats: Vec<Seat>,
    rows: Rows,
}

enum Rows {
    Disk(RefCell<MemorySink>),
    Shared(SharedRows),
}

/// A database.
struct SharedRows {
    store: SharedStore,
    /// The clock of the database; none if all servers share one clock.
    followed: Option<DatabaseClock>,
    /// Tasks that applications have enqueued.
    enqueued: EnqueuedRows,
    /// The common clock of all servers, if they share one.
    common: RefCell<Option<Rc<MachineClock>>>,
}

/// A machine for a server.
struct Seat {
    live: RefCell<Option<Rc<Live>>>,
    device: RefCell<Device>,
    clock_wrong: Wrong,
}

/// A running server.
pub(crate) struct Live {
    pub(crate) engine: Arc<Engine>,
    clock: Rc<MachineClock>,
    membership: Option<Membership>,
    /// What gives devices their jobs, in worlds with devices.
    pub(super) keeper: RefCell<Option<Arc<DeviceKeeper>>>,
    /// What publishes events, in worlds where somebody subscribes to them.
    relay: RefCell<Option<Arc<OutboxRelay>>>,
    pub(super) world: Rc<World>,
}

impl Live {
    pub(crate) fn now(&self) -> Now {
        Clock::now(self)
    }
}

impl Clock for Live {
    fn now(&self) -> Now {
        self.clock.now(&self.world)
    }
}

impl Timer for Live {
    fn sleep(&self, pause: Millis) -> impl Future<Output = ()> {
        self.world.sleep(pause.0)
    }
}

impl StoreClock for Live {
    fn elapsed(&self) -> Millis {
        Millis(self.world.now())
    }

    fn jump_to(&self, time: Timestamp) -> Option<Now> {
        let jump = self.clock.jump_to(time, &self.world);
        if jump.is_some() {
            self.world.count("followed clock: jumped");
        }
        jump
    }

    fn follow(&self, time: Timestamp, ago: Millis) {
        self.clock.follow(time, ago.0, &self.world);
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
            false => Rows::Disk(RefCell::new(MemorySink::new(TOKEN_KEY))),
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

    /// The server on this machine, if it runs.
    pub(crate) fn live(&self, server: usize) -> Option<Rc<Live>> {
        self.seats[server].live.borrow().clone()
    }

    /// The device of the store on this machine.
    pub(crate) fn device(&self, server: usize) -> Device {
        self.seats[server].device.borrow().clone()
    }

    /// The last time so far at which the device of any machine was full or slow.
    pub(crate) fn disturbed_at(&self, world: &World) -> u64 {
        (0..self.count()).map(|server| self.device(server).disturbed_at(world)).max().unwrap_or(0)
    }

    /// Commits a transaction that enqueues a task.
    pub(super) fn enqueue(&self, id: TaskId, task: String) {
        if let Rows::Shared(rows) = &self.rows {
            rows.enqueued.enqueue(id, task);
        }
    }

    /// The tasks that applications have enqueued; none without a database.
    pub(crate) fn enqueued(&self) -> Option<&EnqueuedRows> {
        match &self.rows {
            Rows::Shared(rows) => Some(&rows.enqueued),
            Rows::Disk(_) => None,
        }
    }

    /// Damages a row. On a disk, tasks alone can be damaged.
    pub(super) fn damage(&self, row: &Row) {
        match (&self.rows, row) {
            (Rows::Shared(rows), _) => rows.store.damage(row.clone()),
            (Rows::Disk(rows), Row::Task(task)) => rows.borrow().damage(*task),
            (Rows::Disk(_), _) => {}
        }
    }

    /// The rows of a disk.
    pub(super) fn sink(&self) -> Option<MemorySink> {
        match &self.rows {
            Rows::Disk(rows) => Some(rows.borrow().clone()),
            Rows::Shared(_) => None,
        }
    }

    /// From now on the server starts on these rows.
    pub(super) fn replace_sink(&self, sink: MemorySink) {
        if let Rows::Disk(rows) = &self.rows {
            rows.replace(sink);
        }
    }

    /// A row of the outbox of a database: the first one.
    pub(super) fn any_announcement(&self) -> Option<Announced> {
        match &self.rows {
            Rows::Shared(rows) => rows.store.first_unannounced(),
            Rows::Disk(_) => None,
        }
    }

    /// The number of tasks with damaged rows that running servers have found.
    pub(crate) fn damaged_tasks(&self) -> usize {
        let live = self.seats.iter().filter_map(|seat| seat.live.borrow().clone());
        live.map(|live| live.engine.damaged_tasks()).max().unwrap_or(0)
    }

    /// Sets the error of a clock in milliseconds. The clock of a database is that of the first machine.
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
        let (keeper, relay) = (RefCell::default(), RefCell::default());
        let live = Rc::new(Live { engine, clock, membership, keeper, relay, world: world.clone() });
        if let Some(membership) = &live.membership {
            // The service manager restarts the program when this fails.
            while join(&live, membership).await.is_err() {
                world.sleep(RESTART_MS).await;
            }
        }
        if world.config.announces {
            let relay = Arc::new(outbox_relay(&world, &live));
            live.relay.replace(Some(relay.clone()));
            world.spawn(Host::Server(server), loops::relay(relay, live.clone()));
        }
        let (engine, committer) = (live.engine.clone(), || Committer::new(live.engine.clone()));
        world.spawn(Host::Server(server), loops::commit(engine.clone(), committer(), live.clone()));
        match world.config.shared {
            true => world
                .spawn(Host::Server(server), loops::commit_many(engine.clone(), committer(), live.clone())),
            false => {
                world.spawn(Host::Server(server), loops::commit(engine.clone(), committer(), live.clone()))
            }
        };
        world.spawn(Host::Server(server), loops::keep_leases(engine.clone(), live.clone()));
        world.spawn(Host::Server(server), loops::keep_time(engine.clone(), live.clone()));
        world.spawn(Host::Server(server), loops::deliver_messages(engine.clone(), live.clone()));
        if world.config.shared {
            world.spawn(Host::Server(server), heartbeat(live.clone()));
            world.spawn(Host::Server(server), loops::hear_changes(engine, live.clone()));
        }
        upkeep::begin(&world, server, &live);
        *world.servers.seats[server].live.borrow_mut() = Some(live);
        world.see(Seen::ServerStarted);
        world.tell(|| format!("server {server} runs"));
    });
}

/// Kills the server at once; unwritten data is lost.
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
            let enqueued = EnqueuedThere {
                rows: enqueued.clone(),
                device: device.clone(),
                others: store.clone(),
                journal: journal.clone(),
            };
            let database = Database { rows: store.clone(), device, journal, clock: clock_of_rows, enqueued };
            // Like the program: no server goes by a clock of its own, however slow the database is.
            while followed.is_some() {
                match database.time().await {
                    Ok(Some(time)) => {
                        clock.follow(time, 0, world);
                        break;
                    }
                    _ => world.sleep(RESTART_MS).await,
                }
            }
            (Arc::new(database), clock)
        }
        Rows::Disk(rows) => {
            let clock = Rc::new(MachineClock::start(world, wrong, Timestamp(0)));
            let rows = rows.borrow().clone();
            loop {
                let disk = Disk { rows: rows.clone(), device: device.clone(), journal: journal.clone() };
                match Resident::open_with(Arc::new(disk), clock.now(world), world.config.rest).await {
                    Ok(store) => {
                        clock.not_before(store.latest_at());
                        store.begin_grace(clock.now(world));
                        return (Arc::new(store), clock);
                    }
                    // The service manager restarts the program.
                    Err(_) => world.sleep(RESTART_MS).await,
                }
            }
        }
    }
}

/// The outbox relay, which publishes the events of all servers.
fn outbox_relay(world: &Rc<World>, live: &Live) -> OutboxRelay {
    let device = Device::default();
    world.add_device(device.clone());
    let dice = Mutex::new(fastrand::Rng::with_seed(world.random()));
    let losses = world.config.announcements_lost;
    let topics = Topics { device, journal: world.journal.clone(), dice, losses };
    let topic = TopicSubscriber::new(Arc::new(topics), Arc::new(Numbers), topic());
    let relay = OutboxRelay::new(live.engine.clone(), vec![Arc::new(topic)]);
    relay.with_pages_of(if world.chance(500) { 5 } else { 500 })
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

/// Follows the clock of the database, if there is one, and registers as a server of the store.
async fn join(live: &Live, membership: &Membership) -> Result<(), EngineError> {
    loops::follow_store_first(membership, live).await?;
    membership.run_once(live.now()).await
}

async fn heartbeat(live: Rc<Live>) {
    let Some(membership) = &live.membership else { return };
    loops::heartbeat(membership, &*live).await;
}

/// Stops the server cleanly: it accepts no more calls, answers those in progress, and leaves the other
/// servers.
pub(super) fn stop(world: &Rc<World>, server: usize) {
    world.tell(|| format!("server {server} is asked to stop"));
    let Some(live) = world.servers.seats[server].live.take() else { return };
    let here = world.clone();
    world.spawn(Host::Server(server), async move {
        here.sleep(here.within(0..=STOPPING_MS_MAX)).await;
        let keeper = live.keeper.take();
        if let Some(keeper) = keeper {
            keeper.end().await;
        }
        let relay = live.relay.take();
        if let Some(relay) = relay {
            // If this fails, the next server announces some events again.
            let _ = relay.end(live.now()).await;
        }
        if let Some(membership) = &live.membership {
            // If this fails, other servers take over after a timeout.
            let _ = membership.end().await;
        }
        here.after(0, "server ends", move |world| kill(world, server));
    });
}
