//! `windlass man`: manual pages.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Args;

use crate::cli::exit::Exit;

/// Where manual pages go.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder to write to
    folder: PathBuf,
}

impl ManArgs {
    /// Writes one page for the program, and one for each command.
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let cannot = || format!("cannot write manual pages to {}", self.folder.display());
        fs::create_dir_all(&self.folder).with_context(cannot)?;
        clap_mangen::generate_to(crate::cli::command(), &self.folder).with_context(cannot)?;
        Ok(Exit::Done)
    }
}
