//! `cargo xtask drill NAME`: faults on real processes, with the figures they gave.
//!
//! A drill starts servers and workers of the program as children, does something bad to them, and counts: what
//! was accepted, what ended, what ran how often. It fails when something was lost or accepted twice. CI runs the
//! short forms, `--long` is for people.

mod fleet;
mod server_kill;
mod worker_kill;

use anyhow::{Result, bail};

/// How thorough a drill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// For CI.
    Short,
    /// For people, some minutes.
    Long,
}

/// The drills and what they do.
pub const DRILLS: &[(&str, &str)] = &[
    ("worker-kill", "a worker with half of 400 tasks is killed; another one is there"),
    ("server-kill", "the server is killed and started again three times under load"),
];

/// Runs the drill `name` with the program `windlass`.
///
/// # Errors
/// When something was lost, ran twice, or could not be measured.
pub fn run(name: &str, length: Length) -> Result<()> {
    let program = fleet::build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match name {
            "worker-kill" => worker_kill::run(&program, length).await,
            "server-kill" => server_kill::run(&program, length).await,
            _ => {
                let names: Vec<&str> = DRILLS.iter().map(|(name, _)| *name).collect();
                bail!("there is no drill {name:?}: there are {}", names.join(", "))
            }
        }
    })
}
