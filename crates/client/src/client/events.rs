//! The events of a task: its history, and the live stream that continues it.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{Stream, StreamExt as _};
use windlass_api::{Event, List};

use super::{
    Client,
    follow::{Follower, Said},
};
use crate::Error;

/// The kind of a task's last event.
const ENDED: &str = "task.ended";

/// Events per page: the server's maximum.
const PAGE_EVENTS: u32 = 1000;

impl Client {
    /// The task's events with numbers above `after`, oldest first; 0 = all.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no task has this id.
    pub async fn task_events(&self, id: &str, after: u64) -> Result<List<Event>, Error> {
        let path = ["v1", "tasks", id, "events"];
        let limit = ("limit", PAGE_EVENTS.to_string().into());
        let first = [("after", after.to_string().into()), limit.clone()];
        // The cursor contains the position, so `after` is left out.
        self.remaining_pages(&path, &[limit], self.get_with(&path, &first).await?).await
    }

    /// Streams the task's events with numbers above `after`, stored and new ones, until the task has ended.
    ///
    /// After a lost connection the stream reconnects and continues where it was, and retries for ever.
    /// Notices without a number that were sent meanwhile are lost.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no task has this id, [`Error::Unreachable`] if the server is
    /// unreachable at the start.
    pub async fn follow_events(&self, id: &str, after: u64) -> Result<EventStream, Error> {
        let follower = Follower::open(self.clone(), ["tasks", id, "events"], None, after, read).await?;
        Ok(EventStream { events: follower.into_stream().boxed() })
    }
}

/// A live stream of a task's events: see [`Client::follow_events`].
pub struct EventStream {
    events: Pin<Box<dyn Stream<Item = Result<Event, Error>> + Send>>,
}

impl Stream for EventStream {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.as_mut().poll_next(context)
    }
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}

fn read(data: &str, after: u64) -> serde_json::Result<Said<Event>> {
    let event: Event = serde_json::from_str(data)?;
    Ok(Said { after: event.n.unwrap_or(after), over: event.kind == ENDED, item: Some(event) })
}
