//! Requests to one of several addresses.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::{Client, Method, Response, StatusCode, header::HeaderMap};
use windlass_tls::{ClientConfig, TlsError};

use crate::CoordinatorError;
#[cfg(any(feature = "consul", feature = "etcd"))]
use crate::address::Address;

/// The longest answer about an election that is read, in bytes. It has a few candidates in it.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// How long one address may take for an answer.
pub(crate) const PATIENCE_MAX: Duration = Duration::from_secs(5);

/// The same at least: a busy server is not a dead one.
const PATIENCE_MIN: Duration = Duration::from_millis(250);

/// How long one address may take for a request of a campaign: three addresses are tried within half a lease.
pub(crate) fn patience(lease: Duration) -> Duration {
    (lease / 8).clamp(PATIENCE_MIN, PATIENCE_MAX)
}

/// A client of several servers, any of which will do.
#[derive(Debug)]
pub(crate) struct Http {
    client: Client,
    scheme: &'static str,
    hosts: Vec<String>,
    /// The host that answered last.
    last: AtomicUsize,
    /// The longest answer that is read, in bytes.
    answer_bytes_max: usize,
}

/// A request. It must be harmless when two servers get it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    /// How long one address may take.
    pub(crate) patience: Duration,
}

/// An answer other than a failure of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    #[cfg(feature = "consul")]
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as text, for errors.
    pub(crate) fn text(&self) -> String {
        excerpt(&self.body)
    }
}

impl Http {
    pub(crate) fn new(hosts: Vec<String>) -> Result<Self, CoordinatorError> {
        Self::over("http", hosts, windlass_tls::config_without_roots(None))
    }

    /// A client of the servers of an address.
    #[cfg(any(feature = "consul", feature = "etcd"))]
    pub(crate) fn of(address: &Address) -> Result<Self, CoordinatorError> {
        match &address.tls {
            Some(files) => Self::with_tls(address.hosts.clone(), files),
            None => Self::new(address.hosts.clone()),
        }
    }

    /// The same with TLS.
    pub(crate) fn with_tls(
        hosts: Vec<String>,
        files: &windlass_tls::ClientFiles,
    ) -> Result<Self, CoordinatorError> {
        Self::over("https", hosts, windlass_tls::client_config(files))
    }

    fn over(
        scheme: &'static str,
        hosts: Vec<String>,
        config: Result<Arc<ClientConfig>, TlsError>,
    ) -> Result<Self, CoordinatorError> {
        let config = config.map_err(|error| CoordinatorError::Invalid(error.to_string()))?;
        let client = Client::builder()
            .user_agent(concat!("windlass-coordinators/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .http1_only()
            .tls_backend_preconfigured(ClientConfig::clone(&config))
            .build()
            .map_err(|error| CoordinatorError::Invalid(format!("cannot set up an HTTP client: {error}")))?;
        Ok(Self { client, scheme, hosts, last: AtomicUsize::new(0), answer_bytes_max: ANSWER_BYTES_MAX })
    }

    /// The same for answers of up to this length.
    #[cfg(feature = "consul")]
    pub(crate) fn with_answers_up_to(self, bytes: usize) -> Self {
        Self { answer_bytes_max: bytes, ..self }
    }

    /// Sends a request to each address in turn until one answers.
    pub(crate) async fn call(&self, request: &Request) -> Result<Answer, CoordinatorError> {
        let mut failures = Vec::new();
        for index in self.order() {
            let answer = async { self.read(self.send(&self.hosts[index], request).await?).await };
            match in_time(request.patience, answer).await {
                Ok(answer) => return Ok(self.answered(index, answer)),
                Err(why) => failures.push(format!("{}: {why}", self.hosts[index])),
            }
        }
        Err(CoordinatorError::Unavailable(failures.join("; ")))
    }

    /// Sends a request whose answer comes piece by piece. The patience is for its beginning.
    #[cfg(feature = "etcd")]
    pub(crate) async fn open(&self, request: &Request) -> Result<Response, CoordinatorError> {
        let mut failures = Vec::new();
        for index in self.order() {
            match in_time(request.patience, self.send(&self.hosts[index], request)).await {
                Ok(response) => return Ok(self.answered(index, response)),
                Err(why) => failures.push(format!("{}: {why}", self.hosts[index])),
            }
        }
        Err(CoordinatorError::Unavailable(failures.join("; ")))
    }

    /// All hosts, beginning with the one that answered last.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.last.load(Ordering::Relaxed), self.hosts.len());
        (0..count).map(move |offset| (first + offset) % count)
    }

    fn answered<T>(&self, index: usize, answer: T) -> T {
        self.last.store(index, Ordering::Relaxed);
        answer
    }

    async fn send(&self, host: &str, request: &Request) -> Result<Response, String> {
        let url = format!("{}://{host}{}", self.scheme, request.path);
        let builder = self.client.request(request.method.clone(), url).headers(request.headers.clone());
        let response = builder.body(request.body.clone()).send().await.map_err(explain)?;
        let status = response.status();
        // No leader, too many requests, a proxy without servers: another address may do better.
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            let answer = self.read(response).await?;
            return Err(format!("{status}: {}", answer.text()));
        }
        Ok(response)
    }

    async fn read(&self, mut response: Response) -> Result<Answer, String> {
        let status = response.status();
        #[cfg(feature = "consul")]
        let headers = response.headers().clone();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(explain)? {
            body.extend_from_slice(&piece);
            if body.len() > self.answer_bytes_max {
                return Err(format!("an answer has more than {} bytes", self.answer_bytes_max));
            }
        }
        Ok(Answer {
            status,
            #[cfg(feature = "consul")]
            headers,
            body,
        })
    }
}

async fn in_time<T>(
    patience: Duration,
    answer: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let silence = |_| Err(format!("no answer within {patience:?}"));
    tokio::time::timeout(patience, answer).await.unwrap_or_else(silence)
}

/// The innermost cause: the outer ones only say that a request failed.
pub(crate) fn explain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    windlass_tls::refused(&error).map_or_else(|| cause.to_string(), |refused| refused.to_string())
}

/// The beginning of a body as text.
fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim().chars().take(300).collect()
}
