//! The power is cut under the store at many places, and the store is opened again on what is left of its disk.
//! `crates/powercut` does the work.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use super::Length;
use crate::workspace::{Workspace, run_to_success};

/// The program that does it.
pub(super) const PROGRAM: &str = "windlass-powercut";

pub(super) fn run(workspace: &Workspace, program: Option<PathBuf>, length: Length) -> Result<()> {
    // The short form has another seed than the tests of the crate, so that it cuts at other places.
    let (cuts, seed) = if length == Length::Long { ("2000", "7") } else { ("100", "2") };
    let build = || workspace.build(&[&["--package", PROGRAM], length.options()].concat());
    let mut command = Command::new(program.map_or_else(build, Ok)?);
    command.args(["--cuts", cuts, "--seed", seed]);
    run_to_success(command).context("an acknowledged entry is missing, or the store is damaged: see above")
}
