//! `windlass demo`: a guided first run with nothing to install and nothing made up.
//!
//! It writes the files of `examples/create-instance` to a fresh folder, starts a server and a worker as processes
//! of their own, as a user would, and runs three tasks through the public client: one succeeds, one fails at its
//! third step and is undone, and one loses its worker halfway. What it says about them it has read from the
//! server and from the disk; where that is not as promised, the demo fails. The folder stays, the processes go,
//! however the demo itself ends.

mod files;
mod instances;
mod progress;
mod site;
mod story;

use std::path::PathBuf;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use site::Site;

/// Runs the demo to its end, which takes some ten seconds.
///
/// # Errors
/// When something is not as the demo promises, or a signal ended it. Its processes have ended in any case.
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
        format!("the demo did not come to its end; its files and logs are in {}", site.folder().display())
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

/// A folder that was not there before, below the one for temporary files.
fn fresh_folder() -> anyhow::Result<PathBuf> {
    let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let folder = std::env::temp_dir().join(format!("windlass-demo-{now}-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    // Site run in it, so its path must not depend on where this one is.
    folder.canonicalize().with_context(|| format!("cannot find the folder {}", folder.display()))
}
