//! Facts found only in the history: who paused a task, and the message of a postponed attempt.

use windlass_core::{ActKey, Actor, Event, EventKind, Task, Timestamp};

use crate::{Engine, EngineError};

/// The number of events read at once, from the end of the history.
const PAGE_EVENTS: u64 = 500;

/// The maximum number of pages read: apart from events of items, the event in question is among the last ones.
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

    /// The message with which the attempt was postponed, if it was.
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

    /// The result of `find` for the last event for which it returns one, within the pages read.
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
