//! Paths: what they name.

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use serde::de::DeserializeOwned;
use windlass_core::{Name, TaskId};

use crate::http::answer::problem::Refused;

/// What the path of a request names.
pub(crate) struct Path<T>(pub(crate) T);

/// What a path can name.
pub(crate) trait FromPath: Sized {
    /// The parameters of the path, decoded.
    type Segments: DeserializeOwned + Send;

    /// Reads them.
    fn from_path(segments: Self::Segments) -> Result<Self, Refused>;
}

impl<T: FromPath, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let segments = axum::extract::Path::<T::Segments>::from_request_parts(parts, &()).await;
        let segments = segments.map(|axum::extract::Path(value)| value).map_err(|rejection| {
            if rejection.status() == StatusCode::BAD_REQUEST {
                Refused::malformed(format!("the path cannot be read: {}", rejection.body_text()))
            } else {
                Refused::fault(rejection.body_text())
            }
        })?;
        T::from_path(segments).map(Self)
    }
}

/// A key to look up: no string is malformed, it only may not exist.
impl FromPath for String {
    type Segments = String;

    fn from_path(text: String) -> Result<Self, Refused> {
        Ok(text)
    }
}

impl FromPath for Name {
    type Segments = String;

    fn from_path(text: String) -> Result<Self, Refused> {
        super::name("the name in the path", &text)
    }
}

/// A malformed id is the id of no task.
impl FromPath for TaskId {
    type Segments = String;

    fn from_path(text: String) -> Result<Self, Refused> {
        text.parse().map_err(|_| {
            let text: String = text.chars().take(64).collect();
            Refused::unknown_task(format!(
                "there is no task {text:?}: an id is a UUID, as POST /v1/tasks answers it"
            ))
        })
    }
}

/// A step or a signal of a task.
impl<T: FromPath<Segments = String>> FromPath for (TaskId, T) {
    type Segments = (String, String);

    fn from_path((task, of_it): (String, String)) -> Result<Self, Refused> {
        Ok((TaskId::from_path(task)?, T::from_path(of_it)?))
    }
}
