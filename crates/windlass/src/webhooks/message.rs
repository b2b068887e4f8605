//! What a webhook sends.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;
use windlass_core::{Alarm, Ending, Event, Task, hex};

use crate::http::{alarm_document, event_document, view::time};

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(super) enum Kind {
    #[serde(rename = "task.succeeded")]
    TaskSucceeded,
    #[serde(rename = "task.rolled_back")]
    TaskRolledBack,
    #[serde(rename = "task.failed")]
    TaskFailed,
    #[serde(rename = "task.cancelled")]
    TaskCancelled,
    #[serde(rename = "alarm.raised")]
    AlarmRaised,
}

impl Kind {
    /// All of them.
    pub(super) const ALL: [Self; 5] =
        [Self::TaskSucceeded, Self::TaskRolledBack, Self::TaskFailed, Self::TaskCancelled, Self::AlarmRaised];

    /// The kind of the message about the end of a task.
    pub(super) fn of(ending: Ending) -> Self {
        match ending {
            Ending::Succeeded => Self::TaskSucceeded,
            Ending::RolledBack => Self::TaskRolledBack,
            Ending::Failed => Self::TaskFailed,
            Ending::Cancelled => Self::TaskCancelled,
        }
    }

    /// As it is written.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::TaskSucceeded => "task.succeeded",
            Self::TaskRolledBack => "task.rolled_back",
            Self::TaskFailed => "task.failed",
            Self::TaskCancelled => "task.cancelled",
            Self::AlarmRaised => "alarm.raised",
        }
    }
}

/// A message, the same for each webhook.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// The same when the message is sent again: receivers deduplicate by it. Has no dot, since the signature has dots between
    /// its parts.
    pub(super) id: String,
    pub(super) body: Value,
    /// The W3C trace context of the task that it is about.
    pub(super) traceparent: Option<Box<str>>,
}

impl Message {
    /// A task has ended. Parameters and results are not in it: receivers read them with a token of their own.
    pub(super) fn of_end(
        kind: Kind,
        task: &Task,
        n: u64,
        event: &Event,
        traceparent: Option<Box<str>>,
    ) -> Self {
        let ended = event_document(task, n, event);
        let data = json!({
            "task": ended.task,
            "flow": task.flow.name,
            "version": task.flow.version,
            "status": ended.data["status"],
            "labels": task.input.labels,
            "message": task.message(),
            "event": n,
        });
        let id = format!("{}-{n}", ended.task);
        let body = json!({ "type": kind.as_str(), "timestamp": ended.at, "data": data });
        Self { kind, id, body, traceparent }
    }

    /// An alarm was raised, or raised again.
    pub(super) fn of_alarm(alarm: &Alarm) -> Self {
        let (kind, raised_at) = (Kind::AlarmRaised, time(alarm.raised_at));
        let digest = Sha256::digest(format!("{}/{}", alarm.id, alarm.raised));
        let id = hex(&digest[..16]);
        let data = json!({ "alarm": alarm_document(alarm.clone()), "raised": alarm.raised });
        let body = json!({ "type": kind.as_str(), "timestamp": raised_at, "data": data });
        Self { kind, id, body, traceparent: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_written_as_in_the_configuration() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
