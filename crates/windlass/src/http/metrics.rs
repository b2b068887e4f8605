//! `GET /metrics`: what is counted, in the OpenMetrics text format.

use std::{cmp::Reverse, fmt, sync::Arc};

use axum::{
    extract::State,
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::Gauge,
    },
    registry::Registry,
};
use windlass_engine::{ReportStatus, RoundsOf};

use crate::http::{App, answer::problem::Refused, queues};

const CONTENT_TYPE: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabels {
    service: &'static str,
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
            "What people asked of tasks, steps, queues and alarms",
            commands.clone(),
        );
        let attempts_handed_out = Counter::default();
        registry.register("attempts_handed_out", "Attempts given to workers", attempts_handed_out.clone());
        let reports = Family::default();
        registry.register("reports", "Reports of workers, by what became of them", reports.clone());
        let requests = Family::default();
        registry.register("http_requests", "Requests, by route, method and status", requests.clone());
        let connections_refused = Counter::default();
        let help = "Connections closed at once since there was no room for them";
        registry.register("connections_refused", help, connections_refused.clone());
        Self {
            registry,
            tasks_accepted,
            tasks_repeated,
            commands,
            attempts_handed_out,
            reports,
            requests,
            connections_refused,
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

    pub(crate) fn handed_out(&self, attempts: usize) {
        self.attempts_handed_out.inc_by(attempts as u64);
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

/// Counters since the start, and how things are now.
#[utoipa::path(
    get,
    path = "/metrics", operation_id = "get_metrics",
    tag = "server",
    responses((status = 200, description = "In the OpenMetrics text format", content_type = "application/openmetrics-text", body = String))
)]
pub(crate) async fn scrape(State(app): State<Arc<App>>) -> Result<Response, Refused> {
    let mut out = String::new();
    let now = present(&app).await?;
    let written = text::encode_registry(&mut out, &app.metrics.registry)
        .and_then(|()| text::encode_registry(&mut out, &now))
        .and_then(|()| text::encode_eof(&mut out));
    written.map_err(|fmt::Error| Refused::fault("the metrics could not be written"))?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], out).into_response())
}

/// How things are now.
async fn present(app: &App) -> Result<Registry, Refused> {
    let mut registry = Registry::with_prefix("windlass");
    let (ready, running) = (Family::<QueueLabels, Gauge>::default(), Family::<QueueLabels, Gauge>::default());
    let paused = Family::<QueueLabels, Gauge>::default();
    let (mut queues, workers) = queues::look(app).await?;
    queues.sort_by_key(|queue| Reverse(queue.ready + queue.running));
    let others = queues.split_off(queues.len().min(QUEUES_SHOWN_MAX));
    for queue in queues {
        let labels = QueueLabels { queue: queue.name.to_string() };
        ready.get_or_create(&labels).set(saturating(queue.ready));
        running.get_or_create(&labels).set(saturating(queue.running));
        paused.get_or_create(&labels).set(i64::from(queue.paused.is_some()));
    }
    let hidden: Gauge = Gauge::default();
    hidden.set(saturating(others.len() as u64));
    registry.register(
        "queues_hidden",
        "Queues beyond the 1000 with the most attempts: not in these metrics",
        hidden,
    );
    registry.register("queue_ready", "Attempts that wait for a worker", ready);
    registry.register("queue_running", "Attempts that workers have", running);
    registry.register("queue_paused", "Whether nothing of the queue is handed out", paused);
    let sessions: Gauge = Gauge::default();
    sessions.set(saturating(workers.len() as u64));
    registry.register("worker_sessions", "Connected workers", sessions);
    let alarms: Gauge = Gauge::default();
    alarms.set(saturating(app.engine.alarms(false, ALARMS_COUNTED_MAX).await?.len() as u64));
    registry.register("alarms_open", "Alarms that are not resolved, counted up to 1000", alarms);
    let counts = app.engine.counts();
    registry.register("commits", "Batches decided and committed", ConstCounter::new(counts.batches()));
    registry.register(
        "commit_items",
        "Submits, reports and other items in them",
        ConstCounter::new(counts.items()),
    );
    registry.register(
        "commit_conflicts",
        "Changes that were decided again, since another one of the same came first",
        ConstCounter::new(counts.conflicts()),
    );
    registry.register(
        "events_announced",
        "Events that a broker has confirmed to have heard",
        ConstCounter::new(counts.announced()),
    );
    let failures = Family::<ServiceLabels, Gauge>::default();
    for service in RoundsOf::ALL {
        let labels = ServiceLabels { service: service.as_str() };
        failures.get_or_create(&labels).set(saturating(app.engine.rounds().failures(service)));
    }
    registry.register(
        "service_failures",
        "Rounds of a service of this server that failed since the last that did not",
        failures,
    );
    let damaged: Gauge = Gauge::default();
    damaged.set(saturating(app.engine.damaged_tasks() as u64));
    registry.register(
        "damaged_tasks",
        "Tasks, and rows of no task, that this server has met and that are damaged",
        damaged,
    );
    if let Some(trips) = app.engine.store_round_trips() {
        let help = "How often something was sent to the database and waited for";
        registry.register("store_round_trips", help, ConstCounter::new(trips));
    }
    if let Some(bytes) = app.engine.resident_payload_bytes() {
        let payload: Gauge = Gauge::default();
        payload.set(saturating(bytes));
        let help = "Parameters and results of active tasks that are in memory";
        registry.register("resident_payload_bytes", help, payload);
    }
    if let Some(bytes) = resident_bytes() {
        let memory: Gauge = Gauge::default();
        memory.set(saturating(bytes));
        registry.register("process_resident_memory_bytes", "Memory of the server that is in RAM", memory);
    }
    Ok(registry)
}

/// Queues with figures of their own; clients make up names of queues.
const QUEUES_SHOWN_MAX: usize = 1000;

/// A scrape must stay cheap, however much has gone wrong.
const ALARMS_COUNTED_MAX: usize = 1000;

fn saturating(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// What the process has in RAM, where the system reports it (the second number of `/proc/self/statm`, in pages).
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
