//! Clients and workers of the Go library machinery, which `build` builds from a Go module.

use std::process::Command;

use anyhow::Result;

use crate::{jars::cache, missing::skip};

/// The program in `machinery/main.go`. `None` if it was not built and the test is skipped.
///
/// # Errors
/// When it was not built, in CI.
pub fn machinery() -> Result<Option<Command>> {
    let program = cache("WINDLASS_SERVERS", "servers").map(|folder| folder.join("machinery/program"));
    match program.filter(|program| program.is_file()) {
        Some(program) => Ok(Some(Command::new(program))),
        None => {
            skip("the client of machinery", "apt-get install golang-go, then crates/testkit/build")?;
            Ok(None)
        }
    }
}
