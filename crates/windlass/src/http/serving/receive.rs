//! Receiving a body: within its size, its time, and what all bodies may take together.

use axum::{
    body::{Body, Bytes},
    http::{header, request::Parts},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::{Instant, timeout_at};

use crate::http::{
    answer::problem::Refused,
    request::bytes_in_words,
    serving::budget::{BODY_WINDOW_BYTES, BodyBudget, Exhausted, Sender},
};

/// Reads a body of at most `limit` bytes, if `budget` has room for it.
pub(crate) async fn read_body(
    budget: &BodyBudget,
    parts: &Parts,
    body: Body,
    limit: usize,
) -> Result<Bytes, Refused> {
    let too_large = || {
        Refused::too_large(format!(
            "the body is larger than {}, which is the most here: send less at once",
            bytes_in_words(limit)
        ))
    };
    let length = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut body = Limited::new(body, limit);
    let mut gathered = budget.begin(Sender::of(&parts.extensions));
    let (mut until, mut in_window) = (Instant::now() + budget.window, 0);
    loop {
        let frame = match timeout_at(until, body.frame()).await {
            Ok(None) => return Ok(gathered.finish()),
            Ok(Some(frame)) => frame,
            Err(_) if in_window >= BODY_WINDOW_BYTES => {
                (until, in_window) = (Instant::now() + budget.window, 0);
                continue;
            }
            Err(_) => {
                return Err(Refused::too_slow(format!(
                    "the body brought {in_window} bytes in {} s and did not end: send at least {} in that time",
                    budget.window.as_secs(),
                    bytes_in_words(BODY_WINDOW_BYTES)
                )));
            }
        };
        let frame = frame.map_err(|error| {
            if error.is::<LengthLimitError>() {
                too_large()
            } else {
                Refused::malformed(format!("the body broke off: {error}"))
            }
        })?;
        if let Some(data) = frame.data_ref() {
            in_window += data.len();
            gathered.push(data).map_err(|Exhausted| Refused::too_many_bodies())?;
        }
    }
}
