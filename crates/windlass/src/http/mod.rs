//! The HTTP interface: translates between requests and the engine, and has no rules of its own.
//!
//! ```text
//! serve ─▶ guard::around ─▶ one file per resource ─▶ Engine ─▶ view, classic, why ─▶ answer
//!                                    │                  │
//!                                    └──────────────────┴─▶ problem: every refusal, in one place
//! ```
//!
//! Documents are those of [`windlass_api`]; `openapi.rs` gathers the contract from the handlers.

mod adhoc;
mod alarms;
mod batch;
mod budget;
mod bulk;
mod canonical;
mod classic;
mod connections;
mod enqueued;
mod envelope;
mod events;
mod exchange;
pub(crate) mod extract;
mod flows;
mod guard;
mod health;
mod idempotency;
mod intake;
mod json_path;
mod limits;
mod locks;
mod logs;
pub(crate) mod malformed;
mod members;
mod metrics;
mod openapi;
mod page;
mod problem;
mod queues;
mod receive;
mod rerun;
mod resolve;
mod serve;
mod servers;
mod shutdown;
mod signals;
mod stages;
mod submit;
mod tasks;
pub(crate) mod view;
mod wait;
mod why;
mod words;
mod workers;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware,
    response::Response,
    routing::{MethodRouter, get, post},
};
use serde::Serialize;
use windlass_engine::{
    Engine,
    ports::{Clock, Now},
};

pub(crate) use enqueued::EnqueuedReader;
pub(crate) use events::event_document;
pub(crate) use idempotency::KEY_BYTES_MAX;
pub use metrics::Metrics;
pub use openapi::document;
pub use serve::serve;
pub use shutdown::Shutdown;
pub(crate) use view::status;

use budget::{BODY_BYTES_PER_CLIENT_DEFAULT, BODY_WINDOW_DEFAULT, BodyBudget};
use connections::{CONNECTIONS_PER_CLIENT_DEFAULT, HEAD_TIMEOUT};
use guard::Hosts;
use problem::Refused;

/// The route of workers.
const EXCHANGE: &str = "/v1/worker/exchange";

/// What a client may have at once; a client is an address. Behind a balancer all clients have one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Connections.
    pub connections: usize,
    /// Bytes of bodies that are being read or worked on, of workers and of others each.
    pub body_bytes: usize,
    /// How long the head of a request may take.
    pub head_timeout: Duration,
    /// How often a body must have brought its least.
    pub body_window: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_PER_CLIENT_DEFAULT,
            body_bytes: BODY_BYTES_PER_CLIENT_DEFAULT,
            head_timeout: HEAD_TIMEOUT,
            body_window: BODY_WINDOW_DEFAULT,
        }
    }
}

/// What requests are answered with.
pub struct App {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Metrics,
    /// Begun when the server is to stop: what waits is answered then.
    pub shutdown: Shutdown,
    clients: ClientLimits,
    bodies: BodyBudget,
    worker_bodies: BodyBudget,
    hosts: OnceLock<Hosts>,
}

impl App {
    /// An application over `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>, clock: Arc<dyn Clock>, clients: ClientLimits) -> Self {
        Self {
            engine,
            clock,
            metrics: Metrics::default(),
            shutdown: Shutdown::default(),
            clients,
            bodies: BodyBudget::of_clients(&clients),
            worker_bodies: BodyBudget::of_workers(&clients),
            hosts: OnceLock::new(),
        }
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    /// Which hosts it answers to; the careful choice until a listener is known.
    fn hosts(&self) -> Hosts {
        self.hosts.get().copied().unwrap_or(Hosts::Loopback)
    }
}

/// Everything the server answers.
pub fn router(app: Arc<App>) -> Router {
    let routes: [(&'static str, MethodRouter<Arc<App>>); 38] = [
        ("/v1/tasks", get(tasks::list::list).post(submit::submit)),
        ("/v1/tasks/batch", post(batch::submit)),
        ("/v1/tasks/bulk", post(bulk::change)),
        ("/v1/tasks/counts", get(tasks::counts::count)),
        ("/v1/tasks/{id}", get(tasks::show)),
        ("/v1/tasks/{id}/cancel", post(tasks::cancel)),
        ("/v1/tasks/{id}/pause", post(tasks::pause)),
        ("/v1/tasks/{id}/resume", post(tasks::resume)),
        ("/v1/tasks/{id}/steps/{step}/resolve", post(resolve::resolve)),
        ("/v1/tasks/{id}/steps/{step}/members", get(members::list)),
        ("/v1/tasks/{id}/rerun", post(rerun::rerun)),
        ("/v1/tasks/{id}/signals/{name}", post(signals::send)),
        ("/v1/tasks/{id}/events", get(events::events)),
        ("/v1/tasks/{id}/logs", get(logs::logs)),
        ("/v1/tasks/{id}/why", get(why::why)),
        ("/v1/flows", get(flows::list)),
        ("/v1/flows/check", post(flows::check)),
        ("/v1/flows/{name}", get(flows::show).put(flows::apply)),
        (EXCHANGE, post(exchange::exchange)),
        ("/v1/worker/attempts/{token}", get(exchange::attempt::show)),
        ("/v1/queues", get(queues::list)),
        ("/v1/queues/{name}", get(queues::show)),
        ("/v1/queues/{name}/pause", post(queues::pause)),
        ("/v1/queues/{name}/resume", post(queues::resume)),
        ("/v1/limits", get(limits::list)),
        ("/v1/limits/{name}", get(limits::show).put(limits::set).delete(limits::remove)),
        ("/v1/workers", get(workers::list)),
        ("/v1/servers", get(servers::list)),
        ("/v1/locks", get(locks::list)),
        ("/v1/locks/{name}", get(locks::show)),
        ("/v1/locks/{name}/release", post(locks::release)),
        ("/v1/alarms", get(alarms::list)),
        ("/v1/alarms/{id}/acknowledge", post(alarms::acknowledge)),
        ("/v1/alarms/{id}/resolve", post(alarms::resolve)),
        ("/healthz", get(health::alive)),
        ("/readyz", get(health::ready)),
        ("/metrics", get(metrics::scrape)),
        ("/openapi.json", get(openapi::show)),
    ];
    let mut router = Router::new();
    for (path, methods) in routes {
        let methods = methods.fallback(method_not_allowed);
        router = router
            .route(path, methods.layer(middleware::from_fn_with_state((app.clone(), path), guard::around)));
    }
    let unknown = axum::routing::any(not_found);
    let around = middleware::from_fn_with_state((app.clone(), "other"), guard::around);
    router.fallback_service(unknown.layer(around).with_state(())).with_state(app)
}

async fn not_found(request: Request) -> Refused {
    Refused::not_found(request.uri().path())
}

async fn method_not_allowed(request: Request) -> Refused {
    Refused::method_not_allowed(request.method().as_str(), request.uri().path())
}

/// A document as an answer.
fn json_response(status: StatusCode, document: &impl Serialize) -> Response {
    // Documents have only string keys and no foreign Serialize, so writing them cannot fail.
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    bytes_response(status, bytes.into())
}

/// A written document as an answer.
fn bytes_response(status: StatusCode, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A document as the answer of a request that went well.
fn ok(document: &impl Serialize) -> Response {
    json_response(StatusCode::OK, document)
}
