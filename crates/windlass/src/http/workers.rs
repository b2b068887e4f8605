//! `GET /v1/workers`: who does the work.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use windlass_api as api;
use windlass_engine::ports::SessionState;

use super::{App, extract::Pairs, ok, problem::Refused, view};

/// The connected workers.
#[utoipa::path(get, path = "/v1/workers", operation_id = "list_workers", tag = "workers", responses((status = 200, description = "The page", body = api::List<api::Worker>)))]
pub(crate) async fn list(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    let (parts, _) = request.into_parts();
    Pairs::of(&parts, &[])?;
    let items = app.engine.workers(app.now()).await?.into_iter().map(document).collect();
    Ok(ok(&api::List { items, next: None }))
}

fn document(state: SessionState) -> api::Worker {
    api::Worker {
        session: state.session.to_string(),
        name: view::worker_name(&state.worker.name, state.session),
        host: state.worker.host.into(),
        version: state.worker.version.into(),
        attached: state.worker.attached,
        modules: state.worker.modules.iter().map(ToString::to_string).collect(),
        running: state.running,
        last_seen_at: view::time(state.last_seen_at),
    }
}
