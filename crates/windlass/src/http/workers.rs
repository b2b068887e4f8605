//! `GET /v1/workers`: who does the work.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::Timestamp;
use windlass_store::SessionState;

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    request::{FromQuery, Pairs, Query},
    tasks::view,
};

/// Workers in one answer where nothing is said.
const PAGE_ITEMS: usize = 1000;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which workers are listed.
pub(crate) struct PageOfWorkers {
    after: Option<String>,
    limit: usize,
}

impl FromQuery for PageOfWorkers {
    const NAMES: &'static [&'static str] = &["cursor", "limit"];

    fn from_query(pairs: &Pairs, _: Timestamp) -> Result<Self, Refused> {
        Ok(Self { after: pairs.one("cursor")?.map(str::to_owned), limit: pairs.limit(PAGE_ITEMS)? })
    }
}

/// The connected workers, by their ids.
#[utoipa::path(
    get,
    path = "/v1/workers", operation_id = "list_workers",
    tag = "workers",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "1 to 1000"),
    ),
    responses((status = 200, description = "The page", body = api::List<api::Worker>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(PageOfWorkers { after, limit }): Query<PageOfWorkers>,
) -> Result<Response, Refused> {
    let workers = app.engine.workers(app.now()).await?.into_iter();
    let workers = workers.map(|state| document(app.engine.is_draining(state.session), state));
    let mut items: Vec<api::Worker> =
        workers.filter(|worker| after.as_ref().is_none_or(|after| worker.id > *after)).collect();
    items.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    let next = (items.len() > limit).then(|| items[limit - 1].id.clone());
    items.truncate(limit);
    Ok(ok(&api::List { items, next }))
}

fn document(draining: bool, state: SessionState) -> api::Worker {
    api::Worker {
        id: state.session.to_string(),
        name: view::worker_name(&state.worker.name, state.session),
        host: state.worker.host.into(),
        version: state.worker.version.into(),
        attached: state.worker.attached,
        draining,
        modules: state.worker.modules.iter().map(ToString::to_string).collect(),
        running: state.running,
        last_seen_at: view::time(state.last_seen_at),
    }
}
