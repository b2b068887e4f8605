//! `POST /v1/triggers/{name}`: a request that fires a trigger.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use windlass_api as api;
use windlass_core::{Name, Signature, TriggerSource};
use windlass_engine::{EngineError, Occasion};

use super::{fired, signature};
use crate::http::{
    App, access,
    answer::{json_response, ok, problem::Refused},
    request::{Path, check_content_type},
    serving::receive::read_body,
};

/// The largest body of a request to a trigger.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Fires a trigger that has `http`. Its signature is checked as the trigger says. On a server that asks for access tokens, a
/// request to a trigger that checks no signature needs the token of an operator. A request that was accepted before,
/// with the same id, starts nothing and returns the same tasks with status 200.
///
/// Triggers that say `classic: true` answer with [`api::ClassicJobStarted`] when all tasks are started.
#[utoipa::path(
    post,
    path = "/v1/triggers/{name}", operation_id = "receive_webhook",
    tag = "triggers",
    params(
        ("name" = String, Path, description = "Name of the trigger"),
        ("webhook-id" = Option<String>, Header, description = "Standard Webhooks: the id of the request, at most 255 bytes"),
        ("webhook-timestamp" = Option<String>, Header, description = "Standard Webhooks: when it was sent, in seconds since 1970-01-01 UTC; at most 5 minutes ago"),
        ("webhook-signature" = Option<String>, Header, description = "Standard Webhooks: `v1,` and the base64 of an HMAC-SHA256 of ID.TIMESTAMP.BODY"),
    ),
    request_body = Object,
    responses(
        (status = 202, description = "What was started", body = api::TriggerFired),
        (status = 200, description = "Nothing new was started; or the classic answer", body = api::TriggerFired),
        (status = 400, description = "The body is not JSON, or the request is too old", body = api::Problem, content_type = "application/problem+json"),
        (status = 401, description = "The signature is missing or wrong", body = api::Problem, content_type = "application/problem+json"),
        (status = 404, description = "Unknown trigger, or none of its flows exists", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is paused, or requests do not fire it", body = api::Problem, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than 1 MiB", body = api::Problem, content_type = "application/problem+json"),
        (status = 422, description = "The parameters cannot be computed, or the id was used with another body", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn receive(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    request: Request,
) -> Result<Response, Refused> {
    let now = app.now();
    let (mut parts, body) = request.into_parts();
    let trigger = match app.engine.trigger(&name, now).await {
        Ok(report) => Ok(report.trigger),
        Err(error @ EngineError::Store(_)) => return Err(error.into()),
        Err(error) => Err(error),
    };
    // Only a signature takes the place of a token: strangers do not learn which triggers there are.
    if !trigger.as_ref().is_ok_and(|trigger| checks_signatures(&trigger.definition.source)) {
        access::admit_unsigned(&app, &mut parts).await?;
    }
    let trigger = trigger?;
    let TriggerSource::Http(signature) = &trigger.definition.source else {
        return Err(Refused::conflict(format!(
            "trigger {name} has no `http`, so requests do not fire it: POST /v1/triggers/{name}/fire fires it now"
        )));
    };
    check_content_type(&parts.headers)?;
    let body = read_body(&app.bodies, &parts, body, BODY_BYTES_MAX).await?;
    let id = signature::check(signature, &parts.headers, &body, now.wall)?;
    if trigger.paused.is_some() {
        return Err(Refused::conflict(format!(
            "trigger {name} is paused: resume it, and send the request again"
        )));
    }
    let id = id.unwrap_or_else(|| app.engine.next_task_id(now).to_string());
    let text = if body.is_empty() { b"{}" } else { &body[..] };
    let json: &RawValue = serde_json::from_slice(text)
        .map_err(|error| Refused::malformed(format!("the body is not valid JSON: {error}")))?;
    let fingerprint = Sha256::digest(&body).into();
    let occasion = Occasion::Request { id: &id, fingerprint, body: json };
    let starts = app.engine.fire_trigger(&trigger, occasion, None, now).await?;
    app.metrics.command("receive_webhook");
    let is_new = starts.iter().any(|start| matches!(start.result, Ok((_, None))));
    let is_whole = starts.iter().all(|start| start.result.is_ok());
    let fired = fired(&app, &name, starts)?;
    if trigger.definition.classic && is_whole {
        return Ok(ok(&api::ClassicJobStarted::default()));
    }
    Ok(json_response(if is_new { StatusCode::ACCEPTED } else { StatusCode::OK }, &fired))
}

fn checks_signatures(source: &TriggerSource) -> bool {
    matches!(source, TriggerSource::Http(Signature::Standard { .. } | Signature::Hmac { .. }))
}
