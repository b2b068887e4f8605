//! Refusals: from whatever went wrong to one `application/problem+json` answer.

use std::fmt;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use windlass_api::Problem;
use windlass_core::{AlarmRejection, Rejection};
use windlass_engine::{EngineError, ports::StoreError};

use super::json_response;
use crate::flowfile::FlowError;

/// How long a client should wait before it tries again what the server could not do just now.
const RETRY_AFTER_SECONDS: u16 = 1;

/// Name of the problem of a server that is on its way down.
const SHUTTING_DOWN: &str = "shutting-down";

/// A request that was refused; nothing was changed by it.
pub(crate) struct Refused(Box<Inner>);

struct Inner {
    problem: Problem,
    /// Whether the same request can succeed a little later.
    is_temporary: bool,
}

impl Refused {
    fn new(status: StatusCode, name: &str, title: &str, detail: impl Into<String>) -> Self {
        let problem = Problem::new(status.as_u16(), name, title, detail);
        Self(Box::new(Inner { problem, is_temporary: false }))
    }

    fn temporary(mut self) -> Self {
        self.0.is_temporary = true;
        self
    }

    /// The same, with the place in the document it is about.
    pub(crate) fn at(mut self, line: Option<u64>, column: Option<u64>) -> Self {
        self.0.problem.line = line;
        self.0.problem.column = column;
        self
    }

    /// Whether the same request can succeed a little later.
    pub(crate) fn is_temporary(&self) -> bool {
        self.0.is_temporary || self.0.problem.status >= 500
    }

    /// What is wrong, without the rest.
    pub(crate) fn problem(self) -> Problem {
        self.0.problem
    }

    /// The request cannot be understood.
    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", "The request cannot be understood", detail)
    }

    /// The document or a part of it is larger than it may be.
    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The request is too large", detail)
    }

    /// The body did not come in time.
    pub(crate) fn too_slow(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "The request did not come in time", detail)
    }

    /// The body is in a format that is not read here.
    pub(crate) fn unsupported_media_type(detail: impl Into<String>) -> Self {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Self::new(status, "unsupported-media-type", "The format of the body is not read here", detail)
    }

    /// There is nothing at this address.
    pub(crate) fn not_found(path: &str) -> Self {
        let detail = format!("there is nothing at {path}; GET /openapi.json tells what there is");
        Self::new(StatusCode::NOT_FOUND, "not-found", "There is nothing at this address", detail)
    }

    /// The address does not know the method. The header `Allow` is added by the router.
    pub(crate) fn method_not_allowed(method: &str, path: &str) -> Self {
        let detail = format!("{path} does not know {method}; the header `Allow` tells what it knows");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "The method is not allowed", detail)
    }

    /// The request names a host that this server is not.
    pub(crate) fn misdirected(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", "The request is for another host", detail)
    }

    /// A page of another site asks for a change.
    pub(crate) fn foreign_origin(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "foreign-origin", "The request comes from another site", detail)
    }

    /// There is no task of this id.
    pub(crate) fn unknown_task(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown-task", "There is no such task", detail)
    }

    /// The task has no step of this name.
    pub(crate) fn unknown_step(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown-step", "The task has no such step", detail)
    }

    /// A token names no attempt that is still to be made.
    pub(crate) fn unknown_attempt() -> Self {
        let detail =
            "this token names no attempt that is still to be made: acknowledge its message and leave it";
        Self::new(StatusCode::NOT_FOUND, "unknown-attempt", "There is no such attempt", detail)
    }

    /// There is no flow of this name and version.
    pub(crate) fn unknown_flow(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown-flow", "There is no such flow", detail)
    }

    /// There is no queue of this name.
    pub(crate) fn unknown_queue(name: &str) -> Self {
        let detail = format!(
            "there is no queue {name:?}: there is one per module that a flow names or a worker serves; \
             GET /v1/queues lists them"
        );
        Self::new(StatusCode::NOT_FOUND, "unknown-queue", "There is no such queue", detail)
    }

    /// There is no limit of this name.
    pub(crate) fn unknown_limit(name: &str) -> Self {
        let detail = format!("there is no limit {name:?}: GET /v1/limits lists them");
        Self::new(StatusCode::NOT_FOUND, "unknown-limit", "There is no such limit", detail)
    }

    /// A limit limits nothing, or everything.
    pub(crate) fn unusable_limit(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unusable-limit", "The limit cannot be used", detail)
    }

    /// It cannot be done as things are now.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "This cannot be done now", detail)
    }

    /// The server is on its way down.
    pub(crate) fn shutting_down() -> Self {
        let detail = "the server is shutting down: try again, here or with another server of the same store";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, SHUTTING_DOWN, "The server is shutting down", detail)
            .temporary()
    }

    /// The bodies that are being read take all the memory they may.
    pub(crate) fn too_many_bodies() -> Self {
        let detail = "the bodies of other requests take all the memory there is for them: try again after the \
                      seconds in `Retry-After`, with smaller bodies if it stays so";
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too-many-bodies",
            "Too much is being sent at once",
            detail,
        )
        .temporary()
    }

    /// Every connection is in use.
    pub(crate) fn too_many_connections() -> Self {
        let detail = "every connection of the server is in use, and the last ones are for health checks and for workers \
                      that it knows: try again after the seconds in `Retry-After`";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "too-many-connections", "Too many connections are open", detail).temporary()
    }

    /// The server did something it must not do.
    pub(crate) fn fault(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "engine-fault", "The server is at fault", detail)
    }
}

impl From<EngineError> for Refused {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::UnknownFlow(name) => {
                Self::unknown_flow(format!("there is no flow {name}: apply it with PUT /v1/flows/NAME"))
            }
            EngineError::UnknownTask(id) => Self::unknown_task(format!(
                "there is no task {id}: GET /v1/tasks lists those there are. Ended tasks are deleted after their retention; if it should be there, look for the alarm store_went_back"
            )),
            EngineError::UnknownAlarm(id) => Self::new(
                StatusCode::NOT_FOUND,
                "unknown-alarm",
                "There is no such alarm",
                format!("there is no alarm {id}; GET /v1/alarms?all=true lists those there are"),
            ),
            EngineError::UnknownLock(name) => Self::new(
                StatusCode::NOT_FOUND,
                "unknown-lock",
                "Nobody has this lock",
                format!("nobody has the lock {name}; GET /v1/locks lists those that somebody has"),
            ),
            EngineError::NoUniqueKey { .. } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "no-unique-key",
                "The task has no key by which it is unique",
                error.to_string(),
            ),
            EngineError::UniqueConflict { flow, task } => Self::new(
                StatusCode::CONFLICT,
                "unique-conflict",
                "A task with the same unique key exists",
                format!(
                    "task {task} of the flow {flow} has the same unique key, and the flow says `on_conflict: fail`: nothing \
                     was started; wait until that task has ended"
                ),
            ),
            EngineError::KeyReused { task } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency-key-reused",
                "The idempotency key was used for something else",
                format!(
                    "this idempotency key was used for task {task} with another body: use a new key for each task, \
                     and the same body when you repeat a request"
                ),
            ),
            EngineError::KeyWithoutTask { task } => Self::conflict(format!(
                "this idempotency key was used for task {task}, which is not there: it was deleted after its end, or is \
                 just being taken in; try again, or use a new key to start a new task"
            ))
            .temporary(),
            EngineError::Rejected(rejection) => rejection.into(),
            EngineError::LockRejected(rejection) => Self::conflict(rejection.to_string()),
            EngineError::AlarmRejected(AlarmRejection::Unknown) => {
                Self::fault("an alarm was told something early")
            }
            EngineError::AlarmRejected(AlarmRejection::Resolved) => {
                Self::conflict("the alarm is resolved already")
            }
            EngineError::RerunRefused(refusal) => Self::conflict(refusal.to_string()),
            EngineError::Overloaded => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "overloaded",
                "Too much is waiting",
                "too many requests wait to be written: try again after the seconds in `Retry-After`",
            )
            .temporary(),
            error @ EngineError::SeqLeap { .. } => Self::malformed(error.to_string()),
            EngineError::Conflict => {
                Self::conflict("others changed it at the same time: look at it again, and try again")
                    .temporary()
            }
            EngineError::Store(error) => error.into(),
        }
    }
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::UnknownAct => Self::unknown_step("the task has no such step"),
            Rejection::Ended => {
                Self::conflict("the task has ended: nothing can be changed about it any more")
            }
            Rejection::NothingToResolve(step) => Self::conflict(format!(
                "step {step} does not wait for a decision: only stuck and held steps can be resolved, and \
                 `retry` ends the wait for the next attempt; \
                 GET /v1/tasks/ID/why tells what the task waits for"
            )),
            rejection @ Rejection::UnknownSignal(_) => {
                Self::new(StatusCode::NOT_FOUND, "unknown-signal", "No such signal", rejection.to_string())
            }
            rejection @ Rejection::TooMuchToEvaluate => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "too-much-to-evaluate",
                "The expressions of the flow take too long",
                rejection.to_string(),
            ),
            rejection @ (Rejection::AlreadyRollingBack(_)
            | Rejection::NobodyWaits(_)
            | Rejection::SignalDone(_)
            | Rejection::TooManySignals
            | Rejection::ListInUse { .. }
            | Rejection::DoneTooEarly(_)
            | Rejection::Duplicate
            | Rejection::Stale
            | Rejection::NothingDue) => Self::conflict(rejection.to_string()),
            Rejection::Fault(fault) => {
                Self::fault(format!("the engine refused to break an invariant: {fault}"))
            }
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full(why) => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "store-full",
                "The store is full",
                format!("the store is full ({why}): nothing was changed; make room on its disk"),
            ),
            StoreError::Unavailable(why) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The store is not available",
                format!("the store is not available ({why}): nothing is known to be changed; try again"),
            )
            .temporary(),
            StoreError::Outgrown(why) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The store is not available",
                format!("this server is too old for its store and ends ({why}): ask another one"),
            )
            .temporary(),
            StoreError::Damaged(why) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "store-damaged",
                "The store is damaged",
                format!(
                    "a row of the store is damaged ({why}): run `windlass doctor` on the store, and restore the task from a backup"
                ),
            ),
        }
    }
}

impl From<FlowError> for Refused {
    fn from(error: FlowError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-flow", "The flow is not valid", error.message)
            .at(error.line, error.column)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Inner { problem, is_temporary } = *self.0;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A refusal is the client's to handle; only what is wrong with the server itself is said here.
        if status.is_server_error() && problem.name() != SHUTTING_DOWN {
            tracing::warn!(status = problem.status, kind = problem.name(), detail = %problem.detail, "a request failed");
        }
        let mut response = json_response(status, &problem);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if is_temporary {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
        }
        response
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.problem.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{AlarmId, LockRejection, Name, TaskId};
    use windlass_engine::RerunRefusal;

    use super::*;

    #[test]
    fn every_error_of_the_engine_has_its_answer() {
        let why = || "why".to_owned();
        let cases = [
            (EngineError::UnknownFlow(why()), 404, "unknown-flow", false),
            (EngineError::UnknownTask(TaskId(1)), 404, "unknown-task", false),
            (EngineError::UnknownAlarm(AlarmId("a".into())), 404, "unknown-alarm", false),
            (EngineError::UnknownLock(Name::new("a").expect("a name")), 404, "unknown-lock", false),
            (EngineError::LockRejected(LockRejection::Free), 409, "conflict", false),
            (
                EngineError::UniqueConflict { flow: Name::new("f").expect("a name"), task: TaskId(1) },
                409,
                "unique-conflict",
                false,
            ),
            (EngineError::KeyReused { task: TaskId(1) }, 422, "idempotency-key-reused", false),
            (EngineError::KeyWithoutTask { task: TaskId(1) }, 409, "conflict", true),
            (EngineError::Rejected(Rejection::Ended), 409, "conflict", false),
            (EngineError::Rejected(Rejection::NothingToResolve(why())), 409, "conflict", false),
            (EngineError::Rejected(Rejection::AlreadyRollingBack(why())), 409, "conflict", false),
            (EngineError::Rejected(Rejection::UnknownAct), 404, "unknown-step", false),
            (EngineError::Rejected(Rejection::TooMuchToEvaluate), 422, "too-much-to-evaluate", false),
            (EngineError::Rejected(Rejection::Fault(why())), 500, "engine-fault", false),
            (EngineError::AlarmRejected(AlarmRejection::Resolved), 409, "conflict", false),
            (EngineError::RerunRefused(RerunRefusal::NotEnded), 409, "conflict", false),
            (EngineError::SeqLeap { last: 1, seq: u64::MAX }, 400, "malformed", false),
            (EngineError::Overloaded, 429, "overloaded", true),
            (EngineError::Conflict, 409, "conflict", true),
            (EngineError::Store(StoreError::Full(why())), 507, "store-full", false),
            (EngineError::Store(StoreError::Unavailable(why())), 503, "store-unavailable", true),
            (EngineError::Store(StoreError::Outgrown(why())), 503, "store-unavailable", true),
            (EngineError::Store(StoreError::Damaged(why())), 500, "store-damaged", false),
        ];
        for (error, status, name, is_temporary) in cases {
            let refused = Refused::from(error.clone());
            assert_eq!(refused.0.problem.name(), name, "{error:?}");
            let response = refused.into_response();
            assert_eq!(response.status().as_u16(), status, "{error:?}");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), is_temporary, "{error:?}");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        }
    }
}
