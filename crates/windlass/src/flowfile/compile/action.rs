//! Compiles an action, forward or rollback: who runs it, its time limits and its retries.

use windlass_api::{
    ActionDocument, ActionSettings, BackoffKind, RetryDocument, RetrySettings, Span, StepDocument,
};
use windlass_core::{
    Action, Backoff, CHILD_TIMEOUT_DEFAULT, Doer, FLOW_MODULE, Millis, Name, RETRIES_MAX, Retry, SPAN_MAX,
    TIMEOUT_DEFAULT,
};

use super::{
    Mistake,
    device::{self, Keys},
    quote,
};

/// The action of a step.
pub(super) fn of_step(path: &str, document: &StepDocument) -> Result<Action, Mistake> {
    let keys = Keys::of_step(document);
    if document.device.is_some() {
        if let Some(other) =
            [("run", &document.run), ("wait", &document.wait)].iter().find(|(_, text)| text.is_some())
        {
            let message =
                format!("a step has `device` or `{}`, and this one has both: make two steps of it", other.0);
            return Err(Mistake::new(format!("{path}.{}", other.0), message));
        }
    } else if let Some(key) = keys.first() {
        let message = format!("`{key}` is for a step with `device`: name the device, or leave `{key}` out");
        return Err(Mistake::new(format!("{path}.{key}"), message));
    }
    let doer = match (&document.run, &document.wait) {
        _ if document.device.is_some() => Doer::Device(Box::new(device::job(path, &keys)?)),
        (Some(run), None) => doer(path, run)?,
        (None, Some(signal)) => Doer::Signal {
            name: Name::new(signal)
                .map_err(|error| Mistake::new(format!("{path}.wait"), format!("`wait`: {error}")))?,
        },
        (Some(_), Some(_)) => {
            let message = "a step has `run` or `wait`, and this one has both: make two steps of it";
            return Err(Mistake::new(format!("{path}.wait"), message));
        }
        (None, None) => {
            let message = "a step needs `run`: write MODULE.COMMAND, such as mysql.init_instance; or `wait`: \
                the signal it waits for; or `device`: the device that does it";
            return Err(Mistake::new(path, message));
        }
    };
    let StepDocument { start_within, timeout, deadline, retry, .. } = document;
    let settings = Settings { start_within, timeout, deadline, retry: retry.as_ref() };
    match doer {
        Doer::Worker { .. } | Doer::Device(_) => of_worker(path, doer, &settings),
        Doer::Flow { .. } => of_flow(path, doer, &settings),
        Doer::Signal { .. } => of_waiting(path, doer, &settings),
    }
}

/// The rollback action of a step, or the `on_error` action: a command, or with `on_device` a job of the step's device.
pub(super) fn of_document(path: &str, document: &ActionDocument, on_device: bool) -> Result<Action, Mistake> {
    let (run, settings) = match document {
        ActionDocument::Short(run) => (run, Settings::default()),
        ActionDocument::Full(full) => {
            let ActionSettings { run, start_within, timeout, deadline, retry, .. } = &**full;
            let (keys, settings) =
                (Keys::of_action(full), Settings { start_within, timeout, deadline, retry: retry.as_ref() });
            match (run, keys.first()) {
                (Some(run), None) => (run, settings),
                (None, _) if on_device => {
                    return of_worker(path, Doer::Device(Box::new(device::job(path, &keys)?)), &settings);
                }
                (Some(_), Some(key)) => {
                    let message =
                        format!("`{key}` is for a job of a device, and this has `run`: leave one out");
                    return Err(Mistake::new(format!("{path}.{key}"), message));
                }
                (None, Some(key)) => {
                    let message = format!("`{key}` is for the rollback of a step with `device`: write `run`");
                    return Err(Mistake::new(format!("{path}.{key}"), message));
                }
                (None, None) => {
                    let message = "it needs `run`: write MODULE.COMMAND, such as mysql.init_instance";
                    return Err(Mistake::new(path, message));
                }
            }
        }
    };
    let doer = doer(path, run)?;
    if let Doer::Flow { .. } = doer {
        let message = format!("{} is a flow, and this must be a command of a module", quote(run));
        return Err(Mistake::new(format!("{path}.run"), message));
    }
    of_worker(path, doer, &settings)
}

/// The time limits and retries of an action.
struct Settings<'a> {
    start_within: &'a Option<Span>,
    timeout: &'a Option<Span>,
    deadline: &'a Option<Span>,
    retry: Option<&'a RetryDocument>,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Self { start_within: &None, timeout: &None, deadline: &None, retry: None }
    }
}

fn of_worker(path: &str, doer: Doer, settings: &Settings<'_>) -> Result<Action, Mistake> {
    Ok(Action {
        doer,
        timeout: length(path, "timeout", *settings.timeout)?.unwrap_or(TIMEOUT_DEFAULT),
        deadline: length(path, "deadline", *settings.deadline)?,
        start_within: length(path, "start_within", *settings.start_within)?,
        retry: retry(&format!("{path}.retry"), settings.retry)?,
    })
}

/// A step that runs a flow. Its `timeout` limits each task of that flow.
fn of_flow(path: &str, doer: Doer, settings: &Settings<'_>) -> Result<Action, Mistake> {
    if settings.start_within.is_some() {
        let message = "a step that runs a flow cannot have this `start_within`: no worker takes it; `timeout` says how \
            long the task may take";
        return Err(Mistake::new(format!("{path}.start_within"), message));
    }
    Ok(Action {
        doer,
        timeout: length(path, "timeout", *settings.timeout)?.unwrap_or(CHILD_TIMEOUT_DEFAULT),
        deadline: length(path, "deadline", *settings.deadline)?,
        start_within: None,
        retry: retry(&format!("{path}.retry"), settings.retry)?,
    })
}

/// A step that waits for a signal. Its `timeout` limits the wait, since there are no attempts.
fn of_waiting(path: &str, doer: Doer, settings: &Settings<'_>) -> Result<Action, Mistake> {
    let unfit = [
        (
            "start_within",
            settings.start_within.is_some(),
            "no worker takes it: `timeout` says how long it waits",
        ),
        (
            "deadline",
            settings.deadline.is_some() && settings.timeout.is_some(),
            "it is the same as its `timeout`",
        ),
        ("retry", settings.retry.is_some(), "there is nothing to try again"),
    ];
    if let Some((key, _, why)) = unfit.iter().find(|(_, there, _)| *there) {
        let message = format!("a step that waits for a signal cannot have this `{key}`: {why}");
        return Err(Mistake::new(format!("{path}.{key}"), message));
    }
    let timeout = length(path, "timeout", *settings.timeout)?;
    Ok(Action {
        doer,
        timeout: TIMEOUT_DEFAULT,
        deadline: timeout.or(length(path, "deadline", *settings.deadline)?),
        start_within: None,
        retry: Retry::default(),
    })
}

/// `MODULE.COMMAND`, split at the first dot, or `flow.NAME`.
fn doer(path: &str, text: &str) -> Result<Doer, Mistake> {
    let mistake = |message: String| Mistake::new(format!("{path}.run"), message);
    let example = "write MODULE.COMMAND, such as mysql.init_instance";
    if text.contains(['/', '\\']) {
        return Err(mistake(format!(
            "{} is a path, and `run` is a name that workers look up: {example}",
            quote(text)
        )));
    }
    let Some((module, command)) = text.split_once('.') else {
        return Err(mistake(format!("{} names no command: {example}", quote(text))));
    };
    if module.is_empty() || command.is_empty() {
        let missing = if module.is_empty() { "module" } else { "command" };
        return Err(mistake(format!("{} names no {missing}: {example}", quote(text))));
    }
    let name = |part: &str| Name::new(part).map_err(|error| mistake(format!("`run`: {error}")));
    if module == FLOW_MODULE {
        return Ok(Doer::Flow { name: name(command)? });
    }
    Ok(Doer::Worker { module: name(module)?, command: name(command)? })
}

fn retry(path: &str, document: Option<&RetryDocument>) -> Result<Retry, Mistake> {
    let short = |max| RetrySettings { max, backoff: None, base: None, cap: None };
    let RetrySettings { max, backoff, base, cap } = match document {
        None => return Ok(Retry::default()),
        Some(RetryDocument::Short(max)) => short(*max),
        Some(RetryDocument::Full(settings)) => settings.clone(),
    };
    let retry = Retry {
        max,
        backoff: match backoff.unwrap_or(BackoffKind::Exponential) {
            BackoffKind::Exponential => Backoff::Exponential,
            BackoffKind::Fixed => Backoff::Fixed,
            BackoffKind::None => Backoff::None,
        },
        base: base.map_or(Retry::default().base, millis),
        cap: cap.map_or(Retry::default().cap, millis),
    };
    if retry.base > retry.cap {
        let [base, cap] = [retry.base, retry.cap].map(|length| Span::from_ms(length.0));
        return Err(Mistake::new(
            format!("{path}.base"),
            format!("the first delay `base` ({base}) is longer than the longest, `cap` ({cap})"),
        ));
    }
    if retry.max > RETRIES_MAX {
        return Err(Mistake::new(path, format!("`retry` is {}: the limit is {RETRIES_MAX}", retry.max)));
    }
    if retry.cap > SPAN_MAX {
        return Err(Mistake::new(format!("{path}.cap"), too_long("cap")));
    }
    Ok(retry)
}

/// A duration that must not be 0.
pub(super) fn length(path: &str, key: &str, span: Option<Span>) -> Result<Option<Millis>, Mistake> {
    let length = delay(path, key, span)?;
    if length == Some(Millis(0)) {
        let of = if matches!(path, "" | "unique") { "task" } else { "attempt" };
        let message = match key {
            "for" => "a `for` of 0 has no effect: give it a length, or leave it out".to_owned(),
            "retention" => {
                "a retention of 0 would delete every task at its end: give it a length, or leave it out"
                    .to_owned()
            }
            _ => format!("a {key} of 0 would fail every {of}: give it a length, or leave it out"),
        };
        return Err(Mistake::new(inside(path, key), message));
    }
    Ok(length)
}

/// A duration.
pub(super) fn delay(path: &str, key: &str, span: Option<Span>) -> Result<Option<Millis>, Mistake> {
    let length = span.map(millis);
    if length.is_some_and(|length| length > SPAN_MAX) {
        return Err(Mistake::new(inside(path, key), too_long(key)));
    }
    Ok(length)
}

/// The path of a key; a key of the flow itself has no prefix.
fn inside(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn too_long(key: &str) -> String {
    let days = SPAN_MAX.0 / Millis::from_secs(24 * 3600).0;
    format!("`{key}` is too long: the limit is {days} days")
}

const fn millis(span: Span) -> Millis {
    Millis(span.ms)
}
