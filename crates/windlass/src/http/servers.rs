//! `GET /v1/servers`: which servers there are on the store.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_store::{Now, ServerState};

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    tasks::view,
};

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// The servers on the same store.
#[utoipa::path(get, path = "/v1/servers", operation_id = "list_servers", tag = "server", responses((status = 200, description = "The page", body = api::List<api::Server>)))]
pub(crate) async fn list(State(app): State<Arc<App>>) -> Result<Response, Refused> {
    let (now, servers) = (app.now(), app.engine.servers().await?);
    let items = servers.into_iter().map(|server| document(server, &app, now)).collect();
    Ok(ok(&api::List { items, next: None }))
}

fn document(server: ServerState, app: &App, now: Now) -> api::Server {
    let state = if server.is_up(now.mono) { api::ServerState::Up } else { api::ServerState::Silent };
    api::Server {
        id: server.id.to_string(),
        state,
        answers: app.engine.server_id() == Some(server.id),
        version: server.version.into(),
        address: server.address.into(),
        level: server.level,
        started_at: view::time(server.started_at),
        last_seen_at: view::time(server.heard_at),
    }
}
