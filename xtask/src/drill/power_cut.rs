//! The power is cut under the store at many places, and what is left of its disk is opened again: what
//! `crates/powercut` does.

use std::process::Command;

use anyhow::{Context as _, Result};

use super::Length;
use crate::workspace::{Workspace, run_to_success};

pub(super) fn run(workspace: &Workspace, length: Length) -> Result<()> {
    // The short form has a seed of its own, as the tests of the crate cut at the places of the first one.
    let (cuts, seed) = if length == Length::Long { ("2000", "7") } else { ("100", "2") };
    let mut command =
        Command::new(workspace.build(&[&["--package", "windlass-powercut"], length.options()].concat())?);
    command.args(["--cuts", cuts, "--seed", seed]);
    run_to_success(command).context("something acknowledged is missing, or the store is not sound: see above")
}
