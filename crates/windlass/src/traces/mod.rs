//! Traces of tasks: each submit, task and attempt is a span, which an OpenTelemetry collector gets over OTLP.
//!
//! ```text
//! commits ─▶ recorder.rs ─▶ a bounded queue ─▶ exporter.rs ─▶ collector
//! ```
//!
//! | file | concern |
//! |---|---|
//! | `settings.rs` | the section `[traces]` |
//! | `recorder.rs` | what happened as spans |
//! | `exporter.rs` | sends them, and what the answers mean |
//! | `otlp.rs` | the messages of OTLP |
//!
//! The ids of spans are computed by the engine ([`windlass_engine::Sampling`]).

mod exporter;
mod otlp;
mod recorder;
mod settings;

use std::sync::Arc;

use prometheus_client::{metrics::counter::Counter, registry::Registry};
use tokio::{
    sync::{mpsc, oneshot},
    time,
};
use windlass_engine::Engine;

use crate::{
    clock::SystemClock,
    loops::{END_MAX, Loops},
};
use exporter::Exporter;
use recorder::Recorder;

pub(crate) use settings::{TracesSection, TracesSettings, read};

/// Spans that wait to be sent. Later ones are dropped and counted.
const WAITING_MAX: usize = 8_192;

/// The traces of a server; with nothing in it, it records none.
pub(crate) struct Traces(Option<(TracesSettings, Exporter)>);

/// What becomes of spans. Clones count together.
#[derive(Clone, Default)]
pub(crate) struct SpanCounts {
    exported: Counter,
    dropped: Counter,
}

/// The traces of a server that runs: how the loop that sends them is ended, and when it has sent the last ones. `None` = it
/// records none.
pub(crate) struct RunningTraces(Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>);

impl Traces {
    /// Makes the client, without connecting.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub(crate) fn new(settings: Option<TracesSettings>) -> anyhow::Result<Self> {
        let with_exporter = |settings: TracesSettings| {
            let exporter = Exporter::new(&settings)?;
            Ok::<_, anyhow::Error>((settings, exporter))
        };
        settings.map(with_exporter).transpose().map(Self)
    }

    /// Starts to record spans, and the loop that sends them. Returns what the caller must end before the loops.
    pub(crate) fn start(
        self,
        engine: &Engine,
        clock: &Arc<SystemClock>,
        counts: &SpanCounts,
        running: &mut Loops,
    ) -> RunningTraces {
        let Some((settings, exporter)) = self.0 else { return RunningTraces(None) };
        engine.traced(settings.sampling);
        let (spans, waiting) = mpsc::channel(WAITING_MAX);
        let (end, is_to_end) = oneshot::channel();
        let (has_ended, ended) = oneshot::channel();
        let run = exporter.run(waiting, counts.clone(), is_to_end, has_ended);
        running.spawn("sends traces", run);
        engine.observed_by(Arc::new(Recorder::new(settings.sampling, clock.clone(), spans, counts.clone())));
        RunningTraces(Some((end, ended)))
    }
}

impl RunningTraces {
    /// Sends the spans that wait, for up to [`END_MAX`].
    pub(crate) async fn end(self) {
        let Some((end, ended)) = self.0 else { return };
        drop(end);
        if time::timeout(END_MAX, ended).await.is_err() {
            tracing::warn!("the collector of traces does not answer: the last spans are lost");
        }
    }
}

impl SpanCounts {
    /// Adds the counters to the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("spans_exported", "Spans that a collector accepted", self.exported.clone());
        let help = "Spans that no collector got: too many waited, or the collector refused them";
        registry.register("spans_dropped", help, self.dropped.clone());
    }
}
