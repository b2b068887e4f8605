//! Following a task: its history in pages, then what happens, until it has ended.

use std::{collections::VecDeque, sync::Arc};

use futures_util::{Stream, StreamExt as _, stream};
use windlass_api as api;
use windlass_core::{Task, TaskId};
use windlass_engine::{EngineError, Notice, Watch};

use super::document;
use crate::http::{App, answer::problem::Refused};

/// Events of the history read at once.
const PAGE_EVENTS: usize = 500;

/// Follows one task.
///
/// It watches the feed first and reads the history then, so nothing falls between the two; what comes both ways is
/// recognized by its number. A watcher that falls behind is dropped by the feed, and begins with the history again
/// where it was.
pub(super) struct Follower {
    app: Arc<App>,
    id: TaskId,
    /// For the names of its steps: a task keeps its flow.
    task: Arc<Task>,
    /// The number of the last event handed on.
    last: u64,
    pending: VecDeque<api::Event>,
    lines: Lines,
    source: Source,
}

/// Whether a stream has the lines that attempts write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// It has.
    Sent,
    /// Those who want them ask for the logs.
    LeftOut,
}

/// Where the next events come from.
enum Source {
    /// The history, while the feed is watched.
    History(Watch),
    /// The feed.
    Feed(Watch),
    /// Nowhere: the task has ended, or the stream is to be opened again.
    Over,
}

impl Follower {
    /// Follows a task from the event after the one with that number.
    pub(super) async fn begin(app: Arc<App>, id: TaskId, after: u64, lines: Lines) -> Result<Self, Refused> {
        // Nobody watches what is not there. The history is read after watching has begun, in `next`.
        let task = app.engine.task(id).await?.task;
        let source = Source::History(app.engine.feed().watch(id));
        Ok(Self { app, id, task, last: after, pending: VecDeque::new(), lines, source })
    }

    /// The events, until the task has ended and all of them were sent, or the server stops.
    pub(super) fn into_stream(self) -> impl Stream<Item = api::Event> {
        stream::unfold(self, |mut follower| async move {
            let app = follower.app.clone();
            let next = tokio::select! {
                next = follower.next() => next,
                () = app.shutdown.begun() => None,
            };
            next.map(|event| (event, follower))
        })
    }

    async fn next(&mut self) -> Option<api::Event> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            match std::mem::replace(&mut self.source, Source::Over) {
                Source::History(notices) => match self.read_history().await {
                    Ok(true) => self.source = Source::History(notices),
                    Ok(false) if has_ended(&self.app, self.id, self.last).await => return None,
                    Ok(false) => self.source = Source::Feed(notices),
                    // The client opens the stream again from the event it saw last.
                    Err(error) => {
                        tracing::warn!(task = %self.id, %error, "a stream of events broke off");
                        return None;
                    }
                },
                Source::Feed(notices) => self.source = self.hear(notices).await,
                Source::Over => return None,
            }
        }
    }

    /// Reads a page of the history. False when there was nothing new.
    async fn read_history(&mut self) -> Result<bool, EngineError> {
        let events = self.app.engine.events(self.id, self.last, PAGE_EVENTS).await?;
        for (n, event) in &events {
            self.last = *n;
            self.pending.push_back(document::event(&self.task, *n, event));
        }
        Ok(!events.is_empty())
    }

    /// Waits for the next notice.
    async fn hear(&mut self, mut notices: Watch) -> Source {
        match notices.next().await {
            // Fallen behind: the history has what was missed.
            None => Source::History(self.app.engine.feed().watch(self.id)),
            Some(Notice::Event { n, .. }) if n <= self.last => Source::Feed(notices),
            Some(Notice::Event { n, event }) => {
                let is_next = n == self.last + 1;
                if is_next {
                    self.last = n;
                    self.pending.push_back(document::event(&self.task, n, &event));
                }
                if is_next && !matches!(event.kind, windlass_core::EventKind::TaskEnded(_)) {
                    Source::Feed(notices)
                } else {
                    // A gap is filled from the history, and an end is made sure of there.
                    Source::History(notices)
                }
            }
            Some(Notice::Logged { .. }) if self.lines == Lines::LeftOut => Source::Feed(notices),
            Some(live) => {
                self.pending.extend(document::live(&self.task, &live));
                Source::Feed(notices)
            }
        }
    }
}

/// Whether the task has ended and its events up to `last` are all it has.
async fn has_ended(app: &App, id: TaskId, last: u64) -> bool {
    match app.engine.task(id).await {
        Ok(loaded) => loaded.task.is_ended() && last >= loaded.task.state.events,
        // It was deleted meanwhile, or the store failed: there is nothing more to come.
        Err(_) => true,
    }
}
