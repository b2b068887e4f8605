//! What each operation is expected to ask for, said here once more: a change of the server's table is seen.

use axum::{
    body::Body,
    http::{Method, Request},
};
use serde_json::{Value, json};

use super::{super::server::json_request, exchange};

/// What a request is about.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) flow: &'static str,
    pub(super) queue: &'static str,
    pub(super) task: String,
    /// The token of an attempt of a task of the flow, on the queue.
    pub(super) attempt: String,
}

/// What a token must be limited to, at most, to use an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Everybody, without a token.
    Public,
    /// Nothing: only tokens that are not limited.
    None,
    /// What the request is about.
    Target,
    /// Anything: the answer leaves out what is out of scope.
    Filtered,
}

use Scope::{Filtered, None, Public, Target as Of};

const READ: &[&str] = &["viewer", "operator", "admin"];
const ACT: &[&str] = &["operator", "admin"];
const RULE: &[&str] = &["admin"];
const WORK: &[&str] = &["worker", "admin"];

/// The roles and the scope of each operation, by its id.
pub(super) fn expected(id: &str) -> Option<(&'static [&'static str], Scope)> {
    Some(match id {
        "get_health" | "get_readiness" | "get_openapi" => (&[], Public),
        "get_metrics"
        | "list_alarms"
        | "list_device_messages"
        | "list_devices"
        | "get_device"
        | "get_device_log"
        | "get_leader"
        | "list_limits"
        | "get_limit"
        | "list_locks"
        | "get_lock"
        | "list_rollouts"
        | "get_rollout"
        | "list_rollout_history"
        | "list_servers"
        | "list_triggers"
        | "get_trigger"
        | "list_trigger_history"
        | "list_workers" => (READ, None),
        "list_flows" | "list_queues" => (READ, Filtered),
        "get_job" | "get_job_state" | "get_job_result" => (READ, Of),
        "create_job" | "pause_job" | "resume_job" | "cancel_job" => (ACT, Of),
        "get_flow" | "check_flow" | "get_queue" | "list_tasks" | "count_tasks" | "get_task"
        | "list_events" | "list_logs" | "list_members" | "explain_task" => (READ, Of),
        "acknowledge_alarm" | "resolve_alarm" | "apply_devices" | "apply_device" | "remove_device"
        | "unlock_device" | "campaign" | "resign" | "set_limit" | "remove_limit" | "release_lock"
        | "skip_queue" | "start_rollout" | "remove_rollout" | "abort_rollout" | "pause_rollout"
        | "resume_rollout" | "apply_trigger" | "receive_webhook" | "remove_trigger" | "fire_trigger"
        | "pause_trigger" | "resume_trigger" => (ACT, None),
        "pause_queue" | "resume_queue" | "submit_task" | "submit_batch" | "change_tasks" | "cancel_task"
        | "pause_task" | "resume_task" | "rerun_task" | "send_signal" | "resolve_step" => (ACT, Of),
        "apply_flow" | "list_audit_log" | "list_tokens" | "create_token" | "revoke_token" => (RULE, None),
        "get_attempt" | "exchange" => (WORK, Of),
        _ => return Option::None,
    })
}

/// A request to an operation about a target. `number` makes names and sessions that no other request has.
pub(super) fn request(id: &str, method: &str, path: &str, target: &Target, number: u64) -> Request<Body> {
    let name = match id {
        _ if path.starts_with("/v1/flows/") => target.flow,
        "get_queue" | "pause_queue" | "resume_queue" => target.queue,
        "send_signal" => "go",
        "receive_webhook" => "unsigned",
        _ => "nobody",
    };
    let task = if path.starts_with("/v1/tasks/") { target.task.as_str() } else { "none" };
    let mut path = path
        .replace("{name}", name)
        .replace("{id}", task)
        .replace("{step}", "one")
        .replace("{token}", &target.attempt);
    if matches!(id, "list_tasks" | "count_tasks") {
        path.push_str(&format!("?flow={}", target.flow));
    }
    if path.starts_with("/api/asyncwork") && id != "create_job" {
        path.push_str(&format!("?jobId={}", target.task));
    }
    let method: Method = method.to_uppercase().parse().unwrap();
    match body(id, target, number) {
        Some(body) => json_request(method, &path, &body.to_string()),
        Option::None => Request::builder().method(method).uri(path).body(Body::empty()).unwrap(),
    }
}

fn body(id: &str, target: &Target, number: u64) -> Option<Value> {
    let steps = json!([{ "name": "one", "run": format!("{}.do", target.queue) }]);
    Some(match id {
        "check_flow" | "apply_flow" => json!({ "flow": target.flow, "steps": steps }),
        "submit_task" => json!({ "flow": target.flow }),
        "create_job" => json!({ "name": target.flow }),
        "submit_batch" => json!({ "tasks": [{ "flow": target.flow }] }),
        "change_tasks" => json!({ "action": "pause", "filter": { "flow": target.flow } }),
        "exchange" => exchange(u8::try_from(number % 200).unwrap(), 1 + number, &[target.queue], 0),
        "campaign" => {
            json!({ "campaign": "00000000-0000-4000-8000-000000000001", "id": "c", "lease_ms": 2000, "wait_ms": 0 })
        }
        "resign" => json!({ "campaign": "00000000-0000-4000-8000-000000000001" }),
        "create_token" => json!({ "name": format!("t-{number}"), "role": "viewer" }),
        "set_limit" => json!({ "queue": target.queue, "running": 3 }),
        "release_lock" | "unlock_device" | "skip_queue" => json!({ "reason": "a test" }),
        "resolve_step" => json!({ "action": "retry" }),
        "apply_devices" => json!({ "devices": [] }),
        "apply_device" | "start_rollout" | "apply_trigger" => json!({}),
        _ => return Option::None,
    })
}
