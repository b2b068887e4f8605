//! Special kinds of worlds. Each kind is drawn independently, so that all combinations occur.

use windlass_store::resident::BodyPolicy;

use crate::{
    config::{Config, Fault},
    fleet::FleetConfig,
};

/// A special kind of world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each call of a worker goes to any server, as behind a load balancer.
    Balanced,
    /// Servers on shared rows have their own clocks, which follow the clock of the database.
    OwnClocks,
    /// Every operation of a store takes up to [`SLOW_MS_MAX`].
    SlowCommits,
    /// Servers are paused and resumed repeatedly, each time for less than a second.
    Stutters,
    /// Far more tasks than the workers can run at once, so that attempts wait for longer than their timeouts.
    Backlog,
    /// Operators run tasks again and repeat their commands.
    Repeats,
    /// Servers also stop cleanly.
    OrderlyStops,
    /// Some submits contain many tasks, and operators send one command to many tasks.
    Batches,
    /// Some tasks bring their own steps.
    AdHoc,
    /// Some flows are like those of the classic catalogue.
    Classic,
    /// Servers delete tasks soon after their end.
    Sweeps,
    /// Applications enqueue tasks in their own transactions. Servers share a database.
    Enqueued,
    /// Steps of one module are published to a broker, for consumers that cannot ask a server. No reasons are
    /// asked for: the contents of a broker are unknown here.
    Broker,
    /// Rows of some tasks become unreadable; on a database also those of locks, limits and announcements.
    DamagedRows,
    /// A server that owns its disk has few parameters and results in memory, or none.
    FewBytes,
    /// Processes campaign for a name.
    Leaders,
    /// The store is moved into another one by export and import. The server owns its disk.
    Moves,
    /// A trigger fires at each instant of an interval.
    Triggers,
    /// Some steps are jobs of devices over MQTT.
    Devices,
    /// Rollouts start tasks for devices of their own.
    Rollouts,
}

/// The longest operation of a slow store, in milliseconds. A service renews its lease of 3 s with about six
/// operations, so with much more than this servers lose their services, and events are never published (world
/// 15 with 700).
const SLOW_MS_MAX: u64 = 200;

/// The same in a world with devices, where a server renews one more lease (world 208 with 157).
const SLOW_WITH_DEVICES_MS_MAX: u64 = 120;

/// Bytes of parameters and results in memory: none, or those of a few tasks.
const FEW_BYTES: [u64; 3] = [0, 100, 500];

/// The tasks of a world with a backlog.
const BACKLOG_TASKS: u64 = 60;

impl Kind {
    /// All kinds.
    pub(crate) const ALL: &[Self] = &[
        Self::Balanced,
        Self::OwnClocks,
        Self::SlowCommits,
        Self::Stutters,
        Self::Backlog,
        Self::Repeats,
        Self::OrderlyStops,
        Self::Batches,
        Self::AdHoc,
        Self::Classic,
        Self::Sweeps,
        Self::Enqueued,
        Self::Broker,
        Self::DamagedRows,
        Self::FewBytes,
        Self::Leaders,
        Self::Moves,
        Self::Triggers,
        Self::Devices,
        Self::Rollouts,
    ];

    /// The number of worlds in a thousand that are of this kind.
    fn share(self) -> u64 {
        match self {
            Self::Balanced | Self::OwnClocks => 400,
            Self::Repeats | Self::Triggers => 300,
            Self::OrderlyStops
            | Self::Batches
            | Self::AdHoc
            | Self::Classic
            | Self::Sweeps
            | Self::Leaders
            | Self::Rollouts => 200,
            Self::Enqueued | Self::FewBytes | Self::Devices => 300,
            Self::Broker | Self::DamagedRows | Self::Moves => 100,
            Self::Stutters | Self::Backlog => 80,
            Self::SlowCommits => 50,
        }
    }

    /// Changes the properties of a world to this kind.
    fn shape(self, config: &mut Config, dice: &mut fastrand::Rng) {
        match self {
            Self::SlowCommits => config.faults.device_ms = dice.u64(SLOW_MS_MAX / 4..=SLOW_MS_MAX),
            Self::Stutters => {
                config.faults.kinds.push(Fault::ServerStutters);
                config.faults.every_ms = config.faults.every_ms.max(2_000);
            }
            Self::Backlog => {
                config.tasks = BACKLOG_TASKS;
                config.workers.iter_mut().for_each(|worker| worker.slots = 1);
            }
            Self::OrderlyStops => {
                config.faults.kinds.push(Fault::ServerStopped);
                config.faults.every_ms = config.faults.every_ms.max(1_000);
            }
            // With a clock that jumps ahead, tasks would be deleted while others are still duplicates of
            // them.
            Self::Sweeps => config.faults.kinds.retain(|fault| *fault != Fault::ClockJump),
            Self::Broker => {
                config.unblocks = false;
                config.workers[0].both_modules = true;
            }
            Self::FewBytes => {
                let bytes_max = FEW_BYTES[dice.usize(..FEW_BYTES.len())];
                config.rest.bodies = BodyPolicy { bytes_max, kept: 0 };
            }
            Self::Devices => {
                config.fleet = FleetConfig::draw(dice);
                config.faults.device_ms = config.faults.device_ms.min(SLOW_WITH_DEVICES_MS_MAX);
            }
            Self::Balanced
            | Self::OwnClocks
            | Self::Repeats
            | Self::Batches
            | Self::AdHoc
            | Self::Enqueued
            | Self::DamagedRows
            | Self::Moves
            | Self::Leaders
            | Self::Triggers
            | Self::Rollouts
            | Self::Classic => {}
        }
    }

    /// Draws the kinds of a world: those in `forced`, and others by chance.
    pub(crate) fn draw(config: &mut Config, forced: &[Self], dice: &mut fastrand::Rng) {
        for kind in Self::ALL {
            let drawn = dice.u64(..1000) < kind.share();
            if drawn || forced.contains(kind) {
                kind.shape(config, dice);
                config.special.push(*kind);
            }
        }
    }

    /// The kind with this name.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|kind| format!("{kind:?}").eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| format!("unknown kind of world {name:?}: use one of {:?}", Self::ALL))
    }
}
