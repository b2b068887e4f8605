//! Refusals: from whatever went wrong to one `application/problem+json` answer.

use std::fmt;

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use windlass_api::{Problem, ProblemError};

use crate::http::answer::json_response;

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
    /// A header that goes with it.
    header: Option<(HeaderName, HeaderValue)>,
}

impl Refused {
    pub(super) fn new(status: StatusCode, name: &str, title: &str, detail: impl Into<String>) -> Self {
        let problem = Problem::new(status.as_u16(), name, title, detail);
        Self(Box::new(Inner { problem, is_temporary: false, header: None }))
    }

    pub(super) fn temporary(mut self) -> Self {
        self.0.is_temporary = true;
        self
    }

    /// The same, with a header.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// The same, with the place in the document it is about.
    pub(crate) fn at(mut self, line: Option<u64>, column: Option<u64>) -> Self {
        self.0.problem.line = line;
        self.0.problem.column = column;
        self
    }

    /// The same, with all mistakes in the document.
    pub(crate) fn with_errors(mut self, errors: Vec<ProblemError>) -> Self {
        self.0.problem.errors = errors;
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

    /// The request has no valid access token. `challenge` is the header that asks for one.
    pub(crate) fn unauthorized(detail: impl Into<String>, challenge: HeaderValue) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "A valid access token is missing", detail)
            .with(header::WWW_AUTHENTICATE, challenge)
    }

    /// The access token was revoked while the request waited.
    pub(crate) fn revoked() -> Self {
        let challenge = HeaderValue::from_static("Bearer realm=\"windlass\", error=\"invalid_token\"");
        Self::unauthorized("the access token was revoked or has expired while the request waited", challenge)
    }

    /// The access token does not allow it.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "The access token does not allow this", detail)
    }

    /// Too many access tokens of this client were refused.
    pub(crate) fn too_many_failures(seconds: u16) -> Self {
        let detail = format!(
            "too many access tokens from this address were refused: send a valid one, or wait {seconds} s"
        );
        let status = StatusCode::TOO_MANY_REQUESTS;
        Self::new(status, "too-many-failures", "Too many access tokens were refused", detail)
            .with(header::RETRY_AFTER, seconds.into())
    }

    /// An access token cannot be revoked while it is in the file with the token of an admin.
    pub(crate) fn token_of_file(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "token-of-file",
            "The access token is in a file of the server",
            detail,
        )
    }

    /// An access token cannot work as it is described.
    pub(crate) fn unusable_token(detail: impl Into<String>) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self::new(status, "unusable-token", "The access token cannot work", detail)
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
        let detail = format!("there is nothing at {path}; GET /openapi.json lists the endpoints");
        Self::new(StatusCode::NOT_FOUND, "not-found", "There is nothing at this address", detail)
    }

    /// The address does not know the method. The header `Allow` is added by the router.
    pub(crate) fn method_not_allowed(method: &str, path: &str) -> Self {
        let detail = format!("{path} does not know {method}; the header `Allow` lists the methods it has");
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

    /// The server does not serve the job API.
    pub(crate) fn no_job_api() -> Self {
        let detail =
            "this server has no job API: add the section [asyncwork] with `flow` to its configuration file";
        Self::new(StatusCode::NOT_FOUND, "no-job-api", "The server has no job API", detail)
    }

    /// There is no job of this id.
    pub(crate) fn unknown_job(id: impl fmt::Display) -> Self {
        let detail = format!("there is no job {id}");
        Self::new(StatusCode::NOT_FOUND, "unknown-job", "There is no such job", detail)
    }

    /// The job has no result.
    pub(crate) fn no_job_result(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "no-job-result", "The job has no result", detail)
    }

    /// The broker did not confirm the event of a job in time.
    pub(crate) fn event_not_confirmed(detail: impl Into<String>) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "event-not-confirmed", "The broker did not confirm the event", detail).temporary()
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

    /// A device cannot be used as it is declared.
    pub(crate) fn unusable_device(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unusable-device", "The device cannot be used", detail)
    }

    /// Nobody leads.
    pub(crate) fn no_leader(name: &str) -> Self {
        let detail = format!(
            "nobody leads {name:?}: no candidate campaigns, the lease of the last leader is over, or a task or damage keeps its lock (GET /v1/locks shows that)"
        );
        Self::new(StatusCode::NOT_FOUND, "no-leader", "Nobody leads", detail)
    }

    /// A limit limits nothing, or everything.
    pub(crate) fn unusable_limit(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "unusable-limit", "The limit cannot be used", detail)
    }

    /// It cannot be done as things are now.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "This cannot be done now", detail)
    }

    /// There is no rollout of this name.
    pub(crate) fn unknown_rollout(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown-rollout", "There is no such rollout", detail)
    }

    /// A rollout cannot do what its definition says.
    pub(crate) fn unusable_rollout(detail: impl Into<String>) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self::new(status, "unusable-rollout", "The rollout cannot work", detail)
    }

    /// There is no trigger of this name.
    pub(crate) fn unknown_trigger(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown-trigger", "There is no such trigger", detail)
    }

    /// A trigger cannot do what its definition says.
    pub(crate) fn unusable_trigger(detail: impl Into<String>) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self::new(status, "unusable-trigger", "The trigger cannot work", detail)
    }

    /// A request to a trigger is not signed, or not by whom it should be.
    pub(crate) fn invalid_signature(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid-signature", "The signature is missing or wrong", detail)
    }

    /// A request to a trigger was signed too long ago, or in the future.
    pub(crate) fn outdated_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "outdated-request", "The request is too old", detail)
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

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Inner { mut problem, is_temporary, header: own } = *self.0;
        let instance = uuid::Uuid::new_v4().urn().to_string();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A refusal is the client's to handle; only what is wrong with the server itself is said here.
        if status.is_server_error() && problem.name() != SHUTTING_DOWN {
            tracing::warn!(status = problem.status, kind = problem.name(), detail = %problem.detail, instance, "a request failed");
        } else {
            tracing::debug!(
                status = problem.status,
                kind = problem.name(),
                instance,
                "a request was refused"
            );
        }
        problem.instance = Some(instance);
        let mut response = json_response(status, &problem);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if is_temporary {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
        }
        headers.extend(own);
        response
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.problem.fmt(f)
    }
}
