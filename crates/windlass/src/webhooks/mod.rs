//! Webhooks out: the server sends a request when a task ends or an alarm is raised.
//!
//! ```text
//! end of a task ─▶ outbox relay ─▶ ends.rs ──┐
//!                                            ├─▶ a task per message and webhook ─▶ worker.rs ─▶ sender.rs ─▶ receiver
//! alarm ─────────────────────────▶ alarms.rs ┘      (`delivery.rs`)
//! ```
//!
//! Each delivery is a task, so retries, the list of failed ones, reruns, pauses and `why` are those of tasks.
//!
//! | file | concern |
//! |---|---|
//! | `settings.rs` | the sections `[[webhook]]` |
//! | `message.rs` | what a webhook sends, and the id of a message |
//! | `delivery.rs` | a message as a task |
//! | `ends.rs`, `alarms.rs` | where messages come from |
//! | `worker.rs` | takes the deliveries and reports them, in the process of the server |
//! | `sender.rs` | one request, and what its answer means |
//! | `address.rs` | which addresses a webhook may reach |

mod address;
mod alarms;
mod delivery;
mod ends;
mod message;
mod sender;
mod settings;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::Context as _;
use tokio::{sync::oneshot, time};
use windlass_core::Name;
use windlass_engine::services::Subscriber;

use crate::{
    http::App,
    loops::{END_MAX, Loops},
};
use ends::TaskEnds;
use sender::Sender;

pub(crate) use settings::{WebhookSection, WebhookSettings, read};

/// The webhooks of a server.
pub(crate) struct Webhooks {
    settings: Arc<[WebhookSettings]>,
    /// By the modules of their deliveries.
    senders: BTreeMap<Name, Arc<Sender>>,
}

/// The webhooks of a server that runs.
pub(crate) struct RunningWebhooks {
    ended: Option<oneshot::Receiver<()>>,
}

impl Webhooks {
    /// Makes the clients, without connecting.
    ///
    /// # Errors
    /// When the certificates of a section cannot be used. Names the section.
    pub(crate) fn new(settings: Vec<WebhookSettings>) -> anyhow::Result<Self> {
        let mut senders = BTreeMap::new();
        for webhook in &settings {
            let sender = Sender::new(webhook).with_context(|| settings::place(&webhook.name))?;
            senders.insert(webhook.module.clone(), Arc::new(sender));
        }
        Ok(Self { settings: settings.into(), senders })
    }

    /// The modules of its deliveries.
    pub(crate) fn modules(&self) -> BTreeSet<Name> {
        self.senders.keys().cloned().collect()
    }

    /// Starts the loops that watch alarms and deliver messages. Returns what hears of the ends of tasks, and what the
    /// caller must end before the loops.
    pub(crate) fn start(
        self,
        app: &Arc<App>,
        running: &mut Loops,
    ) -> (Option<Arc<dyn Subscriber>>, RunningWebhooks) {
        if self.settings.is_empty() {
            return (None, RunningWebhooks { ended: None });
        }
        if self.settings.iter().any(WebhookSettings::wants_alarms) {
            running.spawn("reports alarms to webhooks", alarms::watch(app.clone(), self.settings.clone()));
        }
        let (end, ended) = oneshot::channel();
        running.spawn("delivers webhooks", worker::run(app.clone(), self.senders, end));
        let ends = TaskEnds { app: app.clone(), webhooks: self.settings };
        (Some(Arc::new(ends)), RunningWebhooks { ended: Some(ended) })
    }
}

impl RunningWebhooks {
    /// Waits for the requests in flight, up to [`END_MAX`]. The others are sent after the next start.
    pub(crate) async fn end(self) {
        let Some(ended) = self.ended else { return };
        if time::timeout(END_MAX, ended).await.is_err() {
            tracing::warn!("a webhook does not answer: its request is sent again after the next start");
        }
    }
}
