//! Signatures start tasks, each once: its UUID is the idempotency key.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use futures_util::future::join_all;
use windlass_brokers::{Broker, BrokerError, Delivery, Queue};
use windlass_core::{Phase, TaskId};
use windlass_engine::{Accepted, services::Unreadable};

use super::{
    Machinery,
    settings::Mode,
    signature::Signature,
    task::{self, StateName, TaskState},
};
use crate::brokers::consume::{Consumption, Handle};

/// The most signatures read at once.
const ROUND_MAX: usize = 500;

/// The signatures of a queue.
struct Intake {
    machinery: Arc<Machinery>,
    by: String,
}

/// Starts tasks from the signatures of a queue, for ever.
pub(super) async fn run(machinery: Arc<Machinery>, broker: Arc<dyn Broker>, queue: Queue) {
    let by = format!("a signature of {queue} at {}", broker.name());
    let consumption = Consumption {
        engine: machinery.app.engine.clone(),
        clock: machinery.app.clock.clone(),
        broker,
        binding: machinery.settings.binding(&queue),
        queue,
        group: "windlass-machinery",
        round_max: ROUND_MAX,
        what: "signatures",
        useless: "is not a signature that can be run",
        handler: Intake { machinery, by },
    };
    consumption.run().await;
}

#[async_trait]
impl Handle for Intake {
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Result<(), Unreadable>> {
        let texts: Vec<_> =
            deliveries.iter().map(|delivery| std::str::from_utf8(&delivery.message.body)).collect();
        let groups = texts.iter().filter_map(|text| open_group(text.as_ref().ok()?)).collect();
        if let Err(error) = self.machinery.keep_groups(groups).await {
            return deliveries.iter().map(|_| Err(Unreadable::Later(error.to_string()))).collect();
        }
        let taken = texts.into_iter().map(|text| async move {
            match text {
                Ok(text) => self.machinery.accept(text, &self.by).await,
                Err(_) => Err(Unreadable::Refused("the signature is not UTF-8".to_owned())),
            }
        });
        join_all(taken).await
    }
}

/// The group of a signature whose chord is open.
fn open_group(text: &str) -> Option<String> {
    let signature = Signature::parse(text).ok()?;
    signature.chord_callback().ok()??;
    signature.group().ok().filter(|group| !group.is_empty())
}

impl Machinery {
    /// Starts the task of a signature, unless it was started before. The client of a signature that is refused gets the
    /// reason as the error of its task.
    pub(super) async fn accept(&self, text: &str, by: &str) -> Result<(), Unreadable> {
        let signature = Signature::parse(text).map_err(Unreadable::Refused)?;
        let accepted = match task::document(&signature, text, &self.settings) {
            Ok(document) => {
                let key = task::key(&signature.uuid().unwrap_or_default());
                self.app.take_in(&document, Some(&key), by).await
            }
            Err(why) => Err(Unreadable::Refused(why)),
        };
        let later = |error: BrokerError| Unreadable::Later(error.to_string());
        match accepted {
            Ok(Accepted { existing: None, .. }) => Ok(()),
            Ok(Accepted { loaded, .. }) => self.repeat(loaded.task.id).await.map_err(later),
            Err(Unreadable::Refused(why)) => {
                self.refuse(&signature, &why).await.map_err(later)?;
                Err(Unreadable::Refused(why))
            }
            Err(Unreadable::Later(why)) => Err(Unreadable::Later(why)),
        }
    }

    /// Writes the state of a task again if it has ended: a client that sends its signature a second time sets it to
    /// PENDING. The state of one that goes on is still to be written.
    async fn repeat(&self, task: TaskId) -> Result<(), BrokerError> {
        let documents = self.load(&[task]).await?.into_iter().filter_map(|loaded| {
            let Phase::Ended(ending) = loaded.task.state.phase else { return None };
            Some(TaskState::of_ended(&loaded.task, ending).document(Some(self.settings.keep())))
        });
        self.backend.write(&documents.collect::<Vec<_>>()).await
    }

    /// Writes the reason where the client looks, unless a task with this UUID has run.
    async fn refuse(&self, signature: &Signature, why: &str) -> Result<(), BrokerError> {
        let uuid = signature.uuid().unwrap_or_default();
        if uuid.is_empty() {
            return Ok(());
        }
        let before = self.backend.read(std::slice::from_ref(&uuid)).await?.into_iter().next().flatten();
        let before: Option<TaskState> = before.and_then(|text| serde_json::from_str(&text).ok());
        if before.is_some_and(|before| before.state != StateName::Pending) {
            return Ok(());
        }
        let name = signature.name().unwrap_or_default();
        let state = TaskState::new(&uuid, &name, StateName::Failure, jiff::Timestamp::now());
        self.backend.write(&[state.because(why.to_owned()).document(Some(self.settings.keep()))]).await
    }

    /// Keeps the documents of groups whose chords are open.
    async fn keep_groups(&self, groups: BTreeSet<String>) -> Result<(), BrokerError> {
        if groups.is_empty() || self.settings.mode == Mode::Strict {
            return Ok(());
        }
        self.backend.keep_for(&groups.into_iter().collect::<Vec<_>>(), None).await
    }
}
