//! The program: its commands, its HTTP server, its worker for module folders.

mod access;
mod bench;
mod brokers;
mod chain;
pub mod cli;
mod clock;
mod clock_watch;
mod config;
pub mod demo;
mod dev;
mod devices;
mod doctor;
pub mod flowfile;
pub mod http;
mod job_api;
mod lead;
mod loops;
#[doc(hidden)]
pub mod malformed;
pub mod modules;
mod outgoing;
mod schema;
mod sections;
mod server;
mod service_manager;
mod supervisor;
mod task_list;
mod traces;
mod transfer;
mod webhooks;
mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

// Planted bugs are for the simulator only: a release build must not contain them.
const _: () = assert!(!windlass_core::planted::CAN_PLANT || cfg!(debug_assertions));

/// Runs the program with the arguments of the process.
#[must_use]
pub fn run() -> ExitCode {
    // The hidden subcommands come first: one of them runs before every command of a worker.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == modules::EXEC_COMMAND => {
            modules::exec_main(&arguments.collect::<Vec<OsString>>())
        }
        Some(first) if first == modules::GUARD_COMMAND => {
            modules::guard_main(arguments.next().map(Into::into))
        }
        Some(first) if first == bench::WORKER_COMMAND => {
            bench::run_worker(&arguments.collect::<Vec<OsString>>())
        }
        _ => cli::run(),
    }
}
