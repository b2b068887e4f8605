//! Stop signals.

use std::{io, process};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Resolves at the first SIGTERM or SIGINT: the process should then finish its work. A second signal ends the
/// process at once.
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
