//! Who may do what: every operation with the role that it needs and what its scope is. The only place that says so.
//!
//! An operation that is not here is refused, whatever the token. The tests take every operation of `openapi.json` through
//! every role, in scope and out of it.

use std::{collections::HashMap, sync::OnceLock};

use axum::http::Method;
use windlass_engine::AccessRole;

/// What an operation asks of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) need: Need,
    pub(crate) scoped: Scoped,
}

/// The role that an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// No token: it shows nothing that a stranger may not know.
    Nothing,
    /// The signature of a trigger that checks one; the role of an operator otherwise.
    Signature,
    /// To read.
    Viewer,
    /// To act.
    Operator,
    /// To change flows and access tokens.
    Admin,
    /// To do the work.
    Worker,
}

/// What an operation is about, and so what a token must not be limited away from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scoped {
    /// The server as a whole, or things that belong to no queue and no flow: only for tokens that are not limited.
    Server,
    /// The flow in the path.
    FlowInPath,
    /// The queue in the path.
    QueueInPath,
    /// The flow of the task in the path.
    TaskInPath,
    /// The flow that the query filters by: a limited token must filter.
    FlowInQuery,
    /// The flow of the job in the query.
    JobInQuery,
    /// What is in the body. The handler asks [`Grant`](super::Grant) once it has read it.
    Body,
    /// What is in the answer. The handler leaves out what [`Grant`](super::Grant) does not have.
    Answer,
}

impl Need {
    /// Whether a role is enough.
    pub(crate) fn is_met_by(self, role: AccessRole) -> bool {
        use AccessRole::{Admin, Operator, Viewer, Worker};
        match self {
            Self::Nothing => true,
            Self::Viewer => matches!(role, Viewer | Operator | Admin),
            Self::Operator | Self::Signature => matches!(role, Operator | Admin),
            Self::Admin => role == Admin,
            Self::Worker => matches!(role, Worker | Admin),
        }
    }

    /// The least role that is enough, for messages.
    pub(crate) fn role(self) -> &'static str {
        match self {
            Self::Nothing | Self::Viewer => "viewer",
            Self::Operator | Self::Signature => "operator",
            Self::Admin => "admin",
            Self::Worker => "worker",
        }
    }
}

use Need::{Admin, Nothing, Operator, Signature, Viewer, Worker};
use Scoped::{Answer, Body, FlowInPath, FlowInQuery, JobInQuery, QueueInPath, Server, TaskInPath};

/// The table, in the order of `openapi.json`.
const TABLE: &[(&str, &str, Need, Scoped)] = &[
    ("GET", "/api/asyncwork", Viewer, JobInQuery),
    ("POST", "/api/asyncwork", Operator, Body),
    ("POST", "/api/asyncwork/cancel", Operator, JobInQuery),
    ("POST", "/api/asyncwork/pause", Operator, JobInQuery),
    ("GET", "/api/asyncwork/result", Viewer, JobInQuery),
    ("POST", "/api/asyncwork/resume", Operator, JobInQuery),
    ("GET", "/api/asyncwork/state", Viewer, JobInQuery),
    ("GET", "/healthz", Nothing, Server),
    ("GET", "/metrics", Viewer, Server),
    ("GET", "/openapi.json", Nothing, Server),
    ("GET", "/readyz", Nothing, Server),
    ("GET", "/v1/alarms", Viewer, Server),
    ("POST", "/v1/alarms/{id}/acknowledge", Operator, Server),
    ("POST", "/v1/alarms/{id}/resolve", Operator, Server),
    ("GET", "/v1/audit", Admin, Server),
    ("GET", "/v1/device-messages", Viewer, Server),
    ("GET", "/v1/devices", Viewer, Server),
    ("POST", "/v1/devices", Operator, Server),
    ("GET", "/v1/devices/{name}", Viewer, Server),
    ("PUT", "/v1/devices/{name}", Operator, Server),
    ("DELETE", "/v1/devices/{name}", Operator, Server),
    ("GET", "/v1/devices/{name}/log", Viewer, Server),
    ("POST", "/v1/devices/{name}/unlock", Operator, Server),
    ("GET", "/v1/flows", Viewer, Answer),
    ("POST", "/v1/flows/check", Viewer, Body),
    ("GET", "/v1/flows/{name}", Viewer, FlowInPath),
    // A flow says which queues and flows its tasks use, so a limited token would no longer be limited.
    ("PUT", "/v1/flows/{name}", Admin, Server),
    ("GET", "/v1/leaders/{name}", Viewer, Server),
    ("POST", "/v1/leaders/{name}", Operator, Server),
    ("POST", "/v1/leaders/{name}/resign", Operator, Server),
    ("GET", "/v1/limits", Viewer, Server),
    ("GET", "/v1/limits/{name}", Viewer, Server),
    ("PUT", "/v1/limits/{name}", Operator, Server),
    ("DELETE", "/v1/limits/{name}", Operator, Server),
    ("GET", "/v1/locks", Viewer, Server),
    ("GET", "/v1/locks/{name}", Viewer, Server),
    ("POST", "/v1/locks/{name}/release", Operator, Server),
    ("GET", "/v1/queues", Viewer, Answer),
    ("GET", "/v1/queues/{name}", Viewer, QueueInPath),
    ("POST", "/v1/queues/{name}/pause", Operator, QueueInPath),
    ("POST", "/v1/queues/{name}/resume", Operator, QueueInPath),
    // An exclusive queue is a lock that tasks of any flow may have, not the queue of a module.
    ("POST", "/v1/queues/{name}/skip", Operator, Server),
    ("GET", "/v1/rollouts", Viewer, Server),
    ("GET", "/v1/rollouts/{name}", Viewer, Server),
    ("PUT", "/v1/rollouts/{name}", Operator, Server),
    ("DELETE", "/v1/rollouts/{name}", Operator, Server),
    ("POST", "/v1/rollouts/{name}/abort", Operator, Server),
    ("GET", "/v1/rollouts/{name}/history", Viewer, Server),
    ("POST", "/v1/rollouts/{name}/pause", Operator, Server),
    ("POST", "/v1/rollouts/{name}/resume", Operator, Server),
    ("GET", "/v1/servers", Viewer, Server),
    ("GET", "/v1/tasks", Viewer, FlowInQuery),
    ("POST", "/v1/tasks", Operator, Body),
    ("POST", "/v1/tasks/batch", Operator, Body),
    ("POST", "/v1/tasks/bulk", Operator, Body),
    ("GET", "/v1/tasks/counts", Viewer, FlowInQuery),
    ("GET", "/v1/tasks/{id}", Viewer, TaskInPath),
    ("POST", "/v1/tasks/{id}/cancel", Operator, TaskInPath),
    ("GET", "/v1/tasks/{id}/events", Viewer, TaskInPath),
    ("GET", "/v1/tasks/{id}/logs", Viewer, TaskInPath),
    ("POST", "/v1/tasks/{id}/pause", Operator, TaskInPath),
    ("POST", "/v1/tasks/{id}/rerun", Operator, TaskInPath),
    ("POST", "/v1/tasks/{id}/resume", Operator, TaskInPath),
    ("POST", "/v1/tasks/{id}/signals/{name}", Operator, TaskInPath),
    ("GET", "/v1/tasks/{id}/steps/{step}/members", Viewer, TaskInPath),
    ("POST", "/v1/tasks/{id}/steps/{step}/resolve", Operator, TaskInPath),
    ("GET", "/v1/tasks/{id}/why", Viewer, TaskInPath),
    ("GET", "/v1/tokens", Admin, Server),
    ("POST", "/v1/tokens", Admin, Server),
    ("DELETE", "/v1/tokens/{name}", Admin, Server),
    ("GET", "/v1/triggers", Viewer, Server),
    ("GET", "/v1/triggers/{name}", Viewer, Server),
    ("PUT", "/v1/triggers/{name}", Operator, Server),
    ("POST", "/v1/triggers/{name}", Signature, Server),
    ("DELETE", "/v1/triggers/{name}", Operator, Server),
    ("POST", "/v1/triggers/{name}/fire", Operator, Server),
    ("GET", "/v1/triggers/{name}/history", Viewer, Server),
    ("POST", "/v1/triggers/{name}/pause", Operator, Server),
    ("POST", "/v1/triggers/{name}/resume", Operator, Server),
    ("GET", "/v1/worker/attempts/{token}", Worker, Answer),
    ("POST", "/v1/worker/exchange", Worker, Body),
    ("GET", "/v1/workers", Viewer, Server),
];

/// Operations that change something and have no entry in the audit log: they are what programs do all the time, and what comes
/// of them has its own history.
const UNAUDITED: &[(&str, &str)] = &[
    ("POST", "/api/asyncwork"),
    ("POST", "/v1/leaders/{name}"),
    ("POST", "/v1/leaders/{name}/resign"),
    ("POST", "/v1/tasks"),
    ("POST", "/v1/tasks/batch"),
    ("POST", "/v1/triggers/{name}"),
    ("POST", "/v1/worker/exchange"),
];

/// Whether the audit log records the changes of an operation.
pub(super) fn is_audited(method: &str, route: &str) -> bool {
    method != "GET" && !UNAUDITED.contains(&(method, route))
}

/// The rule of an operation. The route is as the router has it, with the names of its parts.
pub(super) fn rule(method: &Method, route: &str) -> Option<Rule> {
    static RULES: OnceLock<HashMap<(&'static str, &'static str), Rule>> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let rules =
            TABLE.iter().map(|&(method, route, need, scoped)| ((method, route), Rule { need, scoped }));
        rules.collect()
    });
    // The router answers HEAD with the handler of GET.
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    rules.get(&(method.as_str(), route)).copied()
}

/// The methods of a route, for the header `Allow`.
pub(super) fn methods(route: &str) -> Vec<&'static str> {
    TABLE.iter().filter(|(_, other, ..)| *other == route).map(|(method, ..)| *method).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn the_table_has_every_operation_and_no_other() {
        let document: Value = serde_json::from_str(&crate::http::document()).unwrap();
        let mut operations = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                operations.insert((method.to_uppercase(), path.clone()));
            }
        }
        let table: Vec<_> =
            TABLE.iter().map(|(method, route, ..)| ((*method).to_owned(), (*route).to_owned())).collect();
        assert_eq!(table.len(), operations.len(), "none is there twice");
        assert_eq!(table.into_iter().collect::<BTreeSet<_>>(), operations);
    }

    #[test]
    fn operations_that_are_not_audited_exist() {
        for (method, route) in UNAUDITED {
            assert!(TABLE.iter().any(|(other, of, ..)| (other, of) == (method, route)), "{method} {route}");
        }
        assert!(is_audited("DELETE", "/v1/tokens/{name}") && !is_audited("GET", "/v1/tokens"));
    }

    #[test]
    fn a_head_is_ruled_as_its_get() {
        let rule = |method| super::rule(&method, "/v1/tokens");
        assert_eq!(rule(Method::HEAD), Some(Rule { need: Admin, scoped: Server }));
        assert_eq!(rule(Method::PATCH), None);
        assert_eq!(methods("/v1/tokens"), ["GET", "POST"]);
    }

    #[test]
    fn only_admins_change_flows_and_tokens_and_read_the_audit_log_and_that_is_about_the_server() {
        for (method, route, need, scoped) in TABLE {
            let is_of_admins = (route.starts_with("/v1/flows/{") && *method == "PUT")
                || route.starts_with("/v1/tokens")
                || *route == "/v1/audit";
            assert_eq!(*need == Admin, is_of_admins, "{method} {route}");
            // Roles that cannot be limited need no scope.
            assert!(*need != Admin || *scoped == Server, "{method} {route}");
            assert!(
                *need != Viewer || *method == "GET" || *route == "/v1/flows/check",
                "{method} {route}: reads"
            );
        }
    }
}
