//! Reports a server that is not installed, and skips the test.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
    sync::OnceLock,
    thread,
};

use anyhow::{Result, bail};

/// The environment variable that names a file. Each test that is skipped adds a line to it.
pub const SKIPS_VARIABLE: &str = "WINDLASS_SKIPS";

/// The same file, for this process only.
static SKIPS: OnceLock<PathBuf> = OnceLock::new();

/// Sets the file to which this process adds a line for each test that is skipped. Only the first call has an effect.
pub fn note_skips(path: PathBuf) {
    // A second call comes from the same run, with the same file.
    let _ = SKIPS.set(path);
}

/// Reports what is skipped, and how to install it. Fails if `CI` is set, because CI must not skip tests.
pub fn skip(name: &str, how_to_get: &str) -> Result<()> {
    if std::env::var_os("CI").is_some_and(|value| !value.is_empty()) {
        bail!("{name} is not installed: {how_to_get}");
    }
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    // The test harness captures `eprintln` in tests that pass, so this writes to stderr directly.
    let line = format!("skipped {test}: {name} is not installed ({how_to_get})\n");
    io::stderr().write_all(line.as_bytes())?;
    let noted = SKIPS.get().cloned().or_else(|| std::env::var_os(SKIPS_VARIABLE).map(PathBuf::from));
    if let Some(path) = noted {
        OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())?;
    }
    Ok(())
}
