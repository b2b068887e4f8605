//! What systemd learns of a server: that it is ready, that it stops, and that it is alive. Without systemd nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::runtime::Handle;

/// The server accepts connections, and its store is open.
pub(crate) fn is_ready() {
    send(NotifyState::Ready);
}

/// The server stops.
pub(crate) fn is_stopping() {
    send(NotifyState::Stopping);
}

/// Says again and again that the server is alive, where systemd wants to know: it restarts a server that is silent for longer.
/// All requests and loops run on the thread of this one or on the one of `beside`, so one that hangs is noticed.
pub(crate) async fn stay_alive(beside: Option<Handle>) {
    let Some(within) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let pause = (within / 3).max(Duration::from_millis(100));
    loop {
        if let Some(beside) = &beside {
            // It fails only when the server ends.
            let _ = beside.spawn(async {}).await;
        }
        send(NotifyState::Watchdog);
        tokio::time::sleep(pause).await;
    }
}

fn send(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot reach the service manager");
    }
}
