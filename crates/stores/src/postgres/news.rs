//! Hears of other servers: a connection that listens to what they notify.

use std::{future::poll_fn, sync::Arc, time::Duration};

use tokio::{sync::Notify, task::JoinHandle, time::sleep};
use tokio_postgres::AsyncMessage;

use super::open::PostgresOptions;
use crate::rows;

/// What is notified when a queue gets attempts that had none.
const CHANNEL: &str = "windlass";

/// What is notified when an application has enqueued something.
const ENQUEUED: &str = "windlass_enqueued";

/// What is notified when a server has ended in good order.
const RELEASED: &str = "windlass_released";

/// Between two tries to listen again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Hears of other servers. Where it cannot listen nothing is heard, and the engine looks by itself.
pub(crate) struct News {
    heard: Arc<Heard>,
    listener: Option<JoinHandle<()>>,
}

/// What was heard and not yet asked for.
#[derive(Default)]
struct Heard {
    changes: Notify,
    enqueued: Notify,
    released: Notify,
}

impl News {
    /// Listens from now on. What comes from `own` is not news.
    pub(super) fn listen(options: PostgresOptions, own: String) -> Self {
        let heard = Arc::<Heard>::default();
        let listener = tokio::spawn(listen(options, own, heard.clone()));
        Self { heard, listener: Some(listener) }
    }

    /// Nothing is ever heard: for who reads what was.
    pub(super) fn none() -> Self {
        Self { heard: Arc::default(), listener: None }
    }
}

impl rows::News for News {
    async fn next(&self) {
        self.heard.changes.notified().await;
    }

    async fn enqueued(&self) {
        self.heard.enqueued.notified().await;
    }

    async fn released(&self) {
        self.heard.released.notified().await;
    }
}

impl Drop for News {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}

async fn listen(options: PostgresOptions, own: String, heard: Arc<Heard>) {
    loop {
        if let Ok((client, mut connection)) = options.connect().await {
            let subscribe = async {
                let channels = format!("LISTEN {CHANNEL}; LISTEN {ENQUEUED}; LISTEN {RELEASED}");
                client.batch_execute(&channels).await?;
                // Something may have been notified while nobody listened.
                heard.changes.notify_one();
                heard.released.notify_one();
                // Until it ends.
                std::future::pending::<Result<(), tokio_postgres::Error>>().await
            };
            let hear = async {
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    match message {
                        AsyncMessage::Notification(news) if news.channel() == ENQUEUED => {
                            heard.enqueued.notify_one();
                        }
                        AsyncMessage::Notification(news) if news.channel() == RELEASED => {
                            heard.released.notify_one();
                        }
                        AsyncMessage::Notification(news) if news.payload() != own => {
                            heard.changes.notify_one();
                        }
                        _ => {}
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
