//! From a marked entry to its task, and from the end of the task to the entry.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use windlass_client::Pacing;
use windlass_coordinators::{CoordinatorError, KvChange, KvCommitted, KvEntry};
use windlass_core::{TaskId, task_status};
use windlass_engine::{EngineError, services::Unreadable};
use windlass_store::Loaded;

use super::{
    FAILED_PAUSE_MAX, Permit, TaskList,
    entry::{self, Mark, Outcome, Read, Settlement},
    listing::Found,
    reign,
};
use crate::http::{self, TaskMessage};

/// The pause before an entry is read again that somebody has written meanwhile.
const CHANGED_PAUSE: Duration = Duration::from_millis(50);

/// What became of a followed entry.
#[derive(Debug)]
pub(super) enum Followed {
    /// Its task has ended, and the entry was settled.
    Settled,
    /// The store has no such task, and this server may not submit it now.
    NotNow,
    /// It was marked by servers of another store.
    NotOurs,
    /// Its task was refused.
    Refused(String),
}

/// Follows a marked entry to the end of its task.
pub(super) async fn follow(list: Arc<TaskList>, found: Found, mark: Mark) -> Followed {
    let task = match task_of(&list, &found, &mark).await {
        Ok(task) => task,
        Err(why) => return why,
    };
    let mut pacing = Pacing::up_to(FAILED_PAUSE_MAX);
    let outcome = loop {
        let ended = tokio::select! {
            ended = list.app.engine.ended(task) => ended,
            () = reign::see_to(&list, task) => continue,
        };
        match ended {
            Ok(loaded) => break outcome(&loaded),
            // Ended tasks are deleted in the end.
            Err(EngineError::UnknownTask(_)) => break deleted(),
            Err(error) => tracing::debug!(%error, %task, "cannot read a task of a list; retrying"),
        }
        sleep(pacing.failed()).await;
    };
    let mut pacing = Pacing::up_to(FAILED_PAUSE_MAX);
    while let Err(error) = settle(&list, &found.at.key, &mark, &outcome).await {
        let key = &found.at.key;
        match error {
            CoordinatorError::Unavailable(_) => {
                tracing::debug!(%error, key, "cannot settle an entry of a list; retrying");
            }
            _ => tracing::warn!(%error, key, "cannot settle an entry of a list; retrying"),
        }
        sleep(pacing.failed()).await;
    }
    Followed::Settled
}

/// The task of a marked entry. It is submitted if the store lacks it: the server that marked the entry has ended before it
/// could do so.
async fn task_of(list: &TaskList, found: &Found, mark: &Mark) -> Result<TaskId, Followed> {
    let mut pacing = Pacing::up_to(FAILED_PAUSE_MAX);
    loop {
        match list.app.engine.task(mark.task).await {
            Ok(_) => return Ok(mark.task),
            Err(EngineError::UnknownTask(_)) => {
                // A store that was moved has another name, and the same tasks.
                if mark.store != list.store {
                    return Err(Followed::NotOurs);
                }
                if !matches!(list.permit(), Permit::Acts { .. }) {
                    return Err(Followed::NotNow);
                }
                let text = found.entry.document(&list.settings).map_err(Followed::Refused)?;
                let key = idempotency_key(&found.at, mark);
                let message = TaskMessage { text, key: Some(key.clone()), traceparent: None };
                match list.app.take_in_under(mark.task, &message, &list.by()).await {
                    Ok(task) => return Ok(task),
                    Err(Unreadable::Refused(why)) => return Err(Followed::Refused(why)),
                    Err(Unreadable::Later(why)) => {
                        tracing::debug!(why, key, "cannot submit a task of a list; retrying");
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "cannot look for a task of a list; retrying"),
        }
        sleep(pacing.failed()).await;
    }
}

/// The key, its creation, and how often it was put back after its end.
fn idempotency_key(at: &KvEntry, mark: &Mark) -> String {
    format!("{}/{}/{}", at.key, at.create_index, mark.run)
}

fn outcome(loaded: &Loaded) -> Outcome {
    let task = &loaded.task;
    let status = http::status(task_status(task, &loaded.held()));
    let succeeded = status == windlass_api::TaskStatus::Succeeded;
    let message = if succeeded { None } else { task.message() };
    Outcome { status: status.as_str().to_owned(), succeeded, message }
}

fn deleted() -> Outcome {
    let message = Some("the task has ended and was deleted".to_owned());
    Outcome { status: "deleted".to_owned(), succeeded: false, message }
}

/// Deletes, moves or changes an entry whose task has ended. What somebody has written meanwhile is never lost: the entry
/// is read again then. Does nothing if the entry is not ours any more, or was settled before.
async fn settle(list: &TaskList, key: &str, mark: &Mark, outcome: &Outcome) -> Result<(), CoordinatorError> {
    let settings = &list.settings;
    loop {
        let Some(at) = list.kv.read(key).await? else { return Ok(()) };
        let Read::Marked(found, read) = entry::read(&at.value) else { return Ok(()) };
        if read != *mark {
            return Ok(());
        }
        let settlement = found
            .settled(read, outcome, settings.when_ended)
            .map_err(|error| CoordinatorError::Invalid(error.to_string()))?;
        let committed = match &settlement {
            Settlement::Delete => list.kv.commit(&[KvChange::Delete { entry: &at }]).await?,
            Settlement::Keep(value) => list.kv.commit(&[KvChange::Replace { entry: &at, value }]).await?,
            Settlement::Move(value) => {
                let name = key.strip_prefix(&settings.prefix).unwrap_or(key);
                let done = format!("{}{name}", settings.done_prefix);
                let set = KvChange::Set { key: &done, value, flags: at.flags };
                list.kv.commit(&[KvChange::Delete { entry: &at }, set]).await?
            }
        };
        if committed == KvCommitted::Done {
            return Ok(());
        }
        sleep(CHANGED_PAUSE).await;
    }
}
