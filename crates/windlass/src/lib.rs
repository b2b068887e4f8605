//! The program: its commands, its HTTP server, its worker for module folders.

pub mod cli;
pub mod flowfile;
pub mod modules;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program with the arguments of the process.
#[must_use]
pub fn run() -> ExitCode {
    // The two that a worker starts the program for come first: one of them runs before every command.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == modules::EXEC_COMMAND => modules::exec_main(&arguments.collect::<Vec<OsString>>()),
        Some(first) if first == modules::GUARD_COMMAND => modules::guard_main(),
        _ => cli::run(),
    }
}
