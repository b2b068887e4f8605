//! Waiting for a task.

use std::time::Duration;

use futures_util::StreamExt;
use windlass_api::{Task, TaskStatus};

use super::{Client, EventStream};
use crate::{Error, pacing::Pacing};

/// The interval at which the task is read while its event stream is open: a stream that died silently must
/// not block the caller for ever.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// The interval at which the task is read without an event stream.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Client {
    /// Waits until the task has ended, or is stuck and waits for an operator.
    ///
    /// Retries while the server is unavailable.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no task has this id, [`Error::Unreachable`] if the server is
    /// unreachable at the start.
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

    /// Reads the task; retries while the server is unavailable.
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

/// Waits until the task may have ended or is stuck, or until the next read is due. False if the stream has
/// ended.
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
