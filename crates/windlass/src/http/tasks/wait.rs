//! `Prefer: wait=n`: an answer that waits for the end of a task (RFC 7240).

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use tokio::time;
use windlass_core::TaskId;
use windlass_store::Loaded;

use crate::http::{App, answer::problem::Refused};

/// The longest wait; one that asks for more gets this.
const WAIT_SECONDS_MAX: u64 = 60;

/// How many seconds the client would wait for the end of a task, if any.
pub(crate) struct PreferredWait(pub(crate) Option<u64>);

impl<S: Send + Sync> FromRequestParts<S> for PreferredWait {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(preferred_wait(&parts.headers).filter(|seconds| *seconds > 0)))
    }
}

/// What cannot be understood is skipped, as the RFC asks.
fn preferred_wait(headers: &HeaderMap) -> Option<u64> {
    let preferences = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let wait = preferences.flat_map(|value| value.split([',', ';'])).find_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        if !name.trim().eq_ignore_ascii_case("wait") {
            return None;
        }
        value.trim().trim_matches('"').parse::<u64>().ok()
    });
    wait.map(|seconds| seconds.min(WAIT_SECONDS_MAX))
}

/// The task once it has ended, or as it is when the time is over.
pub(crate) async fn wait_for_end(app: &App, id: TaskId, seconds: u64) -> Result<Loaded, Refused> {
    tokio::select! {
        ended = app.engine.ended(id) => Ok(ended?),
        () = time::sleep(Duration::from_secs(seconds)) => Ok(app.engine.task(id).await?),
        () = app.shutdown.begun() => Ok(app.engine.task(id).await?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_found_among_preferences() {
        let wait = |values: &[&str]| {
            preferred_wait(
                &values.iter().map(|value| ("prefer".parse().unwrap(), value.parse().unwrap())).collect(),
            )
        };
        assert_eq!(wait(&["wait=5"]), Some(5));
        assert_eq!(wait(&["respond-async, Wait = 7"]), Some(7));
        assert_eq!(wait(&["respond-async", "wait=\"9\""]), Some(9));
        assert_eq!(wait(&["wait=3600"]), Some(WAIT_SECONDS_MAX));
        assert_eq!(wait(&["wait=soon", "return=minimal"]), None);
        assert_eq!(wait(&[]), None);
    }
}
