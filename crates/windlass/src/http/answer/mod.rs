//! Answers: documents, pages, and every refusal in one place.

mod errors;
pub(super) mod page;
pub(super) mod problem;

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use serde::Serialize;

/// A document as an answer.
pub(super) fn json_response(status: StatusCode, document: &impl Serialize) -> Response {
    // Documents have only string keys and no foreign Serialize, so writing them cannot fail.
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    bytes_response(status, bytes.into())
}

/// A written document as an answer.
pub(super) fn bytes_response(status: StatusCode, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A document as the answer of a request that went well.
pub(super) fn ok(document: &impl Serialize) -> Response {
    json_response(StatusCode::OK, document)
}
