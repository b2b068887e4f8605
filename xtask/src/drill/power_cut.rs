//! The power is cut under the store at many places, and the store is opened again on what is left of its disk.
//! `crates/powercut` does the work.

use std::process::Command;

use anyhow::{Context as _, Result};

use super::Length;
use crate::workspace::{Workspace, run_to_success};

pub(super) fn run(workspace: &Workspace, length: Length) -> Result<()> {
    // The short form has another seed than the tests of the crate, so that it cuts at other places.
    let (cuts, seed) = if length == Length::Long { ("2000", "7") } else { ("100", "2") };
    let mut command =
        Command::new(workspace.build(&[&["--package", "windlass-powercut"], length.options()].concat())?);
    command.args(["--cuts", cuts, "--seed", seed]);
    run_to_success(command).context("an acknowledged entry is missing, or the store is damaged: see above")
}
