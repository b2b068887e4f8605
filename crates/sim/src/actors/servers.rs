//! Servers: the real engine and its services over a store, in the loops that the program runs them in.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, Mutex},
};

use windlass_core::{Millis, Timestamp};
use windlass_engine::{
    Engine,
    memory::{MemorySink, SharedStore},
    ports::{Now, ServerId, ServerState, Store},
    resident::Resident,
    services::{
        Announcer, Committer, Dispatcher, HEARTBEAT_EVERY, LeaseKeeper, Lookout, Membership, Messenger,
        Timekeeper,
    },
};

use crate::{
    config::Config,
    judge::Seen,
    stores::{Database, Disk, Numbers, Topics, topic},
    world::{Device, Host, MachineClock, World},
};

/// What tokens are signed with in every world.
const TOKEN_KEY: [u8; 32] = [7; 32];

/// The longest and the shortest time between two looks at what is due, as in the program.
const TICK_MS: u64 = 100;
const TICK_MIN_MS: u64 = 1;

/// Between two rounds of announcements, as in the program.
const ANNOUNCE_PAUSE_MS: u64 = 5;

/// Batches decided at once, as in the program.
const COMMITTERS: usize = 2;

/// The servers of a world, and the rows that survive them.
pub(crate) struct Servers {
    seats: Vec<Seat>,
    rows: Rows,
}

enum Rows {
    Disk(MemorySink),
    /// With the database's clock, which all servers go by.
    Shared(SharedStore, RefCell<Option<Rc<MachineClock>>>),
}

/// A machine for a server.
struct Seat {
    live: RefCell<Option<Rc<Live>>>,
    device: RefCell<Device>,
    clock_wrong: Rc<Cell<i64>>,
}

/// A server that runs.
pub(crate) struct Live {
    pub(crate) engine: Arc<Engine>,
    clock: Rc<MachineClock>,
    pub(super) world: Rc<World>,
}

impl Live {
    pub(crate) fn now(&self) -> Now {
        self.clock.now(&self.world)
    }
}

impl Servers {
    pub(crate) fn new(config: &Config) -> Self {
        let seat =
            |_| Seat { live: RefCell::default(), device: RefCell::default(), clock_wrong: Rc::default() };
        let rows = match config.shared {
            true => Rows::Shared(SharedStore::new(TOKEN_KEY), RefCell::default()),
            false => Rows::Disk(MemorySink::new(TOKEN_KEY)),
        };
        Self { seats: (0..config.servers).map(seat).collect(), rows }
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

    /// How wrong the clock there is, in milliseconds. A database's clock is that of the first machine.
    pub(crate) fn clock_wrong(&self, server: usize) -> &Cell<i64> {
        let machine = if matches!(self.rows, Rows::Shared(..)) { 0 } else { server };
        &self.seats[machine].clock_wrong
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
        let live = Rc::new(Live { engine, clock, world: world.clone() });
        if world.config.announces {
            world
                .spawn(Host::Server(server), announce(world.clone(), live.clone(), announcer(&world, &live)));
        }
        for _ in 0..COMMITTERS {
            world.spawn(Host::Server(server), commit(live.clone()));
        }
        world.spawn(Host::Server(server), keep_time(world.clone(), live.clone()));
        if world.config.shared {
            world.spawn(Host::Server(server), be_heard(world.clone(), live.clone()));
        }
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
        Rows::Shared(rows, clock) => {
            let mut clock = clock.borrow_mut();
            let wrong = world.servers.seats[0].clock_wrong.clone();
            let clock =
                clock.get_or_insert_with(|| Rc::new(MachineClock::start(world, wrong, Timestamp(0)))).clone();
            (Arc::new(Database { rows: rows.clone(), device, journal }), clock)
        }
        Rows::Disk(rows) => {
            let clock = Rc::new(MachineClock::start(world, wrong, Timestamp(0)));
            loop {
                let disk = Disk { rows: rows.clone(), device: device.clone(), journal: journal.clone() };
                match Resident::open_with(Arc::new(disk), clock.now(world), world.config.rest).await {
                    Ok(store) => {
                        clock.not_before(store.latest_at());
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

async fn keep_time(world: Rc<World>, live: Rc<Live>) {
    let engine = &live.engine;
    let timekeeper = Timekeeper::new(engine.clone());
    let lease_keeper = LeaseKeeper::new(engine.clone());
    let messenger = Messenger::new(engine.clone());
    let lookout = Lookout::new(engine.clone());
    let dispatcher = Dispatcher::new(engine.clone());
    loop {
        let failed = lease_keeper.run_once(live.now()).await.is_err()
            | timekeeper.run_once(live.now()).await.is_err()
            | messenger.run_once(live.now()).await.is_err()
            | lookout.run_once(live.now()).await.is_err()
            | dispatcher.run_once(live.now()).await.is_err();
        let wake = engine.next_wake(live.now()).unwrap_or(Millis(TICK_MS)).0;
        let pause = if failed { TICK_MS } else { wake.clamp(TICK_MIN_MS, TICK_MS) };
        world.at_most(pause, engine.stirred()).await;
    }
}

/// Who announces what this server and others have written.
fn announcer(world: &Rc<World>, live: &Live) -> Announcer {
    let device = Device::default();
    world.add_device(device.clone());
    let dice = Mutex::new(fastrand::Rng::with_seed(world.random()));
    let losses = world.config.announcements_lost;
    let topics = Topics { device, journal: world.journal.clone(), dice, losses };
    Announcer::new(live.engine.clone(), Arc::new(topics), Arc::new(Numbers), topic())
}

async fn announce(world: Rc<World>, live: Rc<Live>, announcer: Announcer) {
    loop {
        let pause = announcer.run_once(|| live.now()).await.map_or(TICK_MS, |pause| pause.0);
        world.sleep(ANNOUNCE_PAUSE_MS).await;
        world.at_most(pause, announcer.stirred()).await;
    }
}

async fn be_heard(world: Rc<World>, live: Rc<Live>) {
    let now = live.now();
    let me = ServerState {
        id: ServerId(world.random().into()),
        version: "sim".into(),
        address: "sim".into(),
        level: 0,
        started_at: now.wall,
        heard_at: now.wall,
        heard: now.mono,
    };
    let membership = Membership::new(live.engine.clone(), me);
    loop {
        let heard = membership.run_once(live.now()).await;
        world.sleep(if heard.is_ok() { HEARTBEAT_EVERY.0 } else { TICK_MS }).await;
    }
}
