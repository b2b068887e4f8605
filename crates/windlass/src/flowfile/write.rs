//! The way back: a flow as the document that makes it, with the defaults left out.

use windlass_api::{
    BackoffKind, FlowDocument, OnFailure, RetryBy, RetryDocument, RetrySettings, RollbackDocument,
    RollbackSettings, Span, StepDocument,
};
use windlass_core::{Action, Backoff, Flow, Millis, Retry, StepDefinition, TIMEOUT_DEFAULT};

use super::{json, tree::Node};

/// The document of a flow; [`compile_document`](super::compile_document) makes the same flow of it again.
#[must_use]
pub fn document(flow: &Flow) -> FlowDocument {
    FlowDocument {
        flow: Some(flow.name.as_str().to_owned()),
        params: flow.params.as_deref().and_then(params),
        retry_by: match flow.retry_by {
            windlass_core::RetryBy::Engine => None,
            windlass_core::RetryBy::Module => Some(RetryBy::Module),
        },
        on_failure: match flow.on_failure {
            windlass_core::OnFailure::Rollback => None,
            windlass_core::OnFailure::Hold => Some(OnFailure::Hold),
        },
        steps: flow
            .steps
            .iter()
            .enumerate()
            .map(|(index, definition)| step(flow, index, definition))
            .collect(),
    }
}

/// The common parameters. They were checked when the flow was compiled, so this always finds an object.
fn params(text: &str) -> Option<serde_json::Map<String, serde_json::Value>> {
    match json::tree(text).map(Node::into_json) {
        Ok(serde_json::Value::Object(params)) => Some(params),
        _ => None,
    }
}

fn step(flow: &Flow, index: usize, definition: &StepDefinition) -> StepDocument {
    let RollbackSettings { run, timeout, deadline, retry } = action(&definition.run);
    let linear: Vec<usize> = index.checked_sub(1).into_iter().collect();
    let names = || definition.after.iter().filter_map(|before| flow.steps.get(*before));
    StepDocument {
        name: definition.name.as_str().to_owned(),
        run,
        timeout,
        deadline,
        retry,
        rollback: definition.rollback.as_ref().map(rollback),
        after: (definition.after != linear)
            .then(|| names().map(|step| step.name.as_str().to_owned()).collect()),
    }
}

fn rollback(definition: &Action) -> RollbackDocument {
    match action(definition) {
        RollbackSettings { run, timeout: None, deadline: None, retry: None } => RollbackDocument::Short(run),
        settings => RollbackDocument::Full(settings),
    }
}

fn action(action: &Action) -> RollbackSettings {
    RollbackSettings {
        run: action.doer.to_string(),
        timeout: unless(action.timeout, TIMEOUT_DEFAULT),
        deadline: action.deadline.map(span),
        retry: (action.retry != Retry::default()).then(|| retry(&action.retry)),
    }
}

fn retry(retry: &Retry) -> RetryDocument {
    let default = Retry::default();
    let settings = RetrySettings {
        max: retry.max,
        backoff: match retry.backoff {
            Backoff::Exponential => None,
            Backoff::Fixed => Some(BackoffKind::Fixed),
            Backoff::None => Some(BackoffKind::None),
        },
        base: unless(retry.base, default.base),
        cap: unless(retry.cap, default.cap),
    };
    match settings {
        RetrySettings { max, backoff: None, base: None, cap: None } => RetryDocument::Short(max),
        settings => RetryDocument::Full(settings),
    }
}

fn unless(length: Millis, default: Millis) -> Option<Span> {
    (length != default).then(|| span(length))
}

const fn span(length: Millis) -> Span {
    Span::from_ms(length.0)
}
