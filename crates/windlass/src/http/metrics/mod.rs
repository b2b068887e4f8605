//! `GET /metrics`: what is counted, and how things are now.

mod format;
mod present;
mod work;

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, Method, StatusCode},
    response::Response,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use windlass_engine::{HandedOut, Observer, ReportStatus};
use windlass_store::Now;

use crate::{
    http::{App, answer::problem::Refused},
    traces::SpanCounts,
};
use work::Work;

/// Counters of what passes through the HTTP interface. Cheap to add to.
pub struct Metrics {
    registry: Registry,
    tasks_accepted: Counter,
    tasks_repeated: Counter,
    commands: Family<CommandLabels, Counter>,
    attempts_handed_out: Counter,
    reports: Family<ReportLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    connections_refused: Counter,
    work: Work,
    /// Of traces.
    pub(crate) spans: SpanCounts,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommandLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReportLabels {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: &'static str,
    status: u16,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("windlass");
        let (tasks_accepted, tasks_repeated) = (Counter::default(), Counter::default());
        registry.register("tasks_accepted", "Tasks accepted", tasks_accepted.clone());
        registry.register(
            "tasks_repeated",
            "Submits answered with the task of an earlier one under the same idempotency key",
            tasks_repeated.clone(),
        );
        let commands = Family::default();
        registry.register(
            "commands",
            "Requests of operators about tasks, steps, queues and alarms",
            commands.clone(),
        );
        let attempts_handed_out = Counter::default();
        registry.register("attempts_handed_out", "Attempts given to workers", attempts_handed_out.clone());
        let reports = Family::default();
        registry.register("reports", "Reports of workers, by reply", reports.clone());
        let requests = Family::default();
        registry.register("http_requests", "Requests, by route, method and status", requests.clone());
        let connections_refused = Counter::default();
        let help = "Connections that were closed at once, because there was no room for them";
        registry.register("connections_refused", help, connections_refused.clone());
        let (work, spans) = (Work::default(), SpanCounts::default());
        work.register(&mut registry);
        spans.register(&mut registry);
        Self {
            registry,
            tasks_accepted,
            tasks_repeated,
            commands,
            attempts_handed_out,
            reports,
            requests,
            connections_refused,
            work,
            spans,
        }
    }
}

impl Metrics {
    pub(crate) fn submitted(&self, repeated: bool) {
        let counter = if repeated { &self.tasks_repeated } else { &self.tasks_accepted };
        counter.inc();
    }

    pub(crate) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    pub(crate) fn command(&self, kind: &'static str) {
        self.commands.get_or_create(&CommandLabels { kind }).inc();
    }

    /// What hears of ends of tasks and attempts.
    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        Arc::new(self.work.clone())
    }

    pub(crate) fn handed_out(&self, attempts: &[HandedOut], now: Now) {
        self.attempts_handed_out.inc_by(attempts.len() as u64);
        attempts.iter().for_each(|attempt| self.work.picked_up(attempt, now));
    }

    pub(crate) fn report(&self, status: &ReportStatus) {
        let status = match status {
            ReportStatus::Accepted => "accepted",
            ReportStatus::Duplicate => "duplicate",
            ReportStatus::Stale => "stale",
            ReportStatus::Unknown => "unknown",
            ReportStatus::Invalid(_) => "invalid",
        };
        self.reports.get_or_create(&ReportLabels { status }).inc();
    }

    pub(crate) fn request(&self, route: &str, method: &Method, status: StatusCode) {
        // Clients may invent methods; labels must stay few.
        let method = match method.as_str() {
            "GET" => "GET",
            "HEAD" => "HEAD",
            "POST" => "POST",
            "PUT" => "PUT",
            _ => "other",
        };
        let labels = RequestLabels { route: route.to_owned(), method, status: status.as_u16() };
        self.requests.get_or_create(&labels).inc();
    }
}

/// Counters since the start of the server, and how things are now. While the store does not answer, the metrics of the store are
/// left out. Clients that accept OpenMetrics get that; others get the older text format of Prometheus.
#[utoipa::path(
    get,
    path = "/metrics", operation_id = "get_metrics",
    tag = "server",
    responses((status = 200, description = "In the OpenMetrics text format, or in that of Prometheus", content_type = "application/openmetrics-text", body = String))
)]
pub(crate) async fn scrape(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Refused> {
    let now = present::registry(&app).await;
    format::answer(&[&app.metrics.registry, &now], &headers)
}
