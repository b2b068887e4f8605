//! The log lines of a task's attempts, stored and live.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{Stream, StreamExt as _};
use serde::Deserialize;
use windlass_api::{List, LogLine};

use super::{
    Client,
    follow::{Follower, Said},
};
use crate::Error;

impl Client {
    /// The log lines of the task, oldest first: all of them, those of one step, or those of one item
    /// (`resize[3]`).
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if the task or the step does not exist.
    pub async fn task_logs(&self, id: &str, step: Option<&str>) -> Result<List<LogLine>, Error> {
        let filter: Vec<_> = step.map(|step| ("step", step.into())).into_iter().collect();
        self.all_pages(&["v1", "tasks", id, "logs"], &filter).await
    }

    /// Streams the log lines with numbers above `after`, stored and new ones, of all steps or one, until the
    /// task has ended.
    ///
    /// After a lost connection the stream reconnects and continues where it was, and retries for ever.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if the task or the step does not exist, [`Error::Unreachable`] if
    /// the server is unreachable at the start.
    pub async fn follow_logs(&self, id: &str, step: Option<&str>, after: u64) -> Result<LogStream, Error> {
        let filter = step.map(|step| ("step", step.to_owned()));
        let follower = Follower::open(self.clone(), ["tasks", id, "logs"], filter, after, read).await?;
        Ok(LogStream { lines: follower.into_stream().boxed() })
    }
}

/// A live stream of a task's log lines: see [`Client::follow_logs`].
pub struct LogStream {
    lines: Pin<Box<dyn Stream<Item = Result<LogLine, Error>> + Send>>,
}

impl Stream for LogStream {
    type Item = Result<LogLine, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.lines.as_mut().poll_next(context)
    }
}

impl std::fmt::Debug for LogStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogStream").finish_non_exhaustive()
    }
}

/// A message of the stream: a line, or the end of the task with its status.
#[derive(Deserialize)]
#[serde(untagged)]
enum Message {
    Line(LogLine),
    End {
        #[serde(rename = "status")]
        _status: serde::de::IgnoredAny,
    },
}

fn read(data: &str, after: u64) -> serde_json::Result<Said<LogLine>> {
    Ok(match serde_json::from_str(data)? {
        Message::Line(line) => Said { after: line.number, item: Some(line), over: false },
        Message::End { .. } => Said { item: None, after, over: true },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_numbers_and_the_end_has_none() {
        let line = r#"{"number":12,"at":"2030-03-17T17:46:40Z","step":"a","direction":"forward","attempt":1,"line":"x"}"#;
        let said = read(line, 7).unwrap();
        assert_eq!((said.item.unwrap().line.as_str(), said.after, said.over), ("x", 12, false));
        let end = read(r#"{"status":"succeeded"}"#, 12).unwrap();
        assert!(end.item.is_none() && end.over && end.after == 12);
        assert!(read("{}", 0).is_err());
    }
}
