//! Being told to stop.

use std::{io, process};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves at the first SIGTERM or SIGINT: what runs is to be brought to its end. Whoever cannot wait for that
/// sends a second one, which ends the process at once.
///
/// # Errors
/// When the signals cannot be caught. Must be called inside of a runtime.
pub(crate) fn shutdown() -> io::Result<impl Future<Output = ()>> {
    let mut signals =
        Signals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? };
    Ok(async move {
        signals.next().await;
        tracing::info!("stopping; a second signal ends the process at once");
        tokio::spawn(async move {
            signals.next().await;
            process::exit(1);
        });
    })
}

struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
