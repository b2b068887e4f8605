//! Stop signals.

use std::{
    io::{self, IsTerminal as _},
    process,
};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// Resolves at the first SIGTERM or SIGINT: the process should then finish its work. A second signal ends the
/// process at once.
///
/// # Errors
/// When the signals cannot be caught. Must be called inside of a runtime.
pub(crate) fn shutdown() -> io::Result<impl Future<Output = ()>> {
    let mut signals = StopSignals::listen()?;
    Ok(async move {
        signals.next().await;
        tracing::info!("stopping; a second signal ends the process at once");
        tokio::spawn(async move {
            signals.next().await;
            process::exit(1);
        });
    })
}

/// Keeps SIGHUP from ending the process at once, unless it runs in a terminal, whose end it means then. To a server with TLS, which
/// listens for it too, it means that certificates were replaced; others log that they ignore it.
///
/// # Errors
/// When it cannot be caught. Must be called inside of a runtime.
pub(crate) fn ignore_hangup(has_tls: bool) -> io::Result<()> {
    if io::stderr().is_terminal() {
        return Ok(());
    }
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            if !has_tls {
                tracing::info!("SIGHUP is ignored: only a server with TLS reads its certificates again");
            }
        }
    });
    Ok(())
}

/// SIGTERM and SIGINT, which do not end the process any more.
pub(crate) struct StopSignals {
    term: unix::Signal,
    int: unix::Signal,
}

impl StopSignals {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// When they cannot be caught. Must be called inside of a runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// The next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.term.recv() => Signal::TERM,
            _ = self.int.recv() => Signal::INT,
        }
    }
}
