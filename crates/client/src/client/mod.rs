//! The control client: one method per call of the HTTP API, one file per resource.
//!
//! Most methods are one request. Methods for lists read all pages, except for tasks, of which there may be
//! millions: these are returned page by page. [`Client::wait`], [`Client::follow_events`] and
//! [`Client::follow_logs`] continue through restarts of the server.

mod access;
mod alarms;
mod audit;
mod bulk;
mod devices;
mod events;
mod exchange;
mod flows;
mod follow;
mod limits;
mod locks;
mod logs;
mod metrics;
mod pages;
mod queues;
mod request;
mod rollouts;
mod sse;
mod submit;
mod tasks;
mod token;
mod triggers;
mod wait;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub use events::EventStream;
pub use logs::LogStream;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
pub use tasks::TaskFilter;
use token::AccessToken;
use windlass_tls::{ClientConfig, ClientFiles};

use crate::Error;

/// The time limit for a connection. Servers are near: a longer silence means that none is there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Names the actor, unless a token does.
const ACTOR: HeaderName = HeaderName::from_static("windlass-actor");

/// A client of a server. It is cheap to clone: clones share their connections.
///
/// It connects directly to the server and ignores proxy settings of the environment.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    server: Url,
    headers: HeaderMap,
    token: Option<Arc<AccessToken>>,
}

impl Client {
    /// Makes a client of the server at this address, such as `https://windlass.example:7700` or `127.0.0.1:7700`, which
    /// is without TLS. Sends nothing yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the address is invalid, or if it is one with TLS and the system trusts no CA.
    pub fn new(server: &str) -> Result<Self, Error> {
        Self::with_tls(server, &ClientFiles::default())
    }

    /// The same with files for TLS: the CA certificates to trust, and the client certificate. They are read now, and
    /// not for addresses without TLS.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the address is invalid or a file cannot be used.
    pub fn with_tls(server: &str, files: &ClientFiles) -> Result<Self, Error> {
        let server = parse_server(server)?;
        let config = match server.scheme() {
            "https" => windlass_tls::client_config(files),
            _ => windlass_tls::config_without_roots(None),
        };
        let config = config.map_err(|error| Error::Invalid(error.to_string()))?;
        let http = reqwest::Client::builder()
            .user_agent(concat!("windlass-client/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .http1_only()
            .tls_backend_preconfigured(ClientConfig::clone(&config))
            .build()
            .map_err(|error| Error::Invalid(format!("cannot set up an HTTP client: {error}")))?;
        Ok(Self { http, server, headers: HeaderMap::new(), token: None })
    }

    /// Sends this token with every call, as `Authorization: Bearer`.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = AccessToken::new(&token.into()).map(Arc::new);
        self
    }

    /// Sends the token in this file with every call. It is read now. A [`Worker`](crate::Worker) reads it again when the
    /// server refuses its token, so that the token of a worker can be replaced while it runs.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the file cannot be read or is empty.
    pub fn with_token_file(mut self, file: impl Into<PathBuf>) -> Result<Self, Error> {
        self.token = Some(Arc::new(AccessToken::read(file.into())?));
        Ok(self)
    }

    /// Whether it sends a token.
    #[must_use]
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The file with the token, if it was read from one.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.token.as_ref()?.file()
    }

    /// Reads the file with the token again. True if there is another token now.
    pub(crate) fn reads_another_token(&self) -> bool {
        self.token.as_ref().is_some_and(|token| token.read_again())
    }

    /// Names the actor for the history, unless a token does: the header `Windlass-Actor`.
    #[must_use]
    pub fn with_actor(mut self, actor: impl Into<String>) -> Self {
        if let Some(value) = header_value(&actor.into()) {
            self.headers.insert(ACTOR, value);
        }
        self
    }

    /// The server's address.
    #[must_use]
    pub fn server(&self) -> &str {
        self.server.as_str().trim_end_matches('/')
    }
}

/// Leaves out control characters, which headers cannot contain.
fn header_value(text: &str) -> Option<HeaderValue> {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    HeaderValue::from_bytes(text.as_bytes()).ok()
}

fn parse_server(text: &str) -> Result<Url, Error> {
    let text = text.trim();
    let invalid = |why: &str| {
        Error::Invalid(format!(
            "invalid server address \"{text}\": {why}; use for example http://127.0.0.1:7700"
        ))
    };
    let address = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&address).map_err(|error| invalid(&error.to_string()))?;
    match url.scheme() {
        "http" | "https" => {}
        other => return Err(invalid(&format!("{other} is not supported"))),
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("it has a query or a fragment"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::Client;

    #[test]
    fn the_scheme_is_optional() {
        for (given, server) in [
            ("http://127.0.0.1:7700", "http://127.0.0.1:7700"),
            ("127.0.0.1:7700", "http://127.0.0.1:7700"),
            ("localhost:7700/", "http://localhost:7700"),
            (" http://tasks.example/windlass/ ", "http://tasks.example/windlass"),
        ] {
            assert_eq!(Client::new(given).unwrap().server(), server);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        for given in ["", "ftp://127.0.0.1", "http://127.0.0.1:port", "https://a/?b"] {
            let message = Client::new(given).unwrap_err().to_string();
            assert!(message.contains("http://127.0.0.1:7700"), "{message}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        let client = Client::new("127.0.0.1:7700").unwrap().with_token("secret\n");
        assert!(!format!("{client:?}").contains("secret"));
    }
}
