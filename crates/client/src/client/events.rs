//! What happens to a task: its history, and the live stream that goes on from it.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use reqwest::{
    Method,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use windlass_api::{Event, List};

use super::{Client, request::Details, sse::SseReader};
use crate::{Error, pacing::Pacing};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The kind of a task's last event.
const ENDED: &str = "task.ended";

/// Events asked for at once: as many as a server gives on a page.
const PAGE_EVENTS: u32 = 1000;

/// How long the headers of a stream may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

impl Client {
    /// The task's events after the one of that number, oldest first; after 0 = all.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is none of this id.
    pub async fn task_events(&self, id: &str, after: u64) -> Result<List<Event>, Error> {
        let path = ["v1", "tasks", id, "events"];
        let limit = ("limit", PAGE_EVENTS.to_string().into());
        let first = [("after", after.to_string().into()), limit.clone()];
        // A cursor says by itself where its page begins.
        self.remaining_pages(&path, &[limit], self.get_with(&path, &first).await?).await
    }

    /// The task's events after the one of that number, and then those to come, until the task has ended.
    ///
    /// When the connection is lost, the stream opens another one and goes on where it was, for as long as it
    /// takes. Notices without a number that were sent meanwhile are lost.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is none of this id, [`Error::Unreachable`] if the server is not
    /// there to begin with.
    pub async fn follow_events(&self, id: &str, after: u64) -> Result<EventStream, Error> {
        let body = self.open_events(id, after).await?;
        let follower = Follower {
            client: self.clone(),
            id: id.to_owned(),
            after,
            body: Some(body),
            reader: SseReader::default(),
            pacing: Pacing::default(),
            over: false,
        };
        let events = stream::unfold(follower, |mut follower| async move {
            let event = follower.next().await?;
            Some((event, follower))
        });
        Ok(EventStream { events: events.boxed() })
    }

    async fn open_events(&self, id: &str, after: u64) -> Result<Body, Error> {
        let path = ["v1", "tasks", id, "events"];
        let details = Details {
            headers: HeaderMap::from_iter([
                (ACCEPT, EVENT_STREAM),
                (LAST_EVENT_ID, HeaderValue::from(after)),
            ]),
            ..Details::default()
        };
        let response = tokio::time::timeout(OPEN_TIMEOUT, self.send(Method::GET, &path, details))
            .await
            .map_err(|_| self.unreachable("no answer in 30 s"))??;
        let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        if !kind.starts_with(EVENT_STREAM.as_bytes()) {
            return Err(Error::Malformed {
                server: self.server().to_owned(),
                call: format!("GET /{}", path.join("/")),
                detail: format!("an event stream was asked for and {} came", String::from_utf8_lossy(kind)),
            });
        }
        Ok(response.bytes_stream().boxed())
    }
}

/// The events of one task as they happen: see [`Client::follow_events`].
pub struct EventStream {
    events: Pin<Box<dyn Stream<Item = Result<Event, Error>> + Send>>,
}

impl Stream for EventStream {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.as_mut().poll_next(context)
    }
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}

type Body = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

struct Follower {
    client: Client,
    id: String,
    /// The number of the last event that was handed on.
    after: u64,
    /// The open connection.
    body: Option<Body>,
    reader: SseReader,
    pacing: Pacing,
    over: bool,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if self.over {
                return None;
            }
            if let Some(data) = self.reader.next_event() {
                return Some(self.read(&data));
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

    fn read(&mut self, data: &str) -> Result<Event, Error> {
        let event: Event = serde_json::from_str(data).map_err(|error| {
            self.over = true;
            Error::Malformed {
                server: self.client.server().to_owned(),
                call: format!("GET /v1/tasks/{}/events", self.id),
                detail: error.to_string(),
            }
        })?;
        self.after = event.n.unwrap_or(self.after);
        self.over = event.kind == ENDED;
        Ok(event)
    }

    /// Opens the stream again where it was lost; only a refusal ends this.
    async fn reopen(&mut self) -> Result<(), Error> {
        self.reader = SseReader::default();
        loop {
            tokio::time::sleep(self.pacing.failed()).await;
            match self.client.open_events(&self.id, self.after).await {
                Ok(body) => {
                    self.body = Some(body);
                    return Ok(());
                }
                Err(error) if error.is_temporary() => {}
                Err(error) => return Err(error),
            }
        }
    }
}
