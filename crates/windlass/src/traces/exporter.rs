//! Sends spans to a collector, as OTLP over HTTP asks for (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>).

use std::{convert::Infallible, mem, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use prost::Message as _;
use reqwest::{Client, Response, StatusCode, Url, header::CONTENT_TYPE};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{
    SpanCounts,
    otlp::{ExportAnswer, ExportRequest, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Span},
    settings::TracesSettings,
};
use crate::outgoing::{client_for, explain, retry_after};

/// The most spans of a request.
const BATCH_MAX: usize = 512;

/// How long spans wait for others, to share a request.
const BATCH_PAUSE: Duration = Duration::from_secs(1);

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before the first repetition of a request; it doubles up to the last one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends spans to one collector.
pub(super) struct Exporter {
    client: Client,
    url: Url,
    resource: Resource,
}

/// Why spans were not accepted.
enum Refusal {
    /// Another time they may be, after this pause if the collector asks for one.
    Temporary(String, Option<Duration>),
    /// They are lost.
    Final(String),
}

impl Exporter {
    pub(super) fn new(settings: &TracesSettings) -> anyhow::Result<Self> {
        let url = settings.url();
        let client = client_for(&url, settings.ca_file.as_deref()).context("[traces]")?;
        let client = client.default_headers(settings.headers.clone()).timeout(TIMEOUT).build()?;
        let resource = Resource {
            attributes: vec![
                KeyValue::text("service.name", &settings.service),
                KeyValue::text("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::text("service.instance.id", uuid::Uuid::new_v4().to_string()),
            ],
        };
        Ok(Self { client, url, resource })
    }

    /// Sends the spans that come through `waiting`. When the other side of `is_to_end` is dropped, it tries once to send those
    /// that wait then, and drops `has_ended`.
    pub(super) async fn run(
        self,
        mut waiting: mpsc::Receiver<Span>,
        counts: SpanCounts,
        is_to_end: oneshot::Receiver<()>,
        has_ended: oneshot::Sender<()>,
    ) {
        let mut spans = Vec::new();
        tokio::select! {
            never = self.send_all(&mut waiting, &mut spans, &counts) => match never {},
            _ = is_to_end => {}
        }
        loop {
            while spans.len() < BATCH_MAX
                && let Ok(span) = waiting.try_recv()
            {
                spans.push(span);
            }
            if spans.is_empty() {
                break;
            }
            let sent = self.send(self.encode(&spans)).await;
            self.count(spans.len(), sent.map_err(Refusal::why), &counts);
            spans.clear();
        }
        drop(has_ended);
        std::future::pending().await
    }

    /// Sends all spans. Those in `spans` are being sent.
    async fn send_all(
        &self,
        waiting: &mut mpsc::Receiver<Span>,
        spans: &mut Vec<Span>,
        counts: &SpanCounts,
    ) -> Infallible {
        loop {
            receive(waiting, spans).await;
            let fill = async {
                while spans.len() < BATCH_MAX {
                    receive(waiting, spans).await;
                }
            };
            // The spans that have come by then are sent.
            let _ = timeout(BATCH_PAUSE, fill).await;
            self.deliver(spans, counts).await;
            spans.clear();
        }
    }

    /// Sends spans until they are accepted or refused. Others wait in the meantime, as many as there is room for.
    async fn deliver(&self, spans: &[Span], counts: &SpanCounts) {
        let (body, mut pause, mut is_away) = (self.encode(spans), PAUSE_FIRST, false);
        loop {
            match self.send(body.clone()).await {
                Err(Refusal::Temporary(why, asked)) => {
                    if !mem::replace(&mut is_away, true) {
                        tracing::warn!(collector = %self.url, why, "cannot send traces; trying again");
                    }
                    sleep(asked.unwrap_or(pause).min(PAUSE_MAX)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                sent => {
                    if is_away {
                        tracing::info!(collector = %self.url, "the collector of traces answers again");
                    }
                    return self.count(spans.len(), sent.map_err(Refusal::why), counts);
                }
            }
        }
    }

    /// Counts what has become of `spans` spans: how many the collector rejected, or why it got none.
    fn count(&self, spans: usize, sent: Result<u64, String>, counts: &SpanCounts) {
        let spans = spans as u64;
        let dropped = sent.unwrap_or_else(|why| {
            tracing::error!(collector = %self.url, why, spans, "the collector did not accept traces");
            spans
        });
        counts.exported.inc_by(spans.saturating_sub(dropped));
        counts.dropped.inc_by(dropped.min(spans));
    }

    fn encode(&self, spans: &[Span]) -> Bytes {
        let scope = Scope { name: "windlass".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let export = ExportRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans { scope: Some(scope), spans: spans.to_vec() }],
            }],
        };
        export.encode_to_vec().into()
    }

    /// Makes one request. Returns the number of spans that the collector rejected.
    async fn send(&self, body: Bytes) -> Result<u64, Refusal> {
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/x-protobuf");
        let answer = request.body(body).send().await;
        let answer = answer.map_err(|error| Refusal::Temporary(explain(error), None))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(rejected(answer).await);
        }
        let why = format!("it answers {status}");
        Err(match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                Refusal::Temporary(why, retry_after(&answer).map(Duration::from_secs))
            }
            _ => Refusal::Final(why),
        })
    }
}

/// Waits for more spans, up to a whole batch.
async fn receive(waiting: &mut mpsc::Receiver<Span>, spans: &mut Vec<Span>) {
    let room = BATCH_MAX - spans.len();
    if waiting.recv_many(spans, room).await == 0 {
        // The engine is gone: nothing comes any more.
        std::future::pending().await
    }
}

impl Refusal {
    fn why(self) -> String {
        match self {
            Self::Temporary(why, _) | Self::Final(why) => why,
        }
    }
}

/// The number of spans that were rejected in an accepted request.
async fn rejected(mut answer: Response) -> u64 {
    let mut bytes = Vec::new();
    while let Ok(Some(part)) = answer.chunk().await {
        bytes.extend_from_slice(&part);
        if bytes.len() > ANSWER_BYTES_MAX {
            return 0;
        }
    }
    let Ok(ExportAnswer { partial_success: Some(partial) }) = ExportAnswer::decode(&*bytes) else { return 0 };
    if partial.rejected_spans > 0 {
        tracing::warn!(
            spans = partial.rejected_spans,
            why = partial.error_message,
            "the collector rejects spans"
        );
    }
    u64::try_from(partial.rejected_spans).unwrap_or_default()
}
