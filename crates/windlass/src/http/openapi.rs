//! `GET /openapi.json`: the contract, gathered from the handlers and the documents of `windlass_api`.

use std::sync::{Arc, OnceLock};

use axum::{body::Bytes, http::StatusCode, response::Response};
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App, alarms, answer::bytes_response, exchange, flows, health, leaders, limits, locks, metrics, queues,
    servers, tasks, tasks::classic::ClassicTask, workers,
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
        (name = "limits", description = "How many attempts may run concurrently, and start per span of time"),
        (name = "locks", description = "Who has which lock"),
        (name = "leaders", description = "Processes of which one at a time holds a name"),
        (name = "alarms", description = "What an operator must see"),
        (name = "server", description = "The server itself, and others on its store"),
    ),
    components(schemas(ClassicTask, windlass_api::StepMessage, windlass_api::ResultMessage))
)]
struct Contract;

/// Every endpoint: its handler and its part of the contract.
pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Contract::openapi())
        .merge(tasks::routes())
        .merge(flows::routes())
        .merge(exchange::routes())
        .merge(workers::routes())
        .merge(queues::routes())
        .merge(limits::routes())
        .merge(locks::routes())
        .merge(leaders::routes())
        .merge(alarms::routes())
        .merge(servers::routes())
        .merge(health::routes())
        .routes(routes!(metrics::scrape))
        .routes(routes!(show))
}

/// The contract as pretty JSON, with a newline at the end.
#[must_use]
pub fn document() -> String {
    // It is made of what the compiler has seen, so it can always be written.
    let mut document = router().into_openapi().to_pretty_json().unwrap_or_default();
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
