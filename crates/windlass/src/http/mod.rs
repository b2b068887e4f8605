//! The HTTP interface: translates between requests and the engine, and has no rules of its own.
//!
//! ```text
//! serving ─▶ serving::guard ─▶ request (extractors) ─▶ one file per resource ─▶ Engine ─▶ answer
//!                                     │                        │                            │
//!                                     └────────────────────────┴──▶ answer::problem ◀───────┘
//! ```
//!
//! Each resource has its `routes`, which register handlers with the router and with the contract. Documents are those of
//! [`windlass_api`].

mod access;
mod alarms;
mod answer;
mod audit;
mod device_messages;
mod devices;
mod exchange;
mod flows;
mod health;
mod jobs;
mod leaders;
mod limits;
mod locks;
pub(crate) mod malformed;
mod metrics;
mod openapi;
mod queues;
pub(crate) mod request;
mod rollouts;
mod servers;
mod serving;
mod submit;
pub(crate) mod tasks;
mod tokens;
mod triggers;
mod workers;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, extract::Request, middleware};
use utoipa_axum::router::OpenApiRouter;
use windlass_core::{Millis, Name};
use windlass_engine::Engine;
use windlass_store::{Clock, Now};
use windlass_tls::ServerTls;

pub(crate) use access::store_uses;
pub(crate) use alarms::document as alarm_document;
pub(crate) use jobs::JobParams;
pub use jobs::Jobs;
pub use metrics::Metrics;
pub use openapi::document;
pub(crate) use serving::encryption::refresh_certificates;
pub(crate) use serving::serve_jobs;
pub use serving::{serve, shutdown::Shutdown};
pub(crate) use submit::{
    LABEL_BYTES_MAX, enqueued::EnqueuedReader, idempotency::KEY_BYTES_MAX, intake::TaskMessage,
};
pub(crate) use tasks::{events::event_document, view, view::status};
pub(crate) use tokens::new_secret;
pub(crate) use triggers::{
    definition::standard_secret as webhook_secret,
    signature::{from_hex, hmac_with, standard_headers as webhook_headers},
};

use access::{Access, AuditedOperations};
use answer::problem::Refused;
use serving::{
    budget::{BODY_BYTES_PER_CLIENT_DEFAULT, BODY_WINDOW_DEFAULT, BodyBudget},
    connections::{CONNECTIONS_PER_CLIENT_DEFAULT, HEAD_TIMEOUT},
    guard::{self, Hosts},
};

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
    pub clock: Arc<dyn Clock + Send + Sync>,
    /// What is counted.
    pub metrics: Metrics,
    /// Begun when the server is to stop: what waits is answered then.
    pub shutdown: Shutdown,
    clients: ClientLimits,
    bodies: BodyBudget,
    worker_bodies: BodyBudget,
    /// What is known of access tokens; `None` = the server asks for none.
    access: Option<Access>,
    /// What connections are encrypted with; `None` = they are not.
    tls: Option<Arc<ServerTls>>,
    /// The job API; `None` = the server does not serve it.
    jobs: Option<Jobs>,
    /// Modules that the server serves by itself: no worker may take their attempts.
    own_modules: BTreeSet<Name>,
    begun: Instant,
}

impl App {
    /// An application over `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>, clock: Arc<dyn Clock + Send + Sync>, clients: ClientLimits) -> Self {
        let metrics = Metrics::default();
        engine.observed_by(metrics.observer());
        Self {
            engine,
            clock,
            metrics,
            shutdown: Shutdown::default(),
            clients,
            bodies: BodyBudget::of_clients(&clients),
            worker_bodies: BodyBudget::of_workers(&clients),
            access: None,
            tls: None,
            jobs: None,
            own_modules: BTreeSet::new(),
            begun: Instant::now(),
        }
    }

    /// The same, asking for an access token with every request. `admin_file` is the file with the token of an admin, if
    /// there is one.
    #[must_use]
    pub fn requiring_tokens(self, admin_file: Option<PathBuf>) -> Self {
        Self { access: Some(Access::new(admin_file)), ..self }
    }

    /// The same with encrypted connections.
    #[must_use]
    pub fn encrypted_by(self, tls: Arc<ServerTls>) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The same with the job API.
    #[must_use]
    pub fn with_jobs(self, jobs: Option<Jobs>) -> Self {
        Self { jobs, ..self }
    }

    /// The same with modules that the server serves by itself.
    #[must_use]
    pub fn serving(self, own_modules: BTreeSet<Name>) -> Self {
        Self { own_modules, ..self }
    }

    /// Tokens were created or revoked here.
    fn forget_tokens(&self) {
        if let Some(access) = &self.access {
            access.forget();
        }
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    /// The monotonic time of this process, which does not follow the clock of a store.
    fn uptime(&self) -> Millis {
        uptime_since(self.begun)
    }

    /// The same for others.
    pub(crate) fn uptime_clock(&self) -> impl Fn() -> Millis + Send + Sync + use<> {
        let begun = self.begun;
        move || uptime_since(begun)
    }
}

fn uptime_since(begun: Instant) -> Millis {
    Millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// Everything the server answers, at an address of this machine.
pub fn router(app: Arc<App>) -> Router {
    answering(openapi::router(), app, Hosts::Loopback)
}

/// Answers requests for these hosts.
fn answering(routes: OpenApiRouter<Arc<App>>, app: Arc<App>, hosts: Hosts) -> Router {
    let (router, contract) = routes.split_for_parts();
    let without_query = Arc::new(request::WithoutQuery::of(&contract));
    let audited = Arc::new(AuditedOperations::of(&contract));
    router
        .route_layer(middleware::from_fn_with_state(without_query, request::refuse_unread))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state((app.clone(), hosts, audited), guard::around))
        .with_state(app)
}

async fn not_found(request: Request) -> Refused {
    Refused::not_found(request.uri().path())
}

async fn method_not_allowed(request: Request) -> Refused {
    Refused::method_not_allowed(request.method().as_str(), request.uri().path())
}
