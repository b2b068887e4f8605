//! Works for clients of the Go library machinery: their signatures start tasks, and the results of these go where the
//! clients look for them.
//!
//! ```text
//! client ─▶ queue ─▶ intake ─▶ task ─▶ worker of the module
//!   ▲         ▲                  │ history
//!   │         └── not ours ──┐   ▼
//!   └── result backend ◀── follow-ups ─▶ next tasks of chains, callbacks of chords
//! ```
//!
//! | file | concern |
//! |---|---|
//! | `settings.rs` | the section `[machinery]` |
//! | `signature.rs`, `value.rs` | signatures, and the types of their arguments |
//! | `step.rs` | the other direction: steps for workers that use the library, and their results |
//! | `task.rs` | a signature as a task, and a task as its state |
//! | `result.rs` | what a worker returned, as results with types |
//! | `intake.rs` | signatures that start tasks |
//! | `follow_ups.rs`, `chord.rs`, `sent.rs` | what becomes of a task that has ended: its state, callbacks, chords |
//! | `doctor.rs` | what is wrong with tasks of the library |
//! | `repeated.rs` | signatures whose time has come, results whose time is over |

mod chord;
mod doctor;
mod follow_ups;
mod intake;
#[cfg(feature = "redis")]
pub(crate) mod malformed;
mod repeated;
mod result;
mod sent;
mod settings;
mod signature;
pub(super) mod step;
mod task;
mod value;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use windlass_brokers::{
    Broker, BrokerError, ResultBackend, SignatureBroker, result_backend, signature_broker,
};
use windlass_engine::services::Subscriber;

use crate::{http::App, loops::Loops};

pub(crate) use doctor::{MachineryDiagnosis, Servers, examine};
pub(super) use settings::{EXCHANGE_DEFAULT, PLACE, RESULTS_DEFAULT};
pub(crate) use settings::{MachinerySection, MachinerySettings};

/// What everything here uses.
pub(super) struct Machinery {
    app: Arc<App>,
    backend: Arc<dyn ResultBackend>,
    sender: Arc<dyn SignatureBroker>,
    settings: MachinerySettings,
    sent: sent::SentFollowUps,
}

impl Machinery {
    /// Makes the clients, without connecting.
    ///
    /// # Errors
    /// When a URL is invalid.
    pub(super) fn new(app: Arc<App>, settings: MachinerySettings) -> anyhow::Result<Self> {
        let backend = result_backend(settings.backend.as_str(), settings.of_results())?;
        let sender = signature_broker(settings.broker.as_str(), settings.exchange())?;
        Ok(Self { app, backend, sender, settings, sent: sent::SentFollowUps::default() })
    }

    /// The document of a task or group; `None` if there is none, or another program's.
    async fn document<T: DeserializeOwned>(&self, uuid: &str) -> Result<Option<T>, BrokerError> {
        let document = self.backend.read(&[uuid.to_owned()]).await?.into_iter().next().flatten();
        Ok(document.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Starts the loops that read signatures, and returns what hears of the ends of their tasks.
    pub(super) fn start(
        self,
        broker: &Arc<dyn Broker>,
        running: &mut Loops,
    ) -> anyhow::Result<Arc<dyn Subscriber>> {
        let machinery = Arc::new(self);
        for queue in machinery.settings.queues() {
            let intake = intake::run(machinery.clone(), broker.clone(), queue);
            running.spawn_beside("starts tasks from signatures", intake)?;
        }
        running.spawn_beside("sends delayed signatures", repeated::send(machinery.clone()))?;
        running.spawn_beside("removes old results", repeated::purge(machinery.clone()))?;
        Ok(machinery)
    }
}
