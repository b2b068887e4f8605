//! `GET /openapi.json`: the contract, gathered from the handlers and the documents of `windlass_api`.

use std::sync::{Arc, OnceLock};

use axum::{
    body::Bytes,
    http::{Method, StatusCode},
    response::Response,
};
use serde_json::Value;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        Content, OpenApi as Document, PathItem, Ref, ResponseBuilder,
        path::Operation,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    App, alarms, answer::bytes_response, audit, device_messages, devices, exchange, flows, health, jobs,
    leaders, limits, locks, metrics, queues, rollouts, servers, tasks, tasks::classic::ClassicTask,
    tasks::classic_queue::ClassicQueue, tokens, triggers, workers,
};
use crate::schema;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Windlass",
        description = "A durable engine for multi-step asynchronous tasks. Times are RFC 3339 in UTC, refusals are \
                       `application/problem+json`."
    ),
    modifiers(&Bearer),
    tags(
        (name = "tasks", description = "Starting tasks, looking at them, steering them"),
        (name = "jobs", description = "The job API, for clients of `/api/asyncwork`"),
        (name = "flows", description = "The catalogue of flows"),
        (name = "workers", description = "Doing the work"),
        (name = "queues", description = "The work of each module"),
        (name = "limits", description = "How many attempts may run concurrently, and start per span of time"),
        (name = "locks", description = "Who has which lock"),
        (name = "leaders", description = "Processes of which one at a time holds a name"),
        (name = "devices", description = "Devices, their presence and who has them"),
        (name = "rollouts", description = "A flow for each device of a fleet, a few at a time"),
        (name = "triggers", description = "What starts tasks by itself: schedules, and requests"),
        (name = "tokens", description = "Access tokens: who may do what"),
        (name = "audit", description = "Who changed what"),
        (name = "alarms", description = "What an operator must see"),
        (name = "server", description = "The server itself, and others on its store"),
    ),
    components(schemas(
        ClassicTask,
        ClassicQueue,
        windlass_api::ClassicDevice,
        windlass_api::ClassicJobStarted,
        windlass_api::JobEvent,
        windlass_api::StepMessage,
        windlass_api::ResultMessage
    ))
)]
struct Contract;

/// Access tokens, which a server may ask for with each request.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Document) {
        const NAME: &str = "access_token";
        let description = "An access token, where the server asks for them. /healthz, /readyz, /openapi.json and signed requests to \
                           triggers need none.";
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description)).build();
        document.components.get_or_insert_default().add_security_scheme(NAME, SecurityScheme::Http(scheme));
        let required = SecurityRequirement::new::<_, _, &str>(NAME, []);
        document.security = Some(vec![SecurityRequirement::default(), required]);
    }
}

/// Every endpoint: its handler and its part of the contract.
pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Contract::openapi())
        .merge(tasks::routes())
        .merge(jobs::routes())
        .merge(flows::routes())
        .merge(exchange::routes())
        .merge(workers::routes())
        .merge(queues::routes())
        .merge(limits::routes())
        .merge(locks::routes())
        .merge(leaders::routes())
        .merge(devices::routes())
        .merge(device_messages::routes())
        .merge(rollouts::routes())
        .merge(triggers::routes())
        .merge(tokens::routes())
        .merge(audit::routes())
        .merge(alarms::routes())
        .merge(servers::routes())
        .merge(health::routes())
        .routes(routes!(metrics::scrape))
        .routes(routes!(show))
}

/// The endpoints of the job API, and `/healthz`.
pub(super) fn jobs_router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().merge(jobs::routes()).merge(health::routes())
}

/// The contract as pretty JSON, with a newline at the end.
#[must_use]
pub fn document() -> String {
    let mut contract = router().into_openapi();
    add_refusals(&mut contract);
    // It is made of what the compiler has seen, so it can always be written.
    let mut document = serde_json::to_value(contract).unwrap_or_default();
    name_lists(&mut document);
    schema::to_text(&document)
}

/// Every operation of `/v1` refuses with a problem, also with a status that its description does not list.
fn add_refusals(contract: &mut Document) {
    let problem = Content::new(Some(Ref::from_schema_name("Problem")));
    let refusal = ResponseBuilder::new()
        .description("A refusal, or a failure of the server")
        .content("application/problem+json", problem)
        .build();
    for (_, item) in contract.paths.paths.iter_mut().filter(|(path, _)| path.starts_with("/v1/")) {
        for operation in operations_mut(item) {
            operation.responses.responses.insert("default".to_owned(), refusal.clone().into());
        }
    }
}

/// The operations of a path, by the methods that the server knows.
pub(super) fn operations(item: &PathItem) -> impl Iterator<Item = (Method, &Operation)> {
    let PathItem { get, put, post, delete, .. } = item;
    let methods = [(Method::GET, get), (Method::PUT, put), (Method::POST, post), (Method::DELETE, delete)];
    methods.into_iter().filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}

/// The same, to change them.
fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, .. } = item;
    [get, put, post, delete].into_iter().flatten()
}

/// The pages of lists are called `TaskList` and not `List_Task`, because generated SDKs have types of these names.
fn name_lists(value: &mut Value) {
    let named = |name: &str| name.strip_prefix("List_").map(|item| format!("{item}List"));
    match value {
        Value::Object(members) => {
            for (name, mut value) in std::mem::take(members) {
                name_lists(&mut value);
                members.insert(named(&name).unwrap_or(name), value);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(name_lists),
        Value::String(text) => {
            const SCHEMAS: &str = "#/components/schemas/";
            if let Some(name) = text.strip_prefix(SCHEMAS).and_then(named) {
                *text = format!("{SCHEMAS}{name}");
            }
        }
        _ => {}
    }
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
