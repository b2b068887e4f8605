//! What becomes of a task: its state, and what follows its end.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::future::join_all;
use windlass_brokers::{BrokerError, ResultDocument};
use windlass_core::{Ending, Event, EventKind, Task, TaskId};
use windlass_engine::services::{Subscriber, TaskEvent, Unreadable};
use windlass_store::Loaded;

use super::{
    Machinery,
    settings::Mode,
    signature::Signature,
    task::{GROUP_LABEL, LABEL, Origin, StateName, TaskState},
    value::TypedValue,
};

/// The most tasks loaded with one request: each may have parameters and results of a MiB.
const LOADED_AT_ONCE: usize = 50;

/// A task that has ended.
pub(super) struct Ended {
    /// Its signature, if something follows it.
    pub(super) signature: Option<Signature>,
    pub(super) state: TaskState,
    /// UUID of its group, where a chord waits for it.
    pub(super) chord: Option<String>,
}

#[async_trait]
impl Subscriber for Machinery {
    fn place(&self) -> String {
        format!("to clients of machinery at {}", self.backend.name())
    }

    fn reads_payload(&self, event: &Event) -> bool {
        matches!(event.kind, EventKind::TaskEnded(_))
    }

    async fn announce(&self, events: &[TaskEvent<'_>]) -> Vec<Result<(), BrokerError>> {
        // Each with the place of its event.
        let (mut documents, mut ends) = (Vec::new(), Vec::new());
        for (place, TaskEvent { task, event, .. }) in events.iter().enumerate() {
            if !task.input.labels.contains_key(LABEL) {
                continue;
            }
            match &event.kind {
                EventKind::TaskEnded(ending) => {
                    ends.extend(self.ended(task, *ending).map(|ended| (place, ended)));
                }
                // Only the last state of a task that has ended meanwhile is of use.
                _ if task.is_ended() => {}
                EventKind::TaskAccepted => documents.push((place, self.open(task, StateName::Received))),
                EventKind::ActRetrying { .. } => documents.push((place, self.open(task, StateName::Retry))),
                _ => {}
            }
        }
        let mut outcomes = vec![Ok(()); events.len()];
        let followed = join_all(ends.iter().map(|(_, ended)| self.follow(ended))).await;
        for ((place, ended), followed) in ends.iter().zip(followed) {
            if let Err(error) = followed {
                outcomes[*place] = Err(error);
                continue;
            }
            let keep = match (&ended.chord, self.settings.mode) {
                (Some(_), Mode::Safe) => None,
                _ => Some(self.settings.keep()),
            };
            documents.push((*place, ended.state.document(keep)));
        }
        for (place, error) in self.write(documents).await {
            outcomes[place] = Err(error);
        }
        let mut chords: BTreeMap<&str, &Ended> = BTreeMap::new();
        for (_, ended) in ends.iter().filter(|(place, _)| outcomes[*place].is_ok()) {
            if let Some(group) = &ended.chord {
                // A failed task says more than the others.
                let is_failed = ended.state.state == StateName::Failure;
                if is_failed || !chords.contains_key(group.as_str()) {
                    chords.insert(group, ended);
                }
            }
        }
        for (group, ended) in chords {
            if let Err(error) = self.advance_chord(group, ended).await {
                // The others of this group may be confirmed: one event is enough to look at it again.
                let of_group = |(place, other): &(usize, Ended)| {
                    (other.chord.as_deref() == Some(group)).then_some(*place)
                };
                for place in ends.iter().filter_map(of_group) {
                    outcomes[place] = Err(error.clone());
                }
            }
        }
        for (_, ended) in ends.iter().filter(|(place, _)| outcomes[*place].is_ok()) {
            self.sent.forget(&ended.state.task_uuid);
        }
        outcomes
    }
}

impl Machinery {
    /// The state of a task that goes on.
    fn open(&self, task: &Task, state: StateName) -> ResultDocument {
        let is_in_group = task.input.labels.contains_key(GROUP_LABEL);
        let keep = (!is_in_group || self.settings.mode == Mode::Strict).then(|| self.settings.keep());
        TaskState::of_task(task, state).document(keep)
    }

    /// Tasks with their parameters and results. Tasks with damaged rows are left out: an alarm reports them.
    pub(super) async fn load(&self, ids: &[TaskId]) -> Result<Vec<Loaded>, BrokerError> {
        let mut loaded = Vec::with_capacity(ids.len());
        for ids in ids.chunks(LOADED_AT_ONCE) {
            let found = self.app.engine.whole_tasks(ids).await;
            let found = found.map_err(|error| BrokerError::Failed(format!("the store failed: {error}")))?;
            loaded.extend(found.into_iter().flatten());
        }
        Ok(loaded)
    }

    /// Writes documents of events. Returns the events of which a document could not be written. One that the backend does not
    /// accept is not to hold up the others.
    async fn write(&self, documents: Vec<(usize, ResultDocument)>) -> Vec<(usize, BrokerError)> {
        let (places, documents): (Vec<usize>, Vec<ResultDocument>) = documents.into_iter().unzip();
        match self.backend.write(&documents).await {
            Ok(()) => return Vec::new(),
            Err(error @ BrokerError::Unreachable(_)) => {
                return places.into_iter().map(|place| (place, error.clone())).collect();
            }
            Err(_) => {}
        }
        let mut failed = Vec::new();
        for (place, document) in places.into_iter().zip(&documents) {
            if let Err(error) = self.backend.write(std::slice::from_ref(document)).await {
                failed.push((place, error));
            }
        }
        failed
    }

    /// The end of a task that a signature started.
    pub(super) fn ended(&self, task: &Task, ending: Ending) -> Option<Ended> {
        let signature = Origin::of(task)?.signature();
        let chord = signature.as_ref().and_then(Signature::chord_group);
        Some(Ended { signature, state: TaskState::of_ended(task, ending), chord })
    }

    /// Sends what follows the end of a task.
    async fn follow(&self, ended: &Ended) -> Result<(), BrokerError> {
        let Ended { signature: Some(signature), state, .. } = ended else { return Ok(()) };
        match state.state {
            StateName::Success => {
                // What is malformed was refused with the signature.
                let immutable = signature.is_immutable().unwrap_or_default();
                let results = state.results.as_deref().unwrap_or_default();
                let results = if immutable { &[] } else { results };
                self.send_all(&state.task_uuid, &signature.on_success().unwrap_or_default(), &[], results)
                    .await
            }
            _ => self.send_errors(signature, &state.error).await,
        }
    }

    /// Sends what follows a failure, with the error as its first argument.
    pub(super) async fn send_errors(&self, failed: &Signature, error: &str) -> Result<(), BrokerError> {
        let error =
            serde_json::value::to_raw_value(error).map_err(|error| BrokerError::Failed(error.to_string()))?;
        let error = [TypedValue::new("string", error)];
        let uuid = failed.uuid().unwrap_or_default();
        self.send_all(&uuid, &failed.on_error().unwrap_or_default(), &error, &[]).await
    }

    /// Sends what follows the task `uuid`, except what an earlier call has sent.
    async fn send_all(
        &self,
        uuid: &str,
        signatures: &[Signature],
        before: &[TypedValue],
        after: &[TypedValue],
    ) -> Result<(), BrokerError> {
        let mut outcome = Ok(());
        for (place, signature) in signatures.iter().enumerate() {
            if self.sent.has(uuid, place) {
                continue;
            }
            match self.send(signature, before, after).await {
                Ok(()) => self.sent.add(uuid, place),
                Err(error @ BrokerError::Unreachable(_)) => return Err(error),
                // It is not to hold up the others.
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// Sends a signature: it starts a task here, or goes to the queue of another worker.
    pub(super) async fn send(
        &self,
        signature: &Signature,
        before: &[TypedValue],
        after: &[TypedValue],
    ) -> Result<(), BrokerError> {
        let text = signature.with_args(before, after);
        let (text, queue) = match (text, signature.routing_key()) {
            (Ok(text), Ok(queue)) => (text, queue),
            (Err(why), _) | (_, Err(why)) => {
                tracing::warn!(why, "a signature that follows another one cannot be sent");
                return Ok(());
            }
        };
        if self.settings.has_queue(&queue) {
            let sent = Signature::parse(&text).map(|sent| (&*text, sent.at_depth(signature.depth())));
            let accepted = self.accept_all(&[sent], "a signature that follows another one").await.pop();
            return match accepted.unwrap_or(Ok(())) {
                Ok(()) => Ok(()),
                Err(Unreadable::Refused(why)) => {
                    tracing::warn!(why, "a signature that follows another one is refused");
                    Ok(())
                }
                Err(Unreadable::Later(why)) => Err(BrokerError::Failed(why)),
            };
        }
        let (uuid, name) = (signature.uuid().unwrap_or_default(), signature.name().unwrap_or_default());
        let state = TaskState::new(&uuid, &name, StateName::Pending, jiff::Timestamp::now());
        self.backend.write(&[state.document(Some(self.settings.keep()))]).await?;
        let now = jiff::Timestamp::now();
        let at = signature.eta().ok().flatten().filter(|at| *at > now);
        let at = at.map(|at| i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX));
        let sent = match self.sender.check(&queue, at) {
            Ok(()) => self.sender.send(&queue, &text, at).await,
            Err(error) => return self.cannot_send(signature, &queue, &error).await,
        };
        match sent {
            Err(error @ BrokerError::TooLarge { .. }) => self.cannot_send(signature, &queue, &error).await,
            sent => sent,
        }
    }

    /// A retry would fail too. The client gets the reason as a state, and the next signatures are sent.
    async fn cannot_send(
        &self,
        signature: &Signature,
        queue: &str,
        error: &BrokerError,
    ) -> Result<(), BrokerError> {
        tracing::warn!(%error, queue, "a signature that follows another one cannot be sent");
        self.refuse(signature, &format!("it cannot be sent to the queue {queue}: {error}")).await
    }
}
