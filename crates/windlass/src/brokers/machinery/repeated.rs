//! What has to be done again and again: signatures whose time has come go to their queues, as machinery's workers do it,
//! those of other queues as well; and results whose time is over are removed.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time;
use windlass_brokers::BrokerError;

use super::Machinery;

/// How often signatures are looked for.
const SEND_EVERY: Duration = Duration::from_millis(500);

/// How often old results are looked for.
const PURGE_EVERY: Duration = Duration::from_secs(60);

/// Sends signatures whose time has come, for ever.
pub(super) async fn send(machinery: Arc<Machinery>) {
    let place = machinery.settings.broker.to_string();
    let move_due = || machinery.sender.move_due(machinery.settings.default_queue());
    again(SEND_EVERY, &place, "cannot send delayed signatures", move_due).await;
}

/// Removes results whose time is over, for ever.
pub(super) async fn purge(machinery: Arc<Machinery>) {
    let place = machinery.backend.name().to_owned();
    again(PURGE_EVERY, &place, "cannot remove old results", || machinery.backend.purge()).await;
}

/// Does something again and again: at once while there is more of it, and otherwise after a pause. Says once that it fails.
async fn again<F: Future<Output = Result<u64, BrokerError>>>(
    every: Duration,
    place: &str,
    failure: &str,
    act: impl Fn() -> F,
) {
    let mut has_failed = false;
    loop {
        match act().await {
            Ok(0) => {
                has_failed = false;
                time::sleep(every).await;
            }
            Ok(_) => has_failed = false,
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    tracing::warn!(place, %error, "{failure}; retrying");
                }
                time::sleep(every).await;
            }
        }
    }
}
