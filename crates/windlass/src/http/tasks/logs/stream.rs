//! Following what the attempts of a task write, until it has ended.

use std::{collections::VecDeque, sync::Arc};

use futures_util::{Stream, StreamExt as _, stream};
use windlass_api as api;
use windlass_core::{EventKind, TaskId, task_status};
use windlass_engine::{EngineError, Notice, Watch};

use super::{Wanted, document};
use crate::http::{App, answer::problem::Refused, tasks::view};

/// Lines read at once.
const PAGE_LINES: usize = 500;

/// Follows the lines of one task.
///
/// The lines are read from where they are kept, in the order they came, so their numbers are those of the list; the
/// feed only signals that there may be more. It is watched before the first look, so no line falls between the two.
pub(super) struct Follower {
    app: Arc<App>,
    id: TaskId,
    /// The number of the last line that was handed on, or that was not asked for.
    after: u64,
    wanted: Option<Wanted>,
    pending: VecDeque<Sent>,
    source: Source,
}

/// What a stream of lines has.
pub(super) enum Sent {
    /// A line.
    Line(api::LogLine),
    /// There are no more.
    End { status: api::TaskStatus },
}

/// Where the next lines come from.
enum Source {
    /// From where they are kept, while the feed is watched.
    Kept(Watch),
    /// The feed signals that there may be more.
    Feed(Watch),
    /// Nowhere: the task has ended, or the stream is to be opened again.
    Over,
}

impl Follower {
    /// Follows the lines of a task with numbers above `after`, or of them those of a step.
    pub(super) async fn begin(
        app: Arc<App>,
        id: TaskId,
        after: u64,
        step: Option<&str>,
    ) -> Result<Self, Refused> {
        // Nobody watches what is not there.
        let task = app.engine.task(id).await?.task;
        let wanted = step.map(|step| Wanted::read(&task, step)).transpose()?;
        let source = Source::Kept(app.engine.feed().watch(id));
        Ok(Self { app, id, after, wanted, pending: VecDeque::new(), source })
    }

    /// The lines, until the task has ended and all of them were sent, or the server stops.
    pub(super) fn into_stream(self) -> impl Stream<Item = Sent> {
        stream::unfold(self, |mut follower| async move {
            let app = follower.app.clone();
            let next = tokio::select! {
                next = follower.next() => next,
                () = app.shutdown.begun() => None,
            };
            next.map(|sent| (sent, follower))
        })
    }

    async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some(sent) = self.pending.pop_front() {
                return Some(sent);
            }
            self.source = match std::mem::replace(&mut self.source, Source::Over) {
                Source::Kept(notices) => match self.read(notices).await {
                    Ok(source) => source,
                    // The client opens the stream again from the line it saw last.
                    Err(error) => {
                        tracing::warn!(task = %self.id, %error, "a stream of log lines broke off");
                        return None;
                    }
                },
                Source::Feed(notices) => self.hear(notices).await,
                Source::Over => return None,
            };
        }
    }

    /// Reads a page of what is kept.
    async fn read(&mut self, notices: Watch) -> Result<Source, EngineError> {
        // Asked in this order, so that an ended task has no more lines than those found then.
        let loaded = self.app.engine.task(self.id).await?;
        let lines = self.app.engine.logs(self.id, self.after, PAGE_LINES).await?;
        let is_all = lines.len() < PAGE_LINES;
        for (number, line) in lines {
            self.after = number;
            if self.wanted.is_some_and(|wanted| !wanted.includes(line.key)) {
                continue;
            }
            self.pending.push_back(Sent::Line(document(&loaded.task, number, line)));
        }
        Ok(if !is_all {
            Source::Kept(notices)
        } else if loaded.task.is_ended() {
            let status = view::status(task_status(&loaded.task, &loaded.held()));
            self.pending.push_back(Sent::End { status });
            Source::Over
        } else {
            Source::Feed(notices)
        })
    }

    /// Waits for the next notice.
    async fn hear(&self, mut notices: Watch) -> Source {
        match notices.next().await {
            // Fallen behind: what is kept has all of it.
            None => Source::Kept(self.app.engine.feed().watch(self.id)),
            Some(Notice::Logged { .. }) => Source::Kept(notices),
            Some(Notice::Event { event, .. }) if matches!(event.kind, EventKind::TaskEnded(_)) => {
                Source::Kept(notices)
            }
            Some(_) => Source::Feed(notices),
        }
    }
}
