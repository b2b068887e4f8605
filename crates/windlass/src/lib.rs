//! The program: its commands, its HTTP server, its worker for module folders.

pub mod cli;
pub mod flowfile;
pub mod modules;

use std::process::ExitCode;

/// Runs the program with the arguments of the process.
#[must_use]
pub fn run() -> ExitCode {
    cli::run()
}
