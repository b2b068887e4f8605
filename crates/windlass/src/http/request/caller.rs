//! Who calls, as the access token or the headers say.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use windlass_core::Actor;
use windlass_engine::SpanContext;
use windlass_store::Now;

use crate::http::{App, access::Grant, answer::problem::Refused};

/// The longest name a client may give itself in `Windlass-Actor`, in bytes.
const ACTOR_BYTES_MAX: usize = 128;

/// Who says to act, if the request says it.
pub(crate) struct By(pub(crate) Option<Actor>);

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        actor(parts).map(Self)
    }
}

/// The client that submits tasks, as its headers describe it.
pub(crate) struct Caller {
    /// Who submits.
    pub(crate) by: Option<Actor>,
    /// W3C trace context.
    pub(crate) traceparent: Option<Box<str>>,
    /// When.
    pub(crate) now: Now,
    /// What the client may do.
    pub(crate) grant: Grant,
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        let given = parts.headers.get("traceparent").and_then(|value| value.to_str().ok());
        Ok(Self {
            by: actor(parts)?,
            traceparent: given.and_then(traceparent),
            now: app.now(),
            grant: Grant::from_request_parts(parts, app).await?,
        })
    }
}

impl Caller {
    /// Somebody who is known for sure, and may do everything.
    pub(crate) fn known(by: Actor, now: Now) -> Self {
        Self { by: Some(by), traceparent: None, now, grant: Grant::open() }
    }
}

/// Who acts: the token says it, and without one the client itself.
pub(crate) fn actor(parts: &Parts) -> Result<Option<Actor>, Refused> {
    match parts.extensions.get::<Grant>().and_then(Grant::actor) {
        Some(actor) => Ok(Some(actor)),
        None => claimed(&parts.headers),
    }
}

fn claimed(headers: &HeaderMap) -> Result<Option<Actor>, Refused> {
    let Some(value) = headers.get("windlass-actor") else { return Ok(None) };
    let name = std::str::from_utf8(value.as_bytes()).unwrap_or_default().trim();
    if name.is_empty() || name.len() > ACTOR_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(Refused::malformed(format!(
            "the header `Windlass-Actor` must be 1 to {ACTOR_BYTES_MAX} bytes of printable UTF-8"
        )));
    }
    Ok(Some(Actor { name: name.into(), claimed: true }))
}

/// A W3C trace context. An invalid one is dropped and the request goes on, as the W3C asks.
pub(crate) fn traceparent(text: &str) -> Option<Box<str>> {
    SpanContext::parse(text).map(|_| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_are_short_and_printable() {
        let actor = |value: &[u8]| {
            let value = axum::http::HeaderValue::from_bytes(value).unwrap();
            claimed(&HeaderMap::from_iter([("windlass-actor".parse().unwrap(), value)]))
        };
        assert_eq!(&*actor("Zoë".as_bytes()).unwrap().unwrap().name, "Zoë");
        assert!(actor(b"").is_err() && actor(b"\xff").is_err() && actor(&[b'a'; 129]).is_err());
    }
}
