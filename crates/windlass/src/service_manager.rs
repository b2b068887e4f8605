//! What systemd learns of a server: that it is ready, that it stops, and that it is alive. Without systemd nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;

/// The server accepts connections, and its store is open.
pub(crate) fn is_ready() {
    send(NotifyState::Ready);
}

/// The server stops.
pub(crate) fn is_stopping() {
    send(NotifyState::Stopping);
}

/// Says again and again that the server is alive, where systemd wants to know: it restarts a server that is silent for longer.
/// All requests and loops share the thread of this one, so one that hangs is noticed.
pub(crate) async fn stay_alive() {
    let Some(within) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let pause = (within / 3).max(Duration::from_millis(100));
    loop {
        send(NotifyState::Watchdog);
        tokio::time::sleep(pause).await;
    }
}

fn send(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot reach the service manager");
    }
}
