//! The properties of a world, drawn from its seed: some worlds are quiet, some lose messages, some kill
//! servers, and some do all of it.

use windlass_core::Millis;
use windlass_store::resident::{BodyPolicy, RestPolicy};

use crate::{fleet::FleetConfig, kinds::Kind};

/// The properties of a world.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Whether the servers share a database; otherwise there is one server, which owns its disk.
    pub(crate) shared: bool,
    pub(crate) servers: usize,
    /// When a server that owns its disk evicts tasks: so early that loads and evictions are frequent.
    pub(crate) rest: RestPolicy,
    pub(crate) workers: Vec<WorkerConfig>,
    /// The number of submitted tasks.
    pub(crate) tasks: u64,
    pub(crate) outcomes: Outcomes,
    pub(crate) faults: Faults,
    /// How often, in a thousand turns, the caretaker interferes with a task.
    pub(crate) interference: u64,
    /// Whether blockers of tasks are removed, once the world is calm.
    pub(crate) unblocks: bool,
    /// Whether servers publish events, and how often, in a thousand, a message or its confirmation is lost.
    pub(crate) announces: bool,
    pub(crate) announcements_lost: u64,
    /// The devices. None outside worlds of [`Kind::Devices`].
    pub(crate) fleet: FleetConfig,
    /// The special kinds of this world.
    pub(crate) special: Vec<Kind>,
}

/// The properties of a worker.
#[derive(Debug, Clone)]
pub(crate) struct WorkerConfig {
    /// Whether it keeps a poll open at all times.
    pub(crate) attached: bool,
    pub(crate) lease: Option<Millis>,
    pub(crate) slots: usize,
    /// Whether it serves the second module too.
    pub(crate) both_modules: bool,
    /// Whether it starts only when a task needs it.
    pub(crate) is_spare: bool,
}

/// Outcomes of attempts, in a thousand.
#[derive(Debug, Clone)]
pub(crate) struct Outcomes {
    pub(crate) fails: u64,
    pub(crate) fails_for_good: u64,
    pub(crate) later: u64,
    pub(crate) hangs: u64,
    pub(crate) declined: u64,
    /// The command kills the worker that runs it.
    pub(crate) kills: u64,
}

/// Faults. Rates are in a thousand operations or messages.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    pub(crate) latency_ms: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) delayed: u64,
    pub(crate) device_ms: u64,
    pub(crate) device_errors: u64,
    /// The faults of machines, and the most milliseconds between two of them.
    pub(crate) kinds: Vec<Fault>,
    pub(crate) every_ms: u64,
}

/// A fault of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    ServerKilled,
    ServerPaused,
    WorkerKilled,
    WorkerPaused,
    Partition,
    ClockJump,
    StoreFull,
    StoreSlow,
    /// A server is paused and resumed repeatedly. Only in worlds of [`Kind::Stutters`].
    ServerStutters,
    /// A server stops cleanly. Only in worlds of [`Kind::OrderlyStops`].
    ServerStopped,
}

const FAULTS: [Fault; 8] = [
    Fault::ServerKilled,
    Fault::ServerPaused,
    Fault::WorkerKilled,
    Fault::WorkerPaused,
    Fault::Partition,
    Fault::ClockJump,
    Fault::StoreFull,
    Fault::StoreSlow,
];

/// The most announcements that are refused, in a thousand. With more of them, a change with many events may
/// never be published completely (world 15 with 200): the outbox starts again with its first event.
const ANNOUNCEMENTS_LOST_MAX: u64 = 30;

/// The policies of eviction: early, as early as possible, or with whole queues in memory.
const REST: [RestPolicy; 3] = [
    RestPolicy { horizon: Millis(500), page: 3, head: 3, bodies: BodyPolicy::ALL },
    RestPolicy { horizon: Millis(20), page: 2, head: 2, bodies: BodyPolicy::ALL },
    RestPolicy { horizon: Millis(500), page: 3, head: usize::MAX, bodies: BodyPolicy::ALL },
];

impl Config {
    /// Draws the properties of a world; it also has the kinds in `forced`.
    pub(crate) fn draw(forced: &[Kind], dice: &mut fastrand::Rng) -> Self {
        let mut config = Self::draw_plain(dice);
        if dice.bool() {
            config.unblocks = true;
            // It may be the only worker of the second module, which then has none before this one starts.
            config.workers[0].both_modules &= dice.bool();
            config.workers.push(WorkerConfig {
                attached: true,
                lease: None,
                slots: 4,
                both_modules: true,
                is_spare: true,
            });
        }
        // One world in four: publishing adds events to a run, and rarely finds anything else.
        config.announces = dice.u8(..4) == 0;
        config.announcements_lost = if dice.bool() { dice.u64(..ANNOUNCEMENTS_LOST_MAX) } else { 0 };
        Kind::draw(&mut config, forced, dice);
        config
    }

    /// Whether the world is of this kind.
    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.special.contains(&kind)
    }

    fn draw_plain(dice: &mut fastrand::Rng) -> Self {
        let shared = dice.u8(..3) == 0;
        let mut faults = Faults::none(dice);
        if dice.u8(..8) > 0 {
            faults.draw(dice);
        }
        let kills = if faults.kinds.contains(&Fault::WorkerKilled) { dice.u64(..15) } else { 0 };
        Self {
            shared,
            servers: if shared { dice.usize(1..=3) } else { 1 },
            rest: REST[dice.usize(..REST.len())],
            workers: (0..dice.usize(1..=4)).map(|index| WorkerConfig::draw(index, dice)).collect(),
            tasks: dice.u64(2..=24),
            outcomes: Outcomes {
                fails: dice.u64(..200),
                fails_for_good: dice.u64(..120),
                later: dice.u64(..80),
                hangs: dice.u64(..60),
                declined: dice.u64(..60),
                kills,
            },
            faults,
            interference: if dice.bool() { dice.u64(..700) } else { 0 },
            unblocks: false,
            announces: false,
            announcements_lost: 0,
            fleet: FleetConfig::default(),
            special: Vec::new(),
        }
    }
}

impl WorkerConfig {
    fn draw(index: usize, dice: &mut fastrand::Rng) -> Self {
        let leases = [None, None, Some(Millis(1000)), Some(Millis(5000)), Some(Millis(60_000))];
        Self {
            attached: dice.u8(..4) > 0,
            lease: leases[dice.usize(..leases.len())],
            slots: dice.usize(1..=8),
            both_modules: index == 0 || dice.bool(),
            is_spare: false,
        }
    }
}

impl Faults {
    fn none(dice: &mut fastrand::Rng) -> Self {
        Self {
            latency_ms: dice.u64(0..=20),
            lost: 0,
            doubled: 0,
            delayed: 0,
            device_ms: dice.u64(0..=10),
            device_errors: 0,
            kinds: Vec::new(),
            every_ms: 0,
        }
    }

    fn draw(&mut self, dice: &mut fastrand::Rng) {
        for rate in [&mut self.lost, &mut self.doubled, &mut self.delayed, &mut self.device_errors] {
            *rate = if dice.bool() { dice.u64(..60) } else { 0 };
        }
        self.kinds = FAULTS.into_iter().filter(|_| dice.bool()).collect();
        self.every_ms = dice.u64(200..=6000);
    }
}
