//! What only the history tells: who paused a task, and what an attempt said that asked to be tried later.

use windlass_core::{ActKey, Actor, Event, EventKind, Task, Timestamp};

use crate::{Engine, EngineError};

/// Events read at once, from the end of the history.
const PAGE_EVENTS: u64 = 500;

/// How many pages are read: what is asked for is among the last events, but for those of members that went on.
const PAGES_MAX: u64 = 8;

impl Engine {
    /// When the task was paused last, and by whom.
    pub(super) async fn last_pause(
        &self,
        task: &Task,
    ) -> Result<Option<(Timestamp, Option<Actor>)>, EngineError> {
        self.last_event(task, |event| match &event.kind {
            EventKind::TaskPaused { by } => Some((event.at, by.clone())),
            _ => None,
        })
        .await
    }

    /// What the attempt said when it asked to be tried later, if it did.
    pub(super) async fn postponed(
        &self,
        task: &Task,
        of: ActKey,
        number: u32,
    ) -> Result<Option<String>, EngineError> {
        let end = self
            .last_event(task, |event| match &event.kind {
                EventKind::ActPostponed { key, attempt, message, .. } if (*key, *attempt) == (of, number) => {
                    Some(Some(message.to_string()))
                }
                EventKind::ActRetrying { key, attempt, .. } if (*key, *attempt) == (of, number) => Some(None),
                _ => None,
            })
            .await?;
        Ok(end.flatten())
    }

    /// What `find` makes of the last event of which it makes something, as far back as is read.
    async fn last_event<T>(
        &self,
        task: &Task,
        find: impl Fn(&Event) -> Option<T>,
    ) -> Result<Option<T>, EngineError> {
        let mut end = task.state.events;
        for _ in 0..PAGES_MAX {
            let after = end.saturating_sub(PAGE_EVENTS);
            let page = usize::try_from(end - after).unwrap_or(usize::MAX);
            let events = self.store.events(task.id, after, page).await?;
            let found = events.iter().rev().find_map(|(_, event)| find(event));
            if found.is_some() || after == 0 {
                return Ok(found);
            }
            end = after;
        }
        Ok(None)
    }
}
