//! Follows a stream of the server through lost connections and restarts.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use reqwest::{
    Method,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};

use super::{Client, request::Details, sse::SseReader};
use crate::{Error, pacing::Pacing};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The time limit for the headers of a stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

/// The content of a stream message.
pub(super) struct Said<T> {
    /// The item to yield, if any.
    pub(super) item: Option<T>,
    /// The number of the last numbered message.
    pub(super) after: u64,
    /// Whether this is the last message.
    pub(super) over: bool,
}

/// Parses a message. The number is that of the last numbered message before it.
type Read<T> = fn(&str, u64) -> serde_json::Result<Said<T>>;

/// An open stream with the data to reopen it.
pub(super) struct Follower<T> {
    client: Client,
    path: Vec<String>,
    /// A query parameter that limits the stream to some messages.
    filter: Option<(&'static str, String)>,
    /// The number of the last message that was yielded.
    after: u64,
    read: Read<T>,
    /// The open connection, if any.
    body: Option<Body>,
    reader: SseReader,
    pacing: Pacing,
    over: bool,
}

impl<T> Follower<T> {
    /// Opens the stream at `/v1/PATH`, after the message with this number.
    pub(super) async fn open<const N: usize>(
        client: Client,
        path: [&str; N],
        filter: Option<(&'static str, String)>,
        after: u64,
        read: Read<T>,
    ) -> Result<Self, Error> {
        let mut follower = Self {
            client,
            path: ["v1"].into_iter().chain(path).map(str::to_owned).collect(),
            filter,
            after,
            read,
            body: None,
            reader: SseReader::default(),
            pacing: Pacing::default(),
            over: false,
        };
        follower.body = Some(follower.connect().await?);
        Ok(follower)
    }

    /// The items, until the stream ends or the server refuses it.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<T, Error>> {
        stream::unfold(self, |mut follower| async move {
            let next = follower.next().await?;
            Some((next, follower))
        })
    }

    async fn next(&mut self) -> Option<Result<T, Error>> {
        loop {
            if self.over {
                return None;
            }
            if let Some(data) = self.reader.next_event() {
                match self.take(&data).transpose() {
                    Some(next) => return Some(next),
                    None => continue,
                }
            }
            let Some(body) = &mut self.body else {
                match self.reopen().await {
                    Ok(()) => continue,
                    Err(error) => {
                        self.over = true;
                        return Some(Err(error));
                    }
                }
            };
            match body.next().await {
                Some(Ok(bytes)) => {
                    self.pacing.succeeded();
                    self.reader.push(&bytes);
                }
                Some(Err(_)) | None => self.body = None,
            }
        }
    }

    fn take(&mut self, data: &str) -> Result<Option<T>, Error> {
        let said = (self.read)(data, self.after).map_err(|error| {
            self.over = true;
            self.malformed(error.to_string())
        })?;
        self.after = said.after;
        self.over = said.over;
        Ok(said.item)
    }

    /// Reopens the stream where it was lost. Only a refusal is an error.
    async fn reopen(&mut self) -> Result<(), Error> {
        self.reader = SseReader::default();
        loop {
            tokio::time::sleep(self.pacing.failed()).await;
            match self.connect().await {
                Ok(body) => {
                    self.body = Some(body);
                    return Ok(());
                }
                Err(error) if error.is_temporary() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn connect(&mut self) -> Result<Body, Error> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let query: Vec<_> = self.filter.iter().map(|(name, value)| (*name, value.as_str().into())).collect();
        let details = Details {
            query: &query,
            headers: HeaderMap::from_iter([
                (ACCEPT, EVENT_STREAM),
                (LAST_EVENT_ID, HeaderValue::from(self.after)),
            ]),
            ..Details::default()
        };
        let response = tokio::time::timeout(OPEN_TIMEOUT, self.client.send(Method::GET, &path, details))
            .await
            .map_err(|_| self.client.unreachable("no answer in 30 s"))??;
        let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        if !kind.starts_with(EVENT_STREAM.as_bytes()) {
            let kind = String::from_utf8_lossy(kind);
            return Err(self.malformed(format!("expected an event stream, got {kind}")));
        }
        Ok(response.bytes_stream().boxed())
    }

    fn malformed(&self, detail: String) -> Error {
        Error::Malformed {
            server: self.client.server().to_owned(),
            call: format!("GET /{}", self.path.join("/")),
            detail,
        }
    }
}
