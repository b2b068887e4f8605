//! The input of a command: the document on its stdin and its environment variables.

use std::ffi::OsString;

use serde::Serialize;
use windlass_api::{Attempt, AttemptLock, Direction, Payload};

/// The only variable of Windlass that a command inherits: the address of the server, for commands that call
/// it.
const INHERITED: &str = "WINDLASS_SERVER";

/// The variables of a trace context, of which a command gets that of its attempt alone.
const TRACE_CONTEXT: [&str; 2] = ["TRACEPARENT", "TRACESTATE"];

/// The document on stdin.
#[derive(Serialize)]
struct Document<'a> {
    params: &'a Payload,
    #[serde(skip_serializing_if = "Option::is_none")]
    results: Option<&'a Payload>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    results_omitted: bool,
    task: &'a str,
    step: &'a str,
    attempt: u32,
    direction: Direction,
    idempotency_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward_idempotency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Payload>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    locks: &'a [AttemptLock],
    #[serde(skip_serializing_if = "Option::is_none")]
    exclusive: Option<&'a AttemptLock>,
}

/// The document on stdin, as one line: a command without a JSON parser can still read it by lines.
pub(super) fn document(attempt: &Attempt) -> serde_json::Result<Vec<u8>> {
    let document = Document {
        params: &attempt.params,
        results: attempt.results.as_ref(),
        results_omitted: attempt.results_omitted,
        task: &attempt.task,
        step: &attempt.step,
        attempt: attempt.attempt,
        direction: attempt.direction,
        idempotency_key: &attempt.idempotency_key,
        forward_idempotency_key: attempt.forward_idempotency_key.as_deref(),
        error: attempt.error.as_deref(),
        result: attempt.result.as_ref(),
        locks: &attempt.locks,
        exclusive: attempt.exclusive.as_ref(),
    };
    let mut bytes = serde_json::to_vec(&document)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The variables that identify the attempt, its locks as `NAME=FENCE …`, the fencing token of the exclusive queue of its
/// task, and that of the leadership of its worker.
pub(super) fn variables(attempt: &Attempt, leader_fence: Option<u64>) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("WINDLASS_TASK", attempt.task.clone()),
        ("WINDLASS_STEP", attempt.step.clone()),
        ("WINDLASS_ATTEMPT", attempt.attempt.to_string()),
        ("WINDLASS_ATTEMPT_TOKEN", attempt.token.clone()),
        ("WINDLASS_IDEMPOTENCY_KEY", attempt.idempotency_key.clone()),
    ];
    if let Some(key) = &attempt.forward_idempotency_key {
        variables.push(("WINDLASS_FORWARD_IDEMPOTENCY_KEY", key.clone()));
    }
    if let Some(traceparent) = &attempt.traceparent {
        variables.push((TRACE_CONTEXT[0], traceparent.clone()));
    }
    if !attempt.locks.is_empty() {
        let locks = attempt.locks.iter().map(|lock| format!("{}={}", lock.name, lock.fence));
        variables.push(("WINDLASS_LOCKS", locks.collect::<Vec<_>>().join(" ")));
    }
    if let Some(queue) = &attempt.exclusive {
        variables.push(("WINDLASS_FENCE", queue.fence.to_string()));
    }
    if let Some(fence) = leader_fence {
        variables.push(("WINDLASS_LEADER_FENCE", fence.to_string()));
    }
    variables
}

/// The worker's own variables that a command does not inherit: all with the prefix of Windlass, except the
/// server's address. This keeps tokens and the passwords in store and broker URLs from commands, also for
/// settings added later. The variables with `prefix`, which have secrets, are not inherited either.
pub(super) fn withheld(names: impl Iterator<Item = OsString>, prefix: Option<&str>) -> Vec<OsString> {
    let begins = |name: &OsString, prefix: &str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
    let is_withheld = |name: &OsString| {
        begins(name, "WINDLASS_") && name != INHERITED
            || TRACE_CONTEXT.iter().any(|context| name == context)
            || prefix.is_some_and(|prefix| begins(name, prefix))
    };
    names.filter(is_withheld).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_of_ours_is_inherited() {
        let names = [
            "PATH",
            "WINDLASS_TOKEN",
            "WINDLASS_SERVER_STORE",
            "WINDLASS_SERVER",
            "MY_WINDLASS_TOKEN",
            "PASS_DB",
            "TRACEPARENT",
        ];
        let names = || names.into_iter().map(OsString::from);
        assert_eq!(withheld(names(), None), ["WINDLASS_TOKEN", "WINDLASS_SERVER_STORE", "TRACEPARENT"]);
        assert_eq!(
            withheld(names(), Some("PASS_")),
            ["WINDLASS_TOKEN", "WINDLASS_SERVER_STORE", "PASS_DB", "TRACEPARENT"]
        );
    }
}
