//! Programs that `build` builds from Go modules.

use std::process::Command;

use anyhow::Result;

use crate::{jars::cache, missing::skip};

/// Clients and workers of the Go library machinery: the program in `machinery/main.go`. `None` if it was not built and the
/// test is skipped.
///
/// # Errors
/// When it was not built, in CI.
pub fn machinery() -> Result<Option<Command>> {
    program("machinery", "the client of machinery")
}

/// The OTLP receiver of the OpenTelemetry Collector: the program in `collector/main.go`. `None` if it was not built and the
/// test is skipped.
///
/// # Errors
/// When it was not built, in CI.
pub fn collector() -> Result<Option<Command>> {
    program("collector", "the OpenTelemetry collector")
}

/// Checks of images, compositions and charts: the program in `deploy/main.go`. `None` if it was not built and the test is
/// skipped.
///
/// # Errors
/// When it was not built, in CI.
pub fn deploy() -> Result<Option<Command>> {
    program("deploy", "the libraries of Docker Compose and Helm")
}

fn program(name: &str, what: &str) -> Result<Option<Command>> {
    let program = cache("TESTKIT_SERVERS", "servers").map(|folder| folder.join(name).join("program"));
    match program.filter(|program| program.is_file()) {
        Some(program) => Ok(Some(Command::new(program))),
        None => {
            skip(what, "apt-get install golang-go, then crates/testkit/build")?;
            Ok(None)
        }
    }
}
