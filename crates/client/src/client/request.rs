//! Sends one request and reads its answer: URLs, statuses, problems and documents.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use reqwest::{
    Method, Response, StatusCode, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap},
};
use serde::{Serialize, de::DeserializeOwned};
use windlass_api::Problem;

use super::Client;
use crate::Error;

/// The time limit for an answer, in addition to the requested wait: long enough for a slow disk, short enough
/// to notice a dead server.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The most characters shown of an answer that is not a problem document.
const EXCERPT_CHARS: usize = 200;

/// The parts of a request other than its method and path.
#[derive(Default)]
pub(crate) struct Details<'a> {
    pub(crate) query: &'a [(&'a str, Cow<'a, str>)],
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
    /// The time limit for the answer; none = [`ANSWER_TIMEOUT`].
    pub(crate) timeout: Option<Duration>,
}

impl Client {
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Error> {
        self.call(Method::GET, path, Details::default()).await
    }

    pub(crate) async fn get_with<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, Cow<'_, str>)],
    ) -> Result<T, Error> {
        self.call(Method::GET, path, Details { query, ..Details::default() }).await
    }

    /// A POST without a body; the path ends in the verb.
    pub(crate) async fn verb<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, Error> {
        self.call(Method::POST, path, Details::default()).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let body = Some(encode(body)?);
        self.call(Method::POST, path, Details { body, ..Details::default() }).await
    }

    /// Sends a request and parses its answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        details: Details<'_>,
    ) -> Result<T, Error> {
        let call = format!("{method} /{}", path.join("/"));
        let bytes = self.body(method, path, details).await?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Malformed {
            server: self.server().to_owned(),
            call,
            detail: error.to_string(),
        })
    }

    /// Sends a request and returns the body of its answer.
    pub(crate) async fn body(
        &self,
        method: Method,
        path: &[&str],
        details: Details<'_>,
    ) -> Result<Bytes, Error> {
        let timeout = details.timeout.unwrap_or(ANSWER_TIMEOUT);
        let exchange = async {
            let response = self.send(method, path, details).await?;
            response.bytes().await.map_err(|error| self.unreachable(error))
        };
        let answer = tokio::time::timeout(timeout, exchange).await;
        answer.unwrap_or_else(|_| Err(self.unreachable(format!("no answer in {timeout:?}"))))
    }

    /// Sends a request and returns its answer after the headers have arrived. A refusal is an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &[&str],
        details: Details<'_>,
    ) -> Result<Response, Error> {
        let mut request =
            self.http.request(method, self.url(path, details.query)).headers(self.headers.clone());
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        if let Some(body) = details.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let response =
            request.headers(details.headers).send().await.map_err(|error| self.unreachable(error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.unwrap_or_default();
        Err(Error::Refused(Box::new(problem(status, &body))))
    }

    /// The URL of a path. Each segment is escaped separately, so that no name can lead to another path.
    fn url(&self, path: &[&str], query: &[(&str, Cow<'_, str>)]) -> Url {
        let mut url = self.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    pub(crate) fn unreachable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let source = source.into();
        // The library's own message repeats the URL; the innermost cause is the useful part.
        let mut innermost: &(dyn std::error::Error + 'static) = source.as_ref();
        while let Some(inner) = innermost.source() {
            innermost = inner;
        }
        let source = match windlass_tls::refused(source.as_ref()) {
            Some(refused) => refused.into(),
            None => innermost.to_string().into(),
        };
        Error::Unreachable { server: self.server().to_owned(), source }
    }
}

pub(crate) fn encode(body: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(body)
        .map_err(|error| Error::Invalid(format!("the document cannot be written as JSON: {error}")))
}

/// The problem document of a refusal, or one made from any other answer.
fn problem(status: StatusCode, body: &Bytes) -> Problem {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let title = status.canonical_reason().unwrap_or("Refused");
        let text = String::from_utf8_lossy(body);
        let excerpt: String = text.trim().chars().take(EXCERPT_CHARS).collect();
        let detail = if excerpt.is_empty() {
            format!("the server answered {status} without a reason")
        } else {
            format!("the server answered {status}: {excerpt}")
        };
        Problem::new(status.as_u16(), Problem::UNEXPLAINED, title, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_the_path() {
        let client = Client::new("http://127.0.0.1:7700/base/").unwrap();
        let url = client.url(&["v1", "tasks", "../../x?y#z/w"], &[("after", "5".into())]);
        assert_eq!(url.as_str(), "http://127.0.0.1:7700/base/v1/tasks/..%2F..%2Fx%3Fy%23z%2Fw?after=5");
    }

    #[test]
    fn a_refusal_without_a_problem_document_still_says_what_came() {
        let problem = problem(StatusCode::BAD_GATEWAY, &Bytes::from_static(b"<h1>proxy</h1>"));
        assert_eq!(problem.status, 502);
        assert!(problem.detail.contains("<h1>proxy</h1>"));
    }
}
