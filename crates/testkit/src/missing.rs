//! What a test does when a server is not installed.

use std::{
    io::{self, Write as _},
    thread,
};

use anyhow::{Result, bail};

/// Says what is left out and how to get it. An error where `CI` is set: there nothing may be left out unseen.
pub(crate) fn skip(name: &str, how_to_get: &str) -> Result<()> {
    if std::env::var_os("CI").is_some_and(|value| !value.is_empty()) {
        bail!("{name} is not installed: {how_to_get}");
    }
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    // Not by `eprintln`, which the test harness keeps to itself for tests that pass.
    let line = format!("skipped {test}: {name} is not installed ({how_to_get})\n");
    io::stderr().write_all(line.as_bytes())?;
    Ok(())
}
