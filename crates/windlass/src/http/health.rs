//! `GET /healthz` and `GET /readyz`: for process supervisors and load balancers.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, response::Response};
use serde::Serialize;
use utoipa::ToSchema;
use windlass_store::StoreError;

use crate::http::{
    App,
    answer::{ok, problem::Refused},
};
use utoipa_axum::{router::OpenApiRouter, routes};

/// How long the store may take to write a probe before the server counts as not ready.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(alive)).routes(routes!(ready))
}

/// The server's state.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
    /// Version of the server.
    version: &'static str,
}

const HEALTHY: Health = Health { status: "ok", version: env!("CARGO_PKG_VERSION") };

/// The process lives.
#[utoipa::path(get, path = "/healthz", operation_id = "get_health", tag = "server", responses((status = 200, description = "It is well", body = Health)))]
pub(crate) async fn alive() -> Response {
    ok(&HEALTHY)
}

/// The server can take tasks in and work on them: its store writes, and none of its services keeps failing.
#[utoipa::path(
    get,
    path = "/readyz", operation_id = "get_readiness",
    tag = "server",
    responses(
        (status = 200, description = "It is well", body = Health),
        (status = 503, description = "The store does not write, or a service of the server has failed ten times in a row", body = windlass_api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Result<Response, Refused> {
    match tokio::time::timeout(STORE_TIMEOUT, app.engine.check()).await {
        Ok(checked) => checked?,
        Err(_) => {
            let why = format!("it did not answer within {} s", STORE_TIMEOUT.as_secs());
            return Err(StoreError::Unavailable(why).into());
        }
    }
    if let Some(service) = app.engine.rounds().failing() {
        let (name, failures) = (service.as_str(), app.engine.rounds().failures(service));
        let why = format!(
            "the service {name} of this server has failed {failures} times in a row: the server's log says why, and `windlass doctor` looks at the store"
        );
        return Err(StoreError::Unavailable(why).into());
    }
    Ok(ok(&HEALTHY))
}
