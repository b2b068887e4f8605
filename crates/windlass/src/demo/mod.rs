//! `windlass demo`: a guided first run that needs no installation and simulates nothing.
//!
//! It writes the files of `examples/create-instance` to a fresh folder, starts a server and a worker as
//! separate processes, as a user would, and runs three tasks through the public client. One succeeds; one
//! fails at its third step and is rolled back; one loses its worker halfway. The demo reports only facts that
//! it has read from the server and from the disk, and fails if they differ from the expected ones. However it
//! ends, it keeps the folder and ends its processes.

mod files;
mod instances;
mod progress;
mod site;
mod story;

use std::path::PathBuf;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use site::Site;

/// Runs the demo to its end, which takes about ten seconds.
///
/// # Errors
/// When a result differs from the expected one, or a signal ended the demo. Its processes have ended in any
/// case.
pub async fn run() -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let folder = fresh_folder()?;
    files::write(&folder)?;
    let mut site = Site::new(program, folder)?;
    let told = tokio::select! {
        told = story::tell(&mut site) => told,
        signal = interrupted() => signal.and_then(|name| Err(anyhow::anyhow!("ended by {name}"))),
    };
    site.end().await;
    told.with_context(|| {
        format!("the demo did not finish; its files and logs are in {}", site.folder().display())
    })
}

/// The name of the signal that asks the program to end.
async fn interrupted() -> anyhow::Result<&'static str> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => Ok("SIGINT"),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}

/// Creates a new folder below the one for temporary files.
fn fresh_folder() -> anyhow::Result<PathBuf> {
    let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let folder = std::env::temp_dir().join(format!("windlass-demo-{now}-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    // The processes run in this folder, so its path must be absolute.
    folder.canonicalize().with_context(|| format!("cannot find the folder {}", folder.display()))
}
