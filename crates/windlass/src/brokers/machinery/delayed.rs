//! Signatures whose time has come go to their queues, as machinery's workers do it: those of other queues as well.

use std::{sync::Arc, time::Duration};

use tokio::time;

use super::Machinery;

/// How often signatures are looked for.
const EVERY: Duration = Duration::from_millis(500);

/// Sends signatures whose time has come, for ever.
pub(super) async fn run(machinery: Arc<Machinery>) {
    let mut has_failed = false;
    loop {
        match machinery.sender.move_due(machinery.settings.default_queue()).await {
            Ok(0) => {
                has_failed = false;
                time::sleep(EVERY).await;
            }
            Ok(_) => has_failed = false,
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    let broker = &machinery.settings.broker;
                    tracing::warn!(%broker, %error, "cannot send delayed signatures; retrying");
                }
                time::sleep(EVERY).await;
            }
        }
    }
}
