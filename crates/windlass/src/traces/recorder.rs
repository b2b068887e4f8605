//! What happened as spans.

use std::sync::Arc;

use tokio::sync::mpsc;
use windlass_core::{Cause, Direction, Ending, Task, Timestamp};
use windlass_engine::{AttemptEnd, AttemptOutcome, Observer, Sampling, SpanContext, TaskEnd};
use windlass_store::Clock as _;

use super::{
    SpanCounts,
    otlp::{KeyValue, Span, SpanKind, Status, StatusCode},
};
use crate::{clock::SystemClock, http::view};

/// The most bytes of a failure's message.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Queues a span for each submit, task and attempt whose trace is recorded.
pub(super) struct Recorder {
    sampling: Sampling,
    clock: Arc<SystemClock>,
    spans: mpsc::Sender<Span>,
    counts: SpanCounts,
}

impl Recorder {
    pub(super) fn new(
        sampling: Sampling,
        clock: Arc<SystemClock>,
        spans: mpsc::Sender<Span>,
        counts: SpanCounts,
    ) -> Self {
        Self { sampling, clock, spans, counts }
    }

    /// Commits do not wait for a collector.
    fn record(&self, span: Span) {
        if self.spans.try_send(span).is_err() {
            self.counts.dropped.inc();
        }
    }
}

impl Observer for Recorder {
    fn task_accepted(&self, task: &Task) {
        let trace = self.sampling.trace_of(task);
        let (true, Some(submit)) = (trace.is_sampled, trace.submit()) else { return };
        // By now it is on disk.
        let times = (task.input.created_at, self.clock.now().wall);
        let name = format!("submit {}", task.flow.name);
        self.record(span(submit, trace.caller, SpanKind::Producer, name, times, of_task(task)));
    }

    fn task_ended(&self, task: &Task, end: &TaskEnd) {
        let trace = self.sampling.trace_of(task);
        // A child task that was rolled back for its parent had succeeded before: its span has been sent.
        let is_sent = task.state.cause == Some(Cause::Parent) && end.ending == Ending::RolledBack;
        if !trace.is_sampled || is_sent {
            return;
        }
        let mut attributes = of_task(task);
        attributes.push(KeyValue::text("windlass.task.outcome", view::ending(end.ending)));
        let status = match end.ending {
            Ending::Succeeded => ok(),
            Ending::Cancelled => None,
            Ending::RolledBack | Ending::Failed => Some(failed(&task.message().unwrap_or_default())),
        };
        let times = (task.input.created_at, end.at);
        let name = format!("task {}", task.flow.name);
        let parent = Some(trace.parent_of_task());
        let span = span(trace.task(), parent, SpanKind::Internal, name, times, attributes);
        self.record(Span { status, ..span });
    }

    fn attempt_ended(&self, task: &Task, end: &AttemptEnd) {
        let trace = self.sampling.trace_of(task);
        let (true, Some((module, command))) = (trace.is_sampled, end.worker(task)) else { return };
        let is_rollback = end.key.direction == Direction::Rollback;
        let mut attributes = of_task(task);
        if let Some(step) = task.flow.steps.get(end.key.step) {
            attributes.push(KeyValue::text("windlass.step", &*step.name));
        }
        attributes.extend([
            KeyValue::text("windlass.direction", if is_rollback { "rollback" } else { "forward" }),
            KeyValue::int("windlass.attempt", end.attempt),
            KeyValue::text("windlass.module", module.as_str()),
            KeyValue::text("windlass.command", command.as_str()),
            KeyValue::text("windlass.attempt.outcome", end.outcome.as_str()),
        ]);
        if end.key.is_member() {
            attributes.push(KeyValue::int("windlass.item", end.key.member - 1));
        }
        let status = match &end.outcome {
            AttemptOutcome::Succeeded => ok(),
            AttemptOutcome::Failed(failure) => {
                attributes.push(KeyValue::int("windlass.failure.code", failure.code));
                Some(failed(&failure.message))
            }
            AttemptOutcome::Lost => Some(failed("the worker was lost")),
            AttemptOutcome::Postponed | AttemptOutcome::Stopped => None,
        };
        let context = trace.attempt(end.key, end.attempt);
        let (parent, times) = (Some(trace.task().span), (end.started_at, end.ended_at));
        let name = format!("{module}.{command}");
        let span = span(context, parent, SpanKind::Client, name, times, attributes);
        self.record(Span { status, ..span });
    }
}

/// What all spans of a task have.
fn of_task(task: &Task) -> Vec<KeyValue> {
    vec![
        KeyValue::text("windlass.task.id", task.id.to_string()),
        KeyValue::text("windlass.flow", task.flow.name.as_str()),
        KeyValue::int("windlass.flow.version", task.flow.version),
    ]
}

fn span(
    context: SpanContext,
    parent: Option<u64>,
    kind: SpanKind,
    name: String,
    (start, end): (Timestamp, Timestamp),
    attributes: Vec<KeyValue>,
) -> Span {
    Span {
        trace_id: context.trace.to_be_bytes().to_vec(),
        span_id: context.span.to_be_bytes().to_vec(),
        parent_span_id: parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
        name,
        kind: kind.into(),
        start_time_unix_nano: nanoseconds(start),
        end_time_unix_nano: nanoseconds(end.max(start)),
        attributes,
        status: None,
        flags: 1,
    }
}

fn ok() -> Option<Status> {
    Some(Status { message: String::new(), code: StatusCode::Ok.into() })
}

fn failed(message: &str) -> Status {
    let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
    Status { message: message[..end].to_owned(), code: StatusCode::Error.into() }
}

fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.0).unwrap_or_default().saturating_mul(1_000_000)
}
