//! Waiting for a task.

use std::time::Duration;

use futures_util::StreamExt;
use windlass_api::{Task, TaskStatus};

use super::{Client, EventStream};
use crate::{Error, pacing::Pacing};

/// How often the task itself is asked for while its stream of events is open: a stream that died without a word
/// must not make anybody wait for ever.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// How often the task is asked for while no stream of events can be had.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Client {
    /// The task once it has ended, or is stuck and waits for a person.
    ///
    /// A server that goes away meanwhile is waited for.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is none of this id, [`Error::Unreachable`] if the server is not
    /// there to begin with.
    pub async fn wait(&self, id: &str) -> Result<Task, Error> {
        let mut task = self.task(id).await?;
        let mut events = None;
        while !is_settled(task.status) {
            if events.is_none() {
                events = self.follow_events(id, 0).await.ok();
            }
            match &mut events {
                Some(stream) => {
                    if !news(stream).await {
                        events = None;
                        tokio::time::sleep(POLL_INTERVAL).await;
                    }
                }
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
            task = self.look(id).await?;
        }
        Ok(task)
    }

    /// The task, however long the server is away.
    async fn look(&self, id: &str) -> Result<Task, Error> {
        let mut pacing = Pacing::default();
        loop {
            match self.task(id).await {
                Err(error) if error.is_temporary() => tokio::time::sleep(pacing.failed()).await,
                answer => return answer,
            }
        }
    }
}

fn is_settled(status: TaskStatus) -> bool {
    status.is_ended() || status == TaskStatus::Stuck
}

/// Waits until the task may have settled, or it is time to look. False if the stream is over.
async fn news(events: &mut EventStream) -> bool {
    let settled = async {
        while let Some(event) = events.next().await {
            match event {
                Ok(event) if matches!(event.kind.as_str(), "task.ended" | "task.stuck") => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        false
    };
    tokio::time::timeout(LOOK_INTERVAL, settled).await.unwrap_or(true)
}
