//! `/v1/leaders`: processes of which one at a time holds a name.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{extract::State, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;
use windlass_api as api;
use windlass_core::{Leader, Lock, Millis};
use windlass_engine::{Campaign, Election};

use crate::http::{
    App,
    answer::{ok, problem::Refused},
    request::{JsonBody, Path},
    tasks::view,
};

/// The largest request, in bytes.
const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// The longest id of a candidate, and the longest value, in bytes.
const ID_BYTES_MAX: usize = 128;
const VALUE_BYTES_MAX: usize = 4096;

/// The range of leases, in milliseconds.
const LEASE_MS: std::ops::RangeInclusive<u64> = 2_000..=3_600_000;

/// The longest time to wait for an election, in milliseconds.
const WAIT_MS_MAX: u64 = 30_000;

/// How often it is looked whether a candidate that waits may lead.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(show, campaign)).routes(routes!(resign))
}

/// The leader of a name.
#[utoipa::path(
    get,
    path = "/v1/leaders/{name}", operation_id = "get_leader",
    tag = "leaders",
    params(("name" = String, Path, description = "The name; a slash in it is written as %2F")),
    responses(
        (status = 200, description = "The leader", body = api::Leader),
        (status = 404, description = "Nobody leads", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Refused> {
    let found = app.engine.leader(&name, &|| app.uptime()).await?;
    let leader = found.and_then(|(lock, leader)| document(&lock, &leader));
    leader.map(|leader| ok(&leader)).ok_or_else(|| Refused::no_leader(&name))
}

/// Campaigns for a name, or renews a leadership. Of all candidates one leads at a time.
#[utoipa::path(
    post,
    path = "/v1/leaders/{name}", operation_id = "campaign",
    tag = "leaders",
    params(("name" = String, Path, description = "The name; a slash in it is written as %2F")),
    request_body = api::Campaign,
    responses(
        (status = 200, description = "Whether the candidate leads, and who does", body = api::Election),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn campaign(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    JsonBody(text): JsonBody<REQUEST_BYTES_MAX>,
) -> Result<Response, Refused> {
    let body: api::Campaign = text.parse()?;
    let campaign = checked(name, &body)?;
    let until = Instant::now() + Duration::from_millis(body.wait_ms);
    loop {
        let election = app.engine.campaign(&campaign, &|| app.uptime()).await?;
        let left = until.saturating_duration_since(Instant::now());
        if election.fence.is_some() || campaign.renews.is_some() || left.is_zero() {
            return Ok(ok(&answer(election)));
        }
        tokio::select! {
            () = tokio::time::sleep(left.min(LOOK_EVERY)) => {}
            () = app.shutdown.begun() => return Ok(ok(&answer(election))),
        }
    }
}

/// Resigns, so that the next candidate leads at once. Has no effect for one that does not lead.
#[utoipa::path(
    post,
    path = "/v1/leaders/{name}/resign", operation_id = "resign",
    tag = "leaders",
    params(("name" = String, Path, description = "The name; a slash in it is written as %2F")),
    request_body = api::Resignation,
    responses(
        (status = 204, description = "It does not lead any more"),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resign(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    JsonBody(text): JsonBody<REQUEST_BYTES_MAX>,
) -> Result<axum::http::StatusCode, Refused> {
    let body: api::Resignation = text.parse()?;
    app.engine.resign(&name, number(&body.campaign)?).await?;
    Ok(axum::http::StatusCode::NO_CONTENT)
}

fn checked(name: String, body: &api::Campaign) -> Result<Campaign, Refused> {
    let api::Campaign { campaign, id, value, lease_ms, wait_ms, renews } = body;
    if id.is_empty() || id.len() > ID_BYTES_MAX || id.chars().any(char::is_control) {
        return Err(Refused::malformed(format!(
            "`id` must have 1 to {ID_BYTES_MAX} bytes without control characters"
        )));
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(Refused::malformed(format!("`value` may have at most {VALUE_BYTES_MAX} bytes")));
    }
    if !LEASE_MS.contains(lease_ms) {
        let (least, most) = (LEASE_MS.start(), LEASE_MS.end());
        return Err(Refused::malformed(format!("`lease_ms` is {lease_ms}: use {least} to {most}")));
    }
    if *wait_ms > WAIT_MS_MAX {
        return Err(Refused::malformed(format!("`wait_ms` is {wait_ms}: use at most {WAIT_MS_MAX}")));
    }
    let leader = Leader {
        name: name.into(),
        id: id.as_str().into(),
        value: value.as_str().into(),
        lease: Millis(*lease_ms),
    };
    Ok(Campaign { number: number(campaign)?, leader, renews: *renews })
}

fn number(campaign: &str) -> Result<u128, Refused> {
    let uuid = Uuid::parse_str(campaign).ok().filter(|uuid| !uuid.is_nil());
    let number = uuid.map(|uuid| uuid.as_u128());
    number.ok_or_else(|| Refused::malformed("`campaign` must be a UUID that is not zero".to_owned()))
}

fn answer(election: Election) -> api::Election {
    let leads = election.fence.is_some();
    let leader = election.lock.and_then(|lock| document(&lock, lock.leader.as_ref()?));
    api::Election { leads, leader }
}

fn document(lock: &Lock, leader: &Leader) -> Option<api::Leader> {
    let holder = lock.holder?;
    Some(api::Leader {
        name: leader.name.to_string(),
        id: leader.id.to_string(),
        value: leader.value.to_string(),
        fence: holder.fence,
        lease_ms: leader.lease.0,
        since: view::time(holder.since),
    })
}
