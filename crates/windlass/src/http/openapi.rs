//! `GET /openapi.json`: the contract, gathered from the handlers and the documents of `windlass_api`.

use std::sync::OnceLock;

use axum::{body::Bytes, http::StatusCode, response::Response};
use utoipa::OpenApi;

use super::{
    alarms, batch, bulk, bytes_response, classic, events, exchange, flows, health, limits, locks, logs,
    members, metrics, queues, rerun, resolve, servers, signals, submit, tasks, why, workers,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Windlass",
        description = "A durable engine for multi-step asynchronous tasks. Times are RFC 3339 in UTC, refusals are \
                       `application/problem+json`."
    ),
    tags(
        (name = "tasks", description = "Starting tasks, looking at them, steering them"),
        (name = "flows", description = "The catalogue of flows"),
        (name = "workers", description = "Doing the work"),
        (name = "queues", description = "The work of each module"),
        (name = "limits", description = "How much may be in hands at once, and begin"),
        (name = "locks", description = "Who has which lock"),
        (name = "alarms", description = "What a person must see"),
        (name = "server", description = "The server itself, and others on its store"),
    ),
    paths(
        submit::submit,
        batch::submit,
        bulk::change,
        tasks::list::list,
        tasks::counts::count,
        tasks::show,
        tasks::cancel,
        tasks::pause,
        tasks::resume,
        resolve::resolve,
        members::list,
        rerun::rerun,
        signals::send,
        events::events,
        logs::logs,
        why::why,
        flows::list,
        flows::show,
        flows::apply,
        flows::check,
        exchange::exchange,
        exchange::attempt::show,
        workers::list,
        queues::list,
        queues::show,
        queues::pause,
        queues::resume,
        limits::list,
        limits::show,
        limits::set,
        limits::remove,
        locks::list,
        locks::show,
        locks::release,
        alarms::list,
        alarms::acknowledge,
        alarms::resolve,
        servers::list,
        health::alive,
        health::ready,
        metrics::scrape,
        show,
    ),
    components(schemas(classic::ClassicTask, windlass_api::StepMessage, windlass_api::ResultMessage))
)]
struct Contract;

/// The contract as pretty JSON, with a newline at the end.
#[must_use]
pub fn document() -> String {
    // It is made of what the compiler has seen, so it can always be written.
    let mut document = Contract::openapi().to_pretty_json().unwrap_or_default();
    document.push('\n');
    document
}

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json", operation_id = "get_openapi",
    tag = "server",
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json"))
)]
pub(crate) async fn show() -> Response {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    bytes_response(StatusCode::OK, DOCUMENT.get_or_init(|| document().into()).clone())
}
