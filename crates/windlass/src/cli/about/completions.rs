//! `windlass completions`: completion scripts for shells.

use clap::Args;
use clap_complete::Shell;

use crate::cli::{exit::Exit, output};

/// The shell to print a script for.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints the script.
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::cli::command(), "windlass", &mut script);
        output::write(&String::from_utf8(script)?)?;
        Ok(Exit::Done)
    }
}
