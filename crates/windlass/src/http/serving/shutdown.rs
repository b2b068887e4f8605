//! The signal that the server stops, for everything that waits.

use tokio::sync::watch;

/// Says that the server is to stop.
#[derive(Debug)]
pub struct Shutdown(watch::Sender<bool>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Shutdown {
    /// The server is to stop from now on.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Waits until the server is to stop.
    pub async fn begun(&self) {
        let mut receiver = self.0.subscribe();
        // The sender lives as long as this, so the wait can only end well.
        let _ = receiver.wait_for(|begun| *begun).await;
    }
}
