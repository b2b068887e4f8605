//! `GET /v1/worker/attempts/{token}`: a step's message whole, where the broker could not carry its parameters.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use windlass_api as api;

use crate::{
    brokers,
    http::{App, access::Grant, answer::ok, answer::problem::Refused, request::Path},
};

/// The whole message of a step, for a worker whose broker message only says where the parameters are.
#[utoipa::path(
    get,
    path = "/v1/worker/attempts/{token}", operation_id = "get_attempt",
    tag = "workers",
    params(("token" = String, Path, description = "The attempt's token, as the message has it")),
    responses(
        (status = 200, description = "The message with its parameters", body = api::StepMessage),
        (status = 404, description = "No such attempt, or it is over: the message is to be dropped", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    grant: Grant,
    Path(token): Path<String>,
) -> Result<Response, Refused> {
    let attempt = app.engine.attempt(&token).await?.ok_or_else(Refused::unknown_attempt)?;
    grant.attempt(&attempt)?;
    Ok(ok(&brokers::whole(&attempt)))
}
