//! The log of a device: what happens to its jobs, written in the commit in which it happens.
//!
//! | entry | |
//! |---|---|
//! | `published` · `ignored` | written by the device keeper: it sends jobs and reads answers |
//! | everything else | follows from the events of the task that has the device: [`of_events`] |

use serde_json::json;
use windlass_core::{
    ActKey, ActState, Event, EventKind, Failure, Name, TIMEOUT_CODE, Task, Timestamp, device_of_lock,
};
use windlass_store::{AttemptId, JournalEntry, JournalKind};

/// What a transition from `before` says about the jobs of devices.
pub(super) fn of_events(before: &Task, after: &Task, events: &[Event]) -> Vec<JournalEntry> {
    events.iter().flat_map(|event| of_event(before, after, event)).collect()
}

fn of_event(before: &Task, after: &Task, event: &Event) -> Vec<JournalEntry> {
    let at = event.at;
    let of_job = |key: ActKey, attempt: u32, what: &str, more: &serde_json::Value| {
        let is_job = before.action(key).is_some_and(|action| action.device_job().is_some());
        let device = if is_job { device_of(before, key).or_else(|| device_of(after, key)) } else { None };
        device.map(|device| {
            entry(&device, what, AttemptId { task: after.id, key, attempt, claim: 0 }, at, more)
        })
    };
    let failed = |failure: &Failure| {
        let is_timeout = failure.code == TIMEOUT_CODE;
        (if is_timeout { "timed_out" } else { "failed" }, json!({ "error": &*failure.message }))
    };
    let nothing = json!({});
    let found = match &event.kind {
        EventKind::ActSucceeded { key, attempt, .. } => of_job(*key, *attempt, "succeeded", &nothing),
        EventKind::ActFailed { key, attempt, failure } => {
            let (what, more) = failed(failure);
            of_job(*key, *attempt, what, &more)
        }
        EventKind::ActRetrying { key, attempt, until, failure } => {
            let (what, mut more) = failed(failure);
            more["retry_in"] = json!((*until - at).to_string());
            of_job(*key, *attempt, what, &more)
        }
        EventKind::ActOverdue { key, attempt } => of_job(*key, *attempt, "deadline_passed", &nothing),
        EventKind::ActStopped { key, attempt } => of_job(*key, *attempt, "stopped", &nothing),
        EventKind::ActWithdrawn { key, attempt, .. } => of_job(*key, *attempt, "withdrawn", &nothing),
        EventKind::ActUnlocked { key, name, reason, by, .. } => device_of_lock(name).map(|device| {
            let attempt = after.act(*key).map_or(0, |act| act.attempt);
            let more = json!({ "reason": &**reason, "by": by.as_ref().map(ToString::to_string) });
            entry(&device, "unlocked", AttemptId { task: after.id, key: *key, attempt, claim: 0 }, at, &more)
        }),
        // A job that was published goes on.
        EventKind::TaskPaused { by } => {
            let more = json!({ "by": by.as_ref().map(ToString::to_string) });
            return stay(before, after).filter_map(|(key, n)| of_job(key, n, "task_paused", &more)).collect();
        }
        EventKind::TaskRollingBack { .. } => {
            return stay(before, after)
                .filter_map(|(key, n)| of_job(key, n, "task_rolling_back", &nothing))
                .collect();
        }
        _ => None,
    };
    found.into_iter().collect()
}

/// The attempts that may be with devices, and that go on.
fn stay<'t>(before: &'t Task, after: &'t Task) -> impl Iterator<Item = (ActKey, u32)> {
    let ready = before.open_acts().filter(|(_, act)| act.state == ActState::Ready);
    ready.map(|(key, act)| (key, act.attempt)).filter(|(key, attempt)| after.has_ready(*key, *attempt))
}

/// The device of an execution: the lock that its step has or waits for.
pub(crate) fn device_of(task: &Task, key: ActKey) -> Option<Name> {
    task.act(key)?.locks().iter().find_map(|lock| device_of_lock(&lock.name))
}

/// An entry about a job in the journal of its device.
pub(crate) fn entry(
    device: &Name,
    what: &str,
    id: AttemptId,
    at: Timestamp,
    more: &serde_json::Value,
) -> JournalEntry {
    let mut entry = json!({
        "what": what,
        "task": id.task.to_string(),
        "attempt": id.attempt,
    });
    if let (Some(entry), Some(more)) = (entry.as_object_mut(), more.as_object()) {
        entry.extend(
            more.iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), value.clone())),
        );
    }
    let body = entry.to_string().into_bytes().into();
    JournalEntry { kind: JournalKind::DeviceJob, subject: device.clone(), at, body }
}
