//! Hears of other servers: a connection that listens to what they notify.

use std::{future::poll_fn, sync::Arc, time::Duration};

use tokio::{sync::Notify, task::JoinHandle, time::sleep};
use tokio_postgres::AsyncMessage;

use super::open::PostgresOptions;

/// What is notified when a queue gets attempts that had none.
const CHANNEL: &str = "windlass";

/// Between two tries to listen again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Hears of other servers. Where it cannot listen nothing is heard, and the engine looks by itself.
pub(super) struct News {
    heard: Arc<Notify>,
    listener: JoinHandle<()>,
}

impl News {
    /// Listens from now on. What comes from `own` is no news.
    pub(super) fn listen(options: PostgresOptions, own: String) -> Self {
        let heard = Arc::new(Notify::new());
        let listener = tokio::spawn(listen(options, own, heard.clone()));
        Self { heard, listener }
    }

    /// Returns when something was heard since the last call.
    pub(super) async fn next(&self) {
        self.heard.notified().await;
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn listen(options: PostgresOptions, own: String, heard: Arc<Notify>) {
    loop {
        if let Ok((client, mut connection)) = options.connect().await {
            let subscribe = async {
                client.batch_execute(&format!("LISTEN {CHANNEL}")).await?;
                // Something may have been notified while nobody listened.
                heard.notify_one();
                // Until it ends.
                std::future::pending::<Result<(), tokio_postgres::Error>>().await
            };
            let hear = async {
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    if let AsyncMessage::Notification(news) = message
                        && news.payload() != own
                    {
                        heard.notify_one();
                    }
                }
            };
            tokio::select! {
                _ = subscribe => {}
                () = hear => {}
            }
        }
        sleep(RETRY_AFTER).await;
    }
}
