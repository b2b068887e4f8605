//! `cargo xtask drill NAME`: faults on real processes, with the figures they gave.
//!
//! A drill starts servers and workers of the program as children, does something bad to them, and counts: what
//! was accepted, what ended, what ran how often. It fails when something was lost or accepted twice. `power-cut`
//! alone has no servers: nobody can cut the power of a process, so it is the store that is cut off. CI runs the
//! short forms, `--long` is for people.

mod balancer;
mod brokers;
mod clock_jump;
mod damaged_file;
mod damaged_row;
mod database_away;
mod disk_full;
mod fleet;
mod hand;
mod herd;
mod leader_kill;
mod ledger;
mod poison;
mod power_cut;
mod servers;
mod slow_disk;
mod stall;
mod starve;
mod tasks;
mod under_load;
mod worker_kill;

pub(crate) use brokers::Broker;
pub(crate) use hand::{HandArgs, run as run_hand};
pub(crate) use leader_kill::Coordinator;
pub(crate) use servers::Database;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use crate::{
    lanes::{self, Job},
    workspace::Workspace,
};
use brokers::Accident;
use under_load::Victims;

/// How thorough a drill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// For CI.
    Short,
    /// For people, some minutes, with an optimised build.
    Long,
}

impl Length {
    /// The options of `cargo build` for this form.
    fn options(self) -> &'static [&'static str] {
        if self == Self::Long { &["--release"] } else { &[] }
    }
}

/// The drill that needs another program than `windlass`.
const POWER_CUT: &str = "power-cut";

/// The names of all drills.
pub(crate) fn names() -> [&'static str; 20] {
    [
        "worker-kill",
        "server-kill",
        "both-kill",
        "stall",
        "starve",
        "slow-disk",
        "disk-full",
        "poison",
        "herd",
        "damaged-file",
        "damaged-row",
        "clock-jump",
        POWER_CUT,
        "servers",
        "balancer",
        "database-away",
        "broker-kill",
        "broker-wipe",
        "broker-server-kill",
        "leader-kill",
    ]
}

/// These drills mostly wait: for servers, disks or timers. CI runs the three lanes concurrently, after the other drills.
const LANES: [&[&str]; 3] = [
    &["servers", "database-away", "broker-server-kill", "balancer"],
    &["broker-kill", "broker-wipe", "leader-kill"],
    &["slow-disk", "poison", "damaged-file", "damaged-row", "clock-jump", POWER_CUT],
];

/// Runs all drills in their short form. `program` returns the path of the program with this name.
pub(crate) fn check(workspace: &Workspace, program: impl Fn(&str) -> Result<PathBuf>) -> Result<()> {
    let (windlass, powercut) = (program("windlass")?, program(power_cut::PROGRAM)?);
    let job = |name: &str| job(workspace, if name == POWER_CUT { &powercut } else { &windlass }, name);
    let is_in_lane = |name: &&str| LANES.iter().any(|lane| lane.contains(name));
    let (in_lanes, alone): (Vec<_>, Vec<_>) = names().into_iter().partition(is_in_lane);
    ensure!(in_lanes.len() == LANES.concat().len(), "a drill in a lane has no such name");
    let alone = lanes::run(vec![alone.into_iter().map(job).collect()]);
    let lane = |lane: &&[&str]| lane.iter().copied().map(job).collect();
    let together = lanes::run(LANES.iter().map(lane).collect());
    alone.and(together)
}

/// A drill in a process of its own.
fn job(workspace: &Workspace, program: &Path, name: &str) -> Job {
    let mut command = workspace.command("cargo", &["xtask", "drill", name, "--program"]);
    command.arg(program);
    Job { name: format!("drill {name}"), command }
}

/// Runs the drill `name`; those on databases on each. Fails when something was lost, ran twice, or could not be
/// measured.
pub(crate) fn run(workspace: &Workspace, name: &str, length: Length) -> Result<()> {
    run_on(workspace, None, name, length, On::default())
}

/// What a drill that is about products is to be about; nothing = all of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct On {
    /// One database.
    pub(crate) database: Option<Database>,
    /// One broker.
    pub(crate) broker: Option<Broker>,
    /// One coordinator.
    pub(crate) coordinator: Option<Coordinator>,
}

/// The same on one product, where the drill is about products, and with this program instead of one that is built now.
pub(crate) fn run_on(
    workspace: &Workspace,
    program: Option<PathBuf>,
    name: &str,
    length: Length,
    on: On,
) -> Result<()> {
    let On { database, broker, coordinator } = on;
    ensure!(
        database.is_none() || ["servers", "balancer", "database-away"].contains(&name),
        "only the drills \"servers\", \"balancer\" and \"database-away\" have a database"
    );
    ensure!(
        broker.is_none() || name.starts_with("broker-"),
        "only the drills whose names begin with \"broker-\" have a broker"
    );
    ensure!(
        coordinator.is_none() || name == "leader-kill",
        "only the drill \"leader-kill\" has a coordinator"
    );
    if name == POWER_CUT {
        return power_cut::run(workspace, program, length);
    }
    let program = program.map_or_else(|| workspace.build_full(length.options()), Ok)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match name {
            "worker-kill" => worker_kill::run(&program, length).await,
            "server-kill" => under_load::run(&program, length, Victims::Server).await,
            "both-kill" => under_load::run(&program, length, Victims::Both).await,
            "stall" => stall::run(&program, length).await,
            "starve" => starve::run(&program, length).await,
            "slow-disk" => slow_disk::run(&program, length).await,
            "disk-full" => disk_full::run(&program, length).await,
            "damaged-file" => damaged_file::run(&program, length).await,
            "damaged-row" => damaged_row::run(&program, length).await,
            "clock-jump" => clock_jump::run(&program, length).await,
            "poison" => poison::run(&program, length).await,
            "herd" => herd::run(&program, length).await,
            "servers" => servers::run(&program, length, database).await,
            "balancer" => balancer::run(&program, length, database).await,
            "database-away" => database_away::run(&program, length, database).await,
            "broker-kill" => brokers::run(&program, length, broker, Accident::Kill).await,
            "broker-wipe" => brokers::run(&program, length, broker, Accident::Wipe).await,
            "broker-server-kill" => brokers::run(&program, length, broker, Accident::Server).await,
            "leader-kill" => leader_kill::run(&program, length, coordinator).await,
            _ => bail!("there is no drill {name:?}: there are {}", names().join(", ")),
        }
    })
}
