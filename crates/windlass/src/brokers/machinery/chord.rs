//! Chords: a callback that runs once after all tasks of a group have succeeded, with their results in the order of the
//! group.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use windlass_brokers::{BrokerError, ResultDocument};
use windlass_core::Phase;
use windlass_store::{Loaded, TaskQuery};

use super::{
    Machinery,
    follow_ups::Ended,
    settings::Mode,
    signature::Signature,
    task::{GROUP_LABEL, StateName, TaskState},
    value::TypedValue,
};

/// The most tasks of a group read at once from the store.
const PAGE: usize = 500;

/// Signatures in one another of which nothing follows any more when the innermost one is refused.
const DEPTH_MAX: u8 = 8;

/// A group, as the library keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Group {
    #[serde(rename = "GroupUUID")]
    pub(super) group_uuid: String,
    #[serde(rename = "TaskUUIDs", default)]
    pub(super) task_uuids: Vec<String>,
    #[serde(rename = "ChordTriggered", default)]
    pub(super) chord_triggered: bool,
    #[serde(flatten)]
    other: BTreeMap<String, serde_json::Value>,
}

/// How the tasks of a group stand.
enum Members {
    /// Some have not ended.
    Open,
    /// One has failed.
    Failed,
    /// All have succeeded: their states, in the order of the group.
    Succeeded(Vec<TaskState>),
}

impl Machinery {
    /// Looks whether a chord can go on, after the state of one of its tasks was written.
    pub(super) async fn advance_chord(&self, uuid: &str, ended: &Ended) -> Result<(), BrokerError> {
        // What is malformed was refused with the signature.
        let Some(signature) = &ended.signature else { return Ok(()) };
        let Ok(Some(callback)) = signature.chord_callback() else { return Ok(()) };
        let group: Option<Group> = self.document(uuid).await?;
        if ended.state.state == StateName::Failure {
            return match self.settings.mode {
                Mode::Safe => self.fail_chord(uuid, group, &callback, &ended.state).await,
                Mode::Strict => Ok(()),
            };
        }
        let is_triggered = group.as_ref().is_some_and(|group| group.chord_triggered);
        if is_triggered && !self.settings.has_queue(&callback.routing_key().unwrap_or_default()) {
            return Ok(());
        }
        let uuids = group.as_ref().map_or_else(Vec::new, |group| group.task_uuids.clone());
        let count = usize::try_from(signature.group_count().unwrap_or_default()).unwrap_or(usize::MAX);
        let states = match self.members(uuid, uuids, count).await? {
            Members::Open => return Ok(()),
            // What this task has left is kept as long as other states.
            Members::Failed => {
                let own = std::slice::from_ref(&ended.state.task_uuid);
                return self.backend.keep_for(own, Some(self.settings.keep())).await;
            }
            Members::Succeeded(states) => states,
        };
        let results: Vec<TypedValue> =
            states.iter().flat_map(|state| state.results.as_deref().unwrap_or_default()).cloned().collect();
        let results = if callback.is_immutable().unwrap_or_default() { &[] } else { &results[..] };
        self.send(&callback, &[], results).await?;
        self.close(uuid, group, states.into_iter().map(|state| state.task_uuid).collect()).await
    }

    /// The document of a group expires again if its chord is over. A signature that is read a second time has kept it.
    pub(super) async fn let_group_expire(&self, ended: &Ended) -> Result<(), BrokerError> {
        let Some(uuid) = ended.chord.as_deref().filter(|_| self.settings.mode == Mode::Safe) else {
            return Ok(());
        };
        let group: Option<Group> = self.document(uuid).await?;
        let Some(Group { task_uuids, chord_triggered, .. }) = group else { return Ok(()) };
        let is_over = chord_triggered || {
            let count = task_uuids.len();
            matches!(self.members(uuid, task_uuids, count).await?, Members::Failed)
        };
        match is_over {
            true => self.backend.keep_for(&[uuid.to_owned()], Some(self.settings.keep())).await,
            false => Ok(()),
        }
    }

    /// How the tasks of a group stand. Those that the backend has not, or has no longer, are looked for among the tasks of
    /// the store.
    async fn members(&self, group: &str, uuids: Vec<String>, count: usize) -> Result<Members, BrokerError> {
        let mut found = HashMap::new();
        let mut is_complete = !uuids.is_empty();
        for (uuid, text) in uuids.iter().zip(self.backend.read(&uuids).await?) {
            match text.and_then(|text| serde_json::from_str::<TaskState>(&text).ok()) {
                Some(state) if state.state == StateName::Success => drop(found.insert(uuid.clone(), state)),
                Some(state) if state.state == StateName::Failure => return Ok(Members::Failed),
                Some(_) => return Ok(Members::Open),
                None => is_complete = false,
            }
        }
        let mut order = uuids;
        if !is_complete {
            let stored = self.stored(group).await?;
            if order.is_empty() {
                order = stored.iter().map(|state| state.task_uuid.clone()).collect();
                order.dedup();
            }
            let stored = stored.into_iter().filter(|state| state.state == StateName::Success);
            found.extend(stored.map(|state| (state.task_uuid.clone(), state)));
        }
        if order.len() < count {
            return Ok(Members::Open);
        }
        let states: Option<Vec<TaskState>> = order.into_iter().map(|uuid| found.remove(&uuid)).collect();
        Ok(states.map_or(Members::Open, Members::Succeeded))
    }

    /// The states of all tasks of a group that were started here and have ended, in the order in which they were
    /// started.
    async fn stored(&self, group: &str) -> Result<Vec<TaskState>, BrokerError> {
        let failed = |error| BrokerError::Failed(format!("the store failed: {error}"));
        let labels = BTreeMap::from([(GROUP_LABEL.to_owned(), group.to_owned())]);
        let mut query = TaskQuery { labels, limit: PAGE, brief: true, ..TaskQuery::default() };
        let mut ids = Vec::new();
        loop {
            let page = self.app.engine.tasks(&query).await.map_err(failed)?;
            ids.extend(
                page.items.iter().filter(|loaded| loaded.task.is_ended()).map(|loaded| loaded.task.id),
            );
            match page.next {
                Some(next) => query.before = Some(next),
                None => break,
            }
        }
        ids.reverse();
        let ended = |loaded: Loaded| match loaded.task.state.phase {
            Phase::Ended(ending) => Some(self.ended(&loaded.task, ending)?.state),
            _ => None,
        };
        Ok(self.load(&ids).await?.into_iter().filter_map(ended).collect())
    }

    /// Does what follows the failure of a refused signature: sends its `OnError`, and fails its chord if it belongs to one.
    /// The future is boxed because a signature that follows may be refused, too; down to a depth, since each needs memory.
    pub(super) fn follow_refusal<'a>(
        &'a self,
        refused: &'a Signature,
        state: &'a TaskState,
    ) -> BoxFuture<'a, Result<(), BrokerError>> {
        Box::pin(async move {
            if refused.depth() >= DEPTH_MAX {
                return Ok(());
            }
            match self.send_errors(refused, &state.error).await {
                // The client is to hear of the failure anyway.
                Err(error) if !error.is_passing() => self.refuse_unsent(refused, &error).await?,
                sent => sent?,
            }
            let uuid = refused.group().unwrap_or_default();
            let (Ok(Some(callback)), Mode::Safe, false) =
                (refused.chord_callback(), self.settings.mode, uuid.is_empty())
            else {
                return Ok(());
            };
            let group = self.document(&uuid).await?;
            self.fail_chord(&uuid, group, &callback, state).await
        })
    }

    /// Fails each `OnError` of a refused signature that the broker did not accept.
    async fn refuse_unsent(&self, refused: &Signature, error: &BrokerError) -> Result<(), BrokerError> {
        tracing::warn!(%error, "a signature that follows a failure cannot be sent");
        let uuid = refused.uuid().unwrap_or_default();
        for (place, follows) in refused.on_error().unwrap_or_default().iter().enumerate() {
            if !self.sent.has(&uuid, place) {
                self.refuse(follows, &format!("it cannot be sent: {error}")).await?;
            }
        }
        Ok(())
    }

    /// Fails a chord, one of whose tasks has failed: its callback gets the reason as its state, and what follows its
    /// failure is sent.
    async fn fail_chord(
        &self,
        uuid: &str,
        group: Option<Group>,
        callback: &Signature,
        failed: &TaskState,
    ) -> Result<(), BrokerError> {
        let error = format!(
            "the chord cannot run: the task {} of the group {uuid} failed: {}",
            failed.task_uuid, failed.error
        );
        self.send_errors(callback, &error).await?;
        let (of_callback, name) = (callback.uuid().unwrap_or_default(), callback.name().unwrap_or_default());
        let state = TaskState::new(&of_callback, &name, StateName::Failure, failed.created_at).because(error);
        self.backend.write(&[state.document(Some(self.settings.keep()))]).await?;
        self.sent.forget(&of_callback);
        let uuids = group.as_ref().map_or_else(Vec::new, |group| group.task_uuids.clone());
        let mut ids = uuids;
        ids.push(uuid.to_owned());
        self.backend.keep_for(&ids, Some(self.settings.keep())).await
    }

    /// From now on the documents of a chord are kept as long as others.
    async fn close(&self, uuid: &str, group: Option<Group>, tasks: Vec<String>) -> Result<(), BrokerError> {
        let keep = Some(self.settings.keep());
        let mut group = group.unwrap_or_else(|| Group {
            group_uuid: uuid.to_owned(),
            task_uuids: tasks.clone(),
            chord_triggered: true,
            other: BTreeMap::new(),
        });
        group.chord_triggered = true;
        let text = serde_json::to_string(&group).map_err(|error| BrokerError::Failed(error.to_string()))?;
        self.backend.write(&[ResultDocument { id: uuid.to_owned(), text, keep }]).await?;
        self.backend.keep_for(&tasks, keep).await
    }
}
