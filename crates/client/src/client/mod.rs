//! The control client: one method per call of the HTTP API, one file per kind of thing.
//!
//! Every method is one request and one answer, except for lists, which are read page by page to their end (tasks,
//! which may be millions, are given one page at a time), and for [`Client::wait`], [`Client::follow_events`] and
//! [`Client::follow_logs`], which live through restarts of the server.

mod alarms;
mod bulk;
mod events;
mod exchange;
mod flows;
mod follow;
mod limits;
mod locks;
mod logs;
mod pages;
mod queues;
mod request;
mod sse;
mod submit;
mod tasks;
mod wait;

use std::time::Duration;

pub use events::EventStream;
pub use logs::LogStream;
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};
pub use tasks::TaskFilter;

use crate::Error;

/// How long opening a connection may take. Servers are near by: a longer silence means that nobody is there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Says who acts, where there is no token that does.
const ACTOR: HeaderName = HeaderName::from_static("windlass-actor");

/// A connection to a server, cheap to clone: clones share their connections.
///
/// It goes to the server directly, whatever proxies the environment names.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    server: Url,
    headers: HeaderMap,
}

impl Client {
    /// A client of the server at that address, such as `http://127.0.0.1:7700` or `127.0.0.1:7700`. Nothing is
    /// sent yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the address is none.
    pub fn new(server: &str) -> Result<Self, Error> {
        let server = parse_server(server)?;
        let http = reqwest::Client::builder()
            .user_agent(concat!("windlass-client/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .http1_only()
            .build()
            .map_err(|error| Error::Invalid(format!("cannot set up an HTTP client: {error}")))?;
        Ok(Self { http, server, headers: HeaderMap::new() })
    }

    /// Sends this token with every call, as `Authorization: Bearer`.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        if let Some(mut value) = header_value(&format!("Bearer {}", token.into().trim())) {
            value.set_sensitive(true);
            self.headers.insert(AUTHORIZATION, value);
        }
        self
    }

    /// Says who acts, for the history, where no token does: the header `Windlass-Actor`.
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

/// Control characters are left out: no header can carry them.
fn header_value(text: &str) -> Option<HeaderValue> {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    HeaderValue::from_bytes(text.as_bytes()).ok()
}

fn parse_server(text: &str) -> Result<Url, Error> {
    let text = text.trim();
    let invalid = |why: &str| {
        Error::Invalid(format!(
            "\"{text}\" is no server address: {why}; write for example http://127.0.0.1:7700"
        ))
    };
    let address = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&address).map_err(|error| invalid(&error.to_string()))?;
    match url.scheme() {
        "http" => {}
        "https" => return Err(invalid("TLS is not built in")),
        other => return Err(invalid(&format!("{other} is not spoken here"))),
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("it ends in a query"));
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
        for given in ["", "ftp://127.0.0.1", "https://127.0.0.1:7700", "http://127.0.0.1:port", "http://a/?b"]
        {
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
