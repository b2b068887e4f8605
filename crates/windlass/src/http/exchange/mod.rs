//! `POST /v1/worker/exchange`: how workers take attempts and report them. The hot path: what lies in the body is
//! not copied before it is kept, and what is handed out is written from where it is.

mod answer;
pub(super) mod attempt;
pub(super) mod call;

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_engine::ReportStatus;

use crate::http::{
    App,
    access::Grant,
    answer::{json_response, problem::Refused},
    request::{self, BATCH_BYTES_MAX},
    serving::connections::Connection,
};
use answer::AnswerBody;
use call::call;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(exchange)).routes(routes!(attempt::show))
}

/// Takes attempts, reports them and keeps the worker's session.
///
/// A call with reports is answered as soon as they are on disk. A call without is the poll: it waits up to
/// `wait_ms` for something to do.
#[utoipa::path(
    post,
    path = "/v1/worker/exchange", operation_id = "exchange",
    tag = "workers",
    request_body = api::ExchangeRequest,
    responses(
        (status = 200, description = "What to do, and what became of the reports", body = api::ExchangeAnswer),
        (status = 400, description = "Malformed as a whole", body = api::Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = api::Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store is not available, or the server is shutting down: keep what is held and call again", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn exchange(
    State(app): State<Arc<App>>,
    grant: Grant,
    request: Request,
) -> Result<Response, Refused> {
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let text = request::read_json(&app.worker_bodies, request, BATCH_BYTES_MAX).await?;
    let (call, nameless) = call(text.parse()?)?;
    drop(text);
    for offer in call.claim_requests.iter().flatten() {
        grant.offer(&offer.module)?;
        if app.own_modules.contains(&offer.module) {
            return Err(Refused::malformed(format!(
                "no worker can serve the module `{}`: the server delivers to this webhook by itself",
                offer.module
            )));
        }
    }
    if let Some(connection) = connection {
        match app.engine.knows_session(call.session) {
            true => connection.know(),
            false if connection.is_reserved() => return Err(Refused::too_many_connections()),
            false => {}
        }
    }
    let is_poll = call.reports.is_empty();
    let heard = app.engine.exchange(call, app.now());
    let mut answer = if is_poll {
        tokio::select! {
            // Claimed attempts are sent, also when the server begins to stop at the same moment.
            biased;
            answer = heard => answer?,
            () = app.shutdown.begun() => return Err(Refused::shutting_down()),
            () = grant.revoked(&app) => return Err(Refused::revoked()),
        }
    } else {
        heard.await?
    };
    // A session may have offered its modules under another token.
    for attempt in &answer.attempts {
        grant.attempt(attempt)?;
    }
    for (index, detail) in nameless {
        answer.reports[index].status = ReportStatus::Invalid(detail);
    }
    answer.reports.iter().for_each(|report| app.metrics.report(&report.status));
    app.metrics.handed_out(&answer.attempts, app.now());
    Ok(json_response(StatusCode::OK, &AnswerBody::of(&answer)?))
}
