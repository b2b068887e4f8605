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
    task::{self, KeptText, StateName, TaskState},
};
use crate::{
    brokers::consume::{Consumption, Handle},
    http::TaskMessage,
};

/// The most signatures in flight.
const IN_FLIGHT_MAX: usize = 1_000;

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
        in_flight_max: IN_FLIGHT_MAX,
        what: "signatures",
        useless: "is not a signature that can be run",
        handler: Arc::new(Intake { machinery, by }),
    };
    consumption.run().await;
}

#[async_trait]
impl Handle for Intake {
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Result<(), Unreadable>> {
        let signatures: Vec<_> = deliveries.iter().map(|delivery| read(&delivery.message.body)).collect();
        let groups = signatures.iter().filter_map(|read| read.as_ref().ok()?.1.chord_group()).collect();
        if let Err(error) = self.machinery.keep_groups(groups).await {
            return deliveries.iter().map(|_| Err(Unreadable::Later(error.to_string()))).collect();
        }
        self.machinery.accept_all(&signatures, &self.by).await
    }

    fn overlaps(&self) -> bool {
        true
    }
}

/// A signature with its text, or why it cannot be read.
pub(super) type Sent<'a> = Result<(&'a str, Signature), String>;

fn read(body: &[u8]) -> Sent<'_> {
    let text = std::str::from_utf8(body).map_err(|_| "the signature is not UTF-8".to_owned())?;
    Ok((text, Signature::parse(text)?))
}

impl Machinery {
    /// Starts one task per signature, unless the task exists already. If a signature is refused, writes the reason to the
    /// result backend as the task's error. Returns one result per signature, in the same order.
    pub(super) async fn accept_all(&self, sent: &[Sent<'_>], by: &str) -> Vec<Result<(), Unreadable>> {
        let message = |sent: &Sent<'_>| self.message(sent, KeptText::IfFollowed);
        let mut accepted = self.app.take_in_all(sent.iter().map(message).collect(), by).await;
        // An earlier version may have accepted them.
        let is_refused =
            |place: &usize| sent[*place].is_ok() && matches!(accepted[*place], Err(Unreadable::Refused(_)));
        let refused: Vec<usize> = (0..sent.len()).filter(is_refused).collect();
        let before = refused.iter().map(|place| self.message(&sent[*place], KeptText::Always)).collect();
        for (place, before) in refused.into_iter().zip(self.app.take_in_all(before, by).await) {
            if before.is_ok() {
                accepted[place] = before;
            }
        }
        join_all(sent.iter().zip(accepted).map(|(sent, accepted)| self.settle(sent, accepted))).await
    }

    fn message(&self, sent: &Sent<'_>, kept: KeptText) -> Result<TaskMessage, String> {
        let (text, signature) = sent.as_ref().map_err(String::clone)?;
        let document = task::document(signature, text, kept, &self.settings)?;
        let key = Some(task::key(&signature.uuid()?));
        Ok(TaskMessage { text: document, key, traceparent: signature.traceparent() })
    }

    /// Does what follows where a signature started no task.
    async fn settle(
        &self,
        sent: &Sent<'_>,
        accepted: Result<Accepted, Unreadable>,
    ) -> Result<(), Unreadable> {
        let later = |error: BrokerError| Unreadable::Later(error.to_string());
        match accepted {
            Ok(Accepted { existing: None, .. }) => Ok(()),
            Ok(Accepted { loaded, .. }) => self.repeat(loaded.task.id).await.map_err(later),
            Err(Unreadable::Refused(why)) => {
                if let Ok((_, signature)) = sent {
                    self.refuse(signature, &why).await.map_err(later)?;
                }
                Err(Unreadable::Refused(why))
            }
            Err(Unreadable::Later(why)) => Err(Unreadable::Later(why)),
        }
    }

    /// Writes the state of a task again if it has ended: a client that sends its signature a second time sets it to
    /// PENDING. The state of one that goes on is still to be written.
    async fn repeat(&self, task: TaskId) -> Result<(), BrokerError> {
        for loaded in self.load(&[task]).await? {
            let Phase::Ended(ending) = loaded.task.state.phase else { continue };
            let state = TaskState::of_ended(&loaded.task, ending);
            self.backend.write(&[state.document(Some(self.settings.keep()))]).await?;
            if let Some(ended) = self.ended(&loaded.task, ending) {
                self.let_group_expire(&ended).await?;
            }
        }
        Ok(())
    }

    /// Fails a signature that cannot be run or sent, unless a task with its UUID has run: what follows its failure is sent,
    /// and the reason is written where the client looks.
    pub(super) async fn refuse(&self, signature: &Signature, why: &str) -> Result<(), BrokerError> {
        let uuid = signature.uuid().unwrap_or_default();
        if uuid.is_empty() {
            return Ok(());
        }
        let before: Option<TaskState> = self.document(&uuid).await?;
        if before.is_some_and(|before| before.state != StateName::Pending) {
            return Ok(());
        }
        let name = signature.name().unwrap_or_default();
        let state = TaskState::new(&uuid, &name, StateName::Failure, jiff::Timestamp::now());
        let state = state.because(why.to_owned());
        // This comes first: a signature that has its state is not refused again.
        self.follow_refusal(signature, &state).await?;
        self.backend.write(&[state.document(Some(self.settings.keep()))]).await?;
        self.sent.forget(&uuid);
        Ok(())
    }

    /// Keeps the documents of groups whose chords are open.
    async fn keep_groups(&self, groups: BTreeSet<String>) -> Result<(), BrokerError> {
        if groups.is_empty() || self.settings.mode == Mode::Strict {
            return Ok(());
        }
        self.backend.keep_for(&groups.into_iter().collect::<Vec<_>>(), None).await
    }
}
