//! Documents of triggers.

use windlass_api as api;
use windlass_core::{
    CatchUp, Json, Millis, Overlap, Signature, Timestamp, Timing, Trigger, TriggerSource, TriggerTopic,
    TriggeredFlow,
};
use windlass_engine::{TriggerCause, TriggerChange, TriggerEntry, TriggerOutcome, TriggerReport};

use crate::http::tasks::view;

/// A trigger.
pub(super) fn trigger(report: &TriggerReport, warnings: Vec<String>) -> api::Trigger {
    let TriggerReport { trigger, next_at } = report;
    api::Trigger {
        name: trigger.name.to_string(),
        definition: definition(trigger),
        paused: trigger.paused.is_some(),
        paused_at: trigger.paused.as_ref().map(|pause| view::time(pause.at)),
        paused_by: trigger.paused.as_ref().and_then(|pause| Some(pause.by.as_ref()?.to_string())),
        next_at: next_at.map(view::time),
        last_at: trigger.fired.map(view::time),
        waiting: trigger.waiting.len(),
        created_at: view::time(trigger.created_at),
        changed_at: view::time(trigger.changed_at),
        warnings,
    }
}

/// The definition, without its secret.
fn definition(trigger: &Trigger) -> api::TriggerDocument {
    let definition = &trigger.definition;
    let mut document = api::TriggerDocument {
        trigger: Some(trigger.name.to_string()),
        classic: definition.classic.then_some(true),
        flows: definition.flows.iter().map(flow).collect(),
        ..api::TriggerDocument::default()
    };
    let span = |length: Millis| Some(api::Span::from_ms(length.0));
    match &definition.source {
        TriggerSource::Schedule(schedule) => {
            match &schedule.timing {
                Timing::Cron { expression, timezone } => {
                    document.cron = Some(expression.to_string());
                    document.timezone = Some(timezone.to_string());
                }
                Timing::Every { interval } => document.every = span(*interval),
            }
            document.jitter = span(schedule.jitter).filter(|jitter| jitter.ms > 0);
            (document.catch_up, document.catch_up_window) = match schedule.catch_up {
                CatchUp::None => (None, None),
                CatchUp::One { within } => (Some(api::TriggerCatchUp::One), span(within)),
                CatchUp::All { within } => (Some(api::TriggerCatchUp::All), span(within)),
            };
            document.overlap = match schedule.overlap {
                Overlap::Allow => None,
                Overlap::Skip => Some(api::TriggerOverlap::Skip),
                Overlap::Queue => Some(api::TriggerOverlap::Queue),
                Overlap::CancelOther => Some(api::TriggerOverlap::CancelOther),
            };
        }
        TriggerSource::Http(signature) => {
            let (header, unsigned) = match signature {
                Signature::Unsigned => (None, Some(true)),
                Signature::Standard { .. } => (None, None),
                Signature::Hmac { header, .. } => (Some(header.to_string()), None),
            };
            document.http = Some(api::TriggerHttp { secret: None, header, unsigned });
        }
        TriggerSource::Intake => document.intake = Some(true),
        TriggerSource::Mqtt(TriggerTopic { filter, id }) => {
            let id = id.as_ref().map(|id| id.source().to_owned());
            document.mqtt = Some(api::TriggerMqtt { topic: filter.to_string(), id });
        }
    }
    document
}

fn flow(flow: &TriggeredFlow) -> api::TriggerFlow {
    let params = Some(&flow.params).filter(|params| !Json::is_empty(params));
    api::TriggerFlow {
        flow: flow.flow.to_string(),
        params: params.and_then(|params| serde_json::from_str(params.as_str()).ok()),
        map: flow.map.iter().map(|(name, map)| (name.clone(), map.source().to_owned())).collect(),
        labels: flow.labels.clone(),
        priority: Some(i64::from(flow.priority)).filter(|priority| *priority != 0),
    }
}

/// What applying has changed.
pub(super) fn change(change: TriggerChange) -> api::FlowChange {
    match change {
        TriggerChange::Created => api::FlowChange::Created,
        TriggerChange::Updated => api::FlowChange::Updated,
        TriggerChange::Unchanged => api::FlowChange::Unchanged,
    }
}

/// An entry of the history.
pub(super) fn entry(at: Timestamp, entry: TriggerEntry) -> api::TriggerEntry {
    let cause = match entry.cause {
        TriggerCause::Schedule => "schedule",
        TriggerCause::Request => "request",
        TriggerCause::Message => "message",
        TriggerCause::Operator => "operator",
    };
    let outcome = match entry.outcome {
        TriggerOutcome::Fired => "fired",
        TriggerOutcome::Skipped => "skipped",
        TriggerOutcome::Queued => "queued",
        TriggerOutcome::Missed => "missed",
    };
    api::TriggerEntry {
        at: view::time(at),
        cause: cause.to_owned(),
        instant: entry.instant.map(view::time),
        outcome: outcome.to_owned(),
        missed: entry.missed,
        tasks: entry.tasks.into_iter().map(task).collect(),
        by: entry.by.map(|by| by.to_string()),
    }
}

fn task(task: windlass_engine::TriggerEntryTask) -> api::TriggerEntryTask {
    api::TriggerEntryTask {
        flow: task.flow.to_string(),
        task: task.task.map(|task| task.to_string()),
        problem: task.problem.map(Into::into),
    }
}
