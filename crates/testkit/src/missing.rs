//! What a test does when a server is not installed.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
    sync::OnceLock,
    thread,
};

use anyhow::{Result, bail};

/// The environment variable with the file that a line is appended to for everything that is skipped.
pub const SKIPS_VARIABLE: &str = "WINDLASS_SKIPS";

/// The same file, for this process only.
static SKIPS: OnceLock<PathBuf> = OnceLock::new();

/// Has a line appended to this file for everything that this process skips. The first call counts.
pub fn note_skips(path: PathBuf) {
    // A second one would be of the same run.
    let _ = SKIPS.set(path);
}

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
    let noted = SKIPS.get().cloned().or_else(|| std::env::var_os(SKIPS_VARIABLE).map(PathBuf::from));
    if let Some(path) = noted {
        OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())?;
    }
    Ok(())
}
