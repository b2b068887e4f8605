//! Converts a flow back to its document, without defaults.

use windlass_api::{
    self as api, ActionDocument, ActionSettings, BackoffKind, FlowDocument, LockDocument, LockExpression,
    OnFailure, OnPartialDocument, RetryBy, RetryDocument, RetrySettings, RollbackParams, Span, StepDocument,
    UniqueDocument, UniqueSettings, UniqueWhile,
};
use windlass_core::{
    Action, Backoff, CHILD_TIMEOUT_DEFAULT, DEATHS_MAX, Doer, During, Expression, Flow, JobArgs, JobTopic,
    LockRef, Millis, OnConflict, OnPartial, PARALLEL_DEFAULT, Retry, Role, SETTLE_DEFAULT, StepDefinition,
    TIMEOUT_DEFAULT, Unique, WhileOffline, device_in_expression, device_of_lock,
};

use super::{json, tree::Node};

/// The document of a flow; [`compile_document`](super::compile_document) makes the same flow from it.
#[must_use]
pub fn document(flow: &Flow) -> FlowDocument {
    let key = common_key(flow);
    let plain = flow.steps.iter().enumerate().filter(|(_, step)| step.role == Role::Plain);
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
        deadline: flow.deadline.map(span),
        unique: flow.unique.as_ref().map(unique),
        exclusive: flow.exclusive.as_ref().map(lock),
        retention: flow.retention.map(span),
        rollback_params: match flow.rollback_params {
            windlass_core::RollbackParams::Step => None,
            windlass_core::RollbackParams::StepAndResult => Some(RollbackParams::StepAndResult),
            windlass_core::RollbackParams::Shared => Some(RollbackParams::Shared),
        },
        deaths_max: Some(flow.deaths_max).filter(|max| *max != DEATHS_MAX),
        secret: flow.secret.iter().map(ToString::to_string).collect(),
        key: key.map(text),
        steps: plain.map(|(index, definition)| step(flow, index, definition, key)).collect(),
        on_error: on_error(flow).map(|definition| action(&definition.run)),
    }
}

fn on_error(flow: &Flow) -> Option<&StepDefinition> {
    flow.steps.iter().find(|step| step.role == Role::OnError)
}

/// The common concurrency key of the flow: that of the step for errors, which cannot have its own; else one
/// that all steps of workers have.
fn common_key(flow: &Flow) -> Option<&Expression> {
    if let Some(on_error) = on_error(flow) {
        return on_error.key.as_ref();
    }
    let mut keys = flow.steps.iter().filter(|step| step.run.worker().is_some()).map(|step| step.key.as_ref());
    let first = keys.next()??;
    keys.all(|key| key == Some(first)).then_some(first)
}

fn unique(unique: &Unique) -> UniqueDocument {
    let key = text(&unique.key);
    let (during, period) = match unique.during {
        During::Running => (None, None),
        During::Pending => (Some(UniqueWhile::Pending), None),
        During::Finished(period) => (Some(UniqueWhile::Finished), Some(span(period))),
    };
    let on_conflict = match unique.on_conflict {
        OnConflict::Return => None,
        OnConflict::Fail => Some(api::OnConflict::Fail),
    };
    if during.is_none() && on_conflict.is_none() {
        return UniqueDocument::Short(key);
    }
    UniqueDocument::Full(UniqueSettings { key, during, period, on_conflict })
}

fn text(expression: &Expression) -> String {
    expression.source().to_owned()
}

/// The common parameters. They were checked when the flow was compiled, so this is always an object.
fn params(text: &str) -> Option<serde_json::Map<String, serde_json::Value>> {
    match json::tree(text).map(Node::into_json) {
        Ok(serde_json::Value::Object(params)) => Some(params),
        _ => None,
    }
}

fn step(flow: &Flow, index: usize, definition: &StepDefinition, key: Option<&Expression>) -> StepDocument {
    let settings = settings(&definition.run);
    let linear: Vec<usize> = index.checked_sub(1).into_iter().collect();
    let names = || definition.after.iter().filter_map(|before| flow.steps.get(*before));
    let (run, wait) = match &definition.run.doer {
        Doer::Signal { name } => (None, Some(name.to_string())),
        Doer::Worker { .. } | Doer::Flow { .. } => (settings.run, None),
        Doer::Device(_) => (None, None),
    };
    // `timeout` of a step that waits for a signal has the meaning of other steps' deadline.
    let (timeout, deadline) = match &definition.run.doer {
        Doer::Signal { .. } => (settings.deadline, None),
        Doer::Worker { .. } | Doer::Flow { .. } | Doer::Device(_) => (settings.timeout, settings.deadline),
    };
    // The first lock of a step with a device is the device.
    let (device, locks) = match (&definition.run.doer, &definition.locks[..]) {
        (Doer::Device(_), [device, locks @ ..]) => (Some(device_of(device)), locks),
        (_, locks) => (None, locks),
    };
    StepDocument {
        name: definition.name.as_str().to_owned(),
        run,
        wait,
        device,
        topic: settings.topic,
        args: settings.args,
        done: settings.done,
        offline: settings.offline,
        settle: settings.settle,
        when: definition.when.as_ref().map(text),
        each: definition.each.as_ref().map(|each| each.list.to_string()),
        parallel: definition
            .each
            .as_ref()
            .map(|each| each.parallel)
            .filter(|parallel| *parallel != PARALLEL_DEFAULT),
        on_partial: match definition.on_partial {
            OnPartial::Fail => None,
            OnPartial::Continue => Some(OnPartialDocument::Word(windlass_api::OnPartial::Continue)),
            OnPartial::AtLeast(least) => Some(OnPartialDocument::AtLeast(least)),
        },
        delay: definition.delay.map(span),
        start_within: settings.start_within,
        timeout,
        deadline,
        retry: settings.retry,
        key: definition.key.as_ref().filter(|own| Some(*own) != key).map(text),
        locks: (!locks.is_empty()).then(|| locks.iter().map(lock).collect()),
        rollback: definition.rollback.as_ref().map(action),
        after: (definition.after != linear)
            .then(|| names().map(|step| step.name.as_str().to_owned()).collect()),
    }
}

/// The device of the lock that it is.
fn device_of(lock: &LockRef) -> LockDocument {
    match lock {
        LockRef::Name(name) => {
            LockDocument::Name(device_of_lock(name).map_or_else(|| name.to_string(), |name| name.to_string()))
        }
        LockRef::Expression(computed) => {
            let source = computed.source();
            let expression = device_in_expression(source).unwrap_or(source).to_owned();
            LockDocument::Expression(LockExpression { expression })
        }
    }
}

fn lock(lock: &LockRef) -> LockDocument {
    match lock {
        LockRef::Name(name) => LockDocument::Name(name.to_string()),
        LockRef::Expression(expression) => {
            LockDocument::Expression(LockExpression { expression: text(expression) })
        }
    }
}

fn action(definition: &Action) -> ActionDocument {
    match settings(definition) {
        ActionSettings {
            run: Some(run),
            start_within: None,
            timeout: None,
            deadline: None,
            retry: None,
            ..
        } => ActionDocument::Short(run),
        settings => ActionDocument::Full(Box::new(settings)),
    }
}

fn settings(action: &Action) -> ActionSettings {
    let job = action.device_job();
    ActionSettings {
        run: job.is_none().then(|| action.doer.to_string()),
        topic: job.map(|job| match &job.topic {
            JobTopic::Fixed(topic) => LockDocument::Name(topic.to_string()),
            JobTopic::Expression(computed) => {
                LockDocument::Expression(LockExpression { expression: text(computed) })
            }
        }),
        args: job.and_then(|job| match &job.args {
            JobArgs::Fixed(args) => params(args).filter(|args| !args.is_empty()),
            JobArgs::Expression(computed) => {
                Some([("expression".to_owned(), text(computed).into())].into_iter().collect())
            }
        }),
        done: job.and_then(|job| Some(job.done.as_ref()?.to_string())),
        offline: job.filter(|job| job.offline == WhileOffline::Fail).map(|_| api::WhileOffline::Fail),
        settle: job.and_then(|job| unless(job.settle, SETTLE_DEFAULT)),
        start_within: action.start_within.map(span),
        timeout: match action.doer {
            Doer::Flow { .. } => unless(action.timeout, CHILD_TIMEOUT_DEFAULT),
            Doer::Worker { .. } | Doer::Signal { .. } | Doer::Device(_) => {
                unless(action.timeout, TIMEOUT_DEFAULT)
            }
        },
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
