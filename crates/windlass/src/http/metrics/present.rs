//! How things are now: of this server, and of the store.
//!
//! What is the store's is reported by one server at a time, the one that keeps time, so that sums over servers count it once.

use std::{
    cmp::Reverse,
    time::{Duration, SystemTime},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::ConstCounter, family::Family, gauge::Gauge, info::Info},
    registry::{Registry, Unit},
};
use windlass_engine::{EngineError, RoundsOf};
use windlass_store::{QueueState, Service, SessionState};

use super::work::QueueLabels;
use crate::http::{App, queues};

/// Queues with metrics of their own; clients make up names of queues.
const QUEUES_SHOWN_MAX: usize = 1000;

/// A scrape must stay cheap, however much has gone wrong.
const ALARMS_COUNTED_MAX: usize = 1000;

/// How long a scrape waits for the store.
const STORE_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabels {
    service: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BrokerLabels {
    queue: String,
    broker: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// Counts from the store.
struct InStore {
    queues: Vec<QueueState>,
    workers: Vec<SessionState>,
    alarms: usize,
}

/// How things are now. While the store does not answer, its metrics are left out.
pub(super) async fn registry(app: &App) -> Registry {
    let mut registry = Registry::with_prefix("windlass");
    let build = Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") });
    registry.register("build", "The version of the server", build);
    server(app, &mut registry);
    let asked = tokio::time::timeout(STORE_WAIT, ask(app)).await;
    let found = asked.ok().and_then(Result::ok);
    gauge(&mut registry, "store_up", "1 if the store answered this scrape", u64::from(found.is_some()));
    if let Some(found) = found.filter(|_| app.engine.leads_service(Service::Timekeeping, app.now())) {
        in_store(app, found, &mut registry);
    }
    registry
}

async fn ask(app: &App) -> Result<InStore, EngineError> {
    let (queues, workers) = queues::look(app).await?;
    let alarms = app.engine.alarms(false, ALARMS_COUNTED_MAX).await?.len();
    Ok(InStore { queues, workers, alarms })
}

/// What the store has. It is the same for all of its servers.
fn in_store(app: &App, InStore { mut queues, workers, alarms }: InStore, registry: &mut Registry) {
    let (ready, running) = (Family::<QueueLabels, Gauge>::default(), Family::<QueueLabels, Gauge>::default());
    let (paused, oldest) = (Family::<QueueLabels, Gauge>::default(), Family::<QueueLabels, Gauge>::default());
    queues.sort_by_key(|queue| Reverse(queue.ready + queue.running));
    let hidden = queues.split_off(queues.len().min(QUEUES_SHOWN_MAX)).len();
    let now = app.now().wall;
    for queue in queues {
        let labels = QueueLabels { queue: queue.name.to_string() };
        ready.get_or_create(&labels).set(saturating(queue.ready));
        running.get_or_create(&labels).set(saturating(queue.running));
        paused.get_or_create(&labels).set(i64::from(queue.paused.is_some()));
        let age = queue.oldest_ready_at.map_or(0, |oldest| (now - oldest).0 / 1000);
        oldest.get_or_create(&labels).set(saturating(age));
    }
    let help = "Queues without metrics of their own: those beyond the 1000 with the most attempts";
    gauge(registry, "queues_hidden", help, hidden as u64);
    registry.register("queue_ready", "Attempts that wait for a worker", ready);
    registry.register("queue_running", "Attempts that workers have", running);
    registry.register("queue_paused", "1 if the queue is paused", paused);
    let help = "Age of the oldest attempt that waits for a worker";
    registry.register_with_unit("queue_oldest", help, Unit::Seconds, oldest);
    gauge(registry, "worker_sessions", "Connected workers", workers.len() as u64);
    gauge(registry, "alarms_open", "Alarms that are not resolved, counted up to 1000", alarms as u64);
}

/// What this server knows by itself.
fn server(app: &App, registry: &mut Registry) {
    let (counts, now) = (app.engine.counts(), app.now());
    let mut counter = |name, help, count| registry.register(name, help, ConstCounter::new(count));
    counter("commits", "Transactions of decided items", counts.batches());
    counter("commit_items", "Submits, reports and other items in these transactions", counts.items());
    let help = "Changes that were decided again, because another change of the same task came first";
    counter("commit_conflicts", help, counts.conflicts());
    counter("events_announced", "Events that the broker has confirmed", counts.announced());
    if let Some(trips) = app.engine.store_round_trips() {
        counter("store_round_trips", "Calls to the database that the server waited for", trips);
    }
    let failures = Family::<ServiceLabels, Gauge>::default();
    for service in RoundsOf::ALL {
        let labels = ServiceLabels { service: service.as_str() };
        failures.get_or_create(&labels).set(saturating(app.engine.rounds().failures(service)));
    }
    if let Some(expires_at) = app.tls.as_ref().and_then(|tls| tls.expires_at()) {
        let since_epoch = expires_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let help = "When the certificate of this server expires, in seconds since 1970";
        let time = Gauge::<i64>::default();
        time.set(saturating(since_epoch.as_secs()));
        registry.register_with_unit("certificate_expiry_time", help, Unit::Seconds, time);
    }
    registry.register("service_failures", "Failed rounds in a row of a service of this server", failures);
    let leads = Family::<ServiceLabels, Gauge>::default();
    for service in Service::ALL {
        let leader = leads.get_or_create(&ServiceLabels { service: service.name() }).clone();
        leader.set(i64::from(app.engine.leads_service(service, now)));
    }
    registry.register(
        "service_leader",
        "1 if this server is the one that runs the service for the store",
        leads,
    );
    let up = Family::<BrokerLabels, Gauge>::default();
    for (queue, place) in app.engine.offered() {
        let labels = BrokerLabels { queue: queue.to_string(), broker: place.broker };
        up.get_or_create(&labels).set(i64::from(place.trouble.is_none()));
    }
    registry.register("broker_up", "1 if the broker accepts the messages of the queue", up);
    let help = "Damaged tasks, and damaged rows of no task, that this server has met";
    gauge(registry, "damaged_tasks", help, app.engine.damaged_tasks() as u64);
    if let Some(bytes) = app.engine.resident_payload_bytes() {
        let help = "Parameters and results of active tasks in memory";
        gauge(registry, "resident_payload_bytes", help, bytes);
    }
    if let Some(bytes) = resident_bytes() {
        gauge(registry, "process_resident_memory_bytes", "Memory of the server's process", bytes);
    }
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge: Gauge = Gauge::default();
    gauge.set(saturating(value));
    registry.register(name, help, gauge);
}

fn saturating(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// What the process has in RAM, where the system reports it (the second number of `/proc/self/statm`, in pages).
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
