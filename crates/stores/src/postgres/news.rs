//! Hears of other servers: a connection that listens to what they notify.

use std::{future::poll_fn, sync::Arc};

use tokio::{sync::Notify, time::sleep};
use tokio_postgres::AsyncMessage;

use super::open::PostgresOptions;
use crate::rows::{self, LISTEN_AGAIN_AFTER, Listener};

/// What is notified when a queue gets attempts that had none.
const CHANNEL: &str = "windlass";

/// What is notified when an application has enqueued something.
const ENQUEUED: &str = "windlass_enqueued";

/// What is notified when a server has ended in good order.
const RELEASED: &str = "windlass_released";

/// Hears of other servers. Where it cannot listen nothing is heard, and the engine looks by itself.
pub(crate) struct News {
    heard: Arc<Heard>,
    _listener: Option<Listener>,
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
        let listener = Listener::spawn(listen(options, own, heard.clone()));
        Self { heard, _listener: Some(listener) }
    }

    /// Nothing is ever heard: for who reads what was.
    pub(super) fn none() -> Self {
        Self { heard: Arc::default(), _listener: None }
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
        sleep(LISTEN_AGAIN_AFTER).await;
    }
}
