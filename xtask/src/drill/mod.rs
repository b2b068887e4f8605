//! `cargo xtask drill NAME`: faults on real processes, with the figures they gave.
//!
//! A drill starts servers and workers of the program as children, does something bad to them, and counts: what
//! was accepted, what ended, what ran how often. It fails when something was lost or accepted twice. CI runs the
//! short forms, `--long` is for people.

mod fleet;
mod server_kill;
mod worker_kill;

use anyhow::{Result, bail};

use crate::workspace::Workspace;

/// How thorough a drill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// For CI.
    Short,
    /// For people, some minutes, with an optimised build.
    Long,
}

/// The names of all drills.
pub(crate) fn names() -> [&'static str; 2] {
    ["worker-kill", "server-kill"]
}

/// Runs the drill `name`. Fails when something was lost, ran twice, or could not be measured.
pub(crate) fn run(workspace: &Workspace, name: &str, length: Length) -> Result<()> {
    let program = fleet::build(workspace, length)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match name {
            "worker-kill" => worker_kill::run(&program, length).await,
            "server-kill" => server_kill::run(&program, length).await,
            _ => bail!("there is no drill {name:?}: there are {}", names().join(", ")),
        }
    })
}
