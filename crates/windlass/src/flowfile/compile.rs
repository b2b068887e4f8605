//! A document into the flow the engine runs: defaults filled in, names resolved, everything checked.

use std::collections::HashMap;

use windlass_api::{
    BackoffKind, FlowDocument, OnFailure, RetryBy, RetryDocument, RetrySettings, RollbackDocument,
    RollbackSettings, Span, StepDocument,
};
use windlass_core::{
    Action, Backoff, FLOW_MODULE, Flow, Json, Millis, Name, RETRIES_MAX, Retry, SPAN_MAX, STEPS_MAX,
    StepDefinition, TIMEOUT_DEFAULT,
};

use super::{
    FlowError, Source,
    error::{quote, too_many_steps},
    fields::nearest,
};

/// Compiles a flow of a file. Its version is 0 until the catalogue gives it one.
///
/// # Errors
/// The first mistake found, with its line and column.
pub fn compile(source: &Source) -> Result<Flow, FlowError> {
    flow(source).map_err(|mistake| source.error(&mistake.path, mistake.message))
}

/// Compiles a document that has no text to point into. Its version is 0 until the catalogue gives it one.
///
/// # Errors
/// The first mistake found, with its path.
pub fn compile_document(document: &FlowDocument) -> Result<Flow, FlowError> {
    flow(document).map_err(|Mistake { path, message }| FlowError::new(format!("{path}: {message}")))
}

/// Something wrong at a path of the document, such as `steps[2].after[0]`.
struct Mistake {
    path: String,
    message: String,
}

impl Mistake {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

fn flow(document: &FlowDocument) -> Result<Flow, Mistake> {
    let name = document
        .flow
        .as_deref()
        .ok_or_else(|| Mistake::new("flow", "the flow has no name: begin with `flow: NAME`"))?;
    if document.steps.len() > STEPS_MAX {
        return Err(Mistake::new("steps", too_many_steps(document.steps.len())));
    }
    let names = step_names(&document.steps)?;
    let steps = document.steps.iter().enumerate().map(|(index, document)| step(index, document, &names));
    let steps = steps.collect::<Result<_, _>>()?;
    let name = Name::new(name).map_err(|error| Mistake::new("flow", error.to_string()))?;
    let flow = Flow {
        version: 0,
        params: params(document)?,
        retry_by: match document.retry_by.unwrap_or(RetryBy::Engine) {
            RetryBy::Engine => windlass_core::RetryBy::Engine,
            RetryBy::Module => windlass_core::RetryBy::Module,
        },
        on_failure: match document.on_failure.unwrap_or(OnFailure::Rollback) {
            OnFailure::Rollback => windlass_core::OnFailure::Rollback,
            OnFailure::Hold => windlass_core::OnFailure::Hold,
        },
        ..Flow::new(name, steps)
    };
    if let Some(circle) = circle(&flow.steps) {
        let names: Vec<&str> = circle.iter().map(|index| flow.steps[*index].name.as_str()).collect();
        let message = format!("steps wait for one another in a circle: {}; break it", names.join(" → "));
        return Err(Mistake::new(format!("steps[{}].after", circle[0]), message));
    }
    flow.check().map_err(|fault| {
        let path = fault.step.map_or_else(|| "steps".to_owned(), |index| format!("steps[{index}]"));
        Mistake::new(path, fault.message)
    })?;
    Ok(flow)
}

/// The common parameters as text; none at all and an empty object are the same.
fn params(document: &FlowDocument) -> Result<Option<Box<str>>, Mistake> {
    let Some(params) = document.params.as_ref().filter(|params| !params.is_empty()) else {
        return Ok(None);
    };
    let text = serde_json::to_string(params).map_err(|error| Mistake::new("params", error.to_string()))?;
    Json::parse(&text).map_err(|error| Mistake::new("params", format!("`params`: {error}")))?;
    Ok(Some(text.into()))
}

/// The index of every step by its name.
fn step_names(steps: &[StepDocument]) -> Result<HashMap<&str, usize>, Mistake> {
    let mut names = HashMap::new();
    for (index, step) in steps.iter().enumerate() {
        if let Some(first) = names.insert(step.name.as_str(), index) {
            return Err(Mistake::new(
                format!("steps[{index}].name"),
                format!(
                    "step {} is there twice, as step {} and step {}: give each a name of its own",
                    quote(&step.name),
                    first + 1,
                    index + 1
                ),
            ));
        }
    }
    Ok(names)
}

fn step(
    index: usize,
    document: &StepDocument,
    names: &HashMap<&str, usize>,
) -> Result<StepDefinition, Mistake> {
    let path = format!("steps[{index}]");
    let settings = RollbackSettings {
        run: document.run.clone(),
        timeout: document.timeout,
        deadline: document.deadline,
        retry: document.retry.clone(),
    };
    let rollback = match &document.rollback {
        None => None,
        Some(RollbackDocument::Full(settings)) => Some(action(&format!("{path}.rollback"), settings)?),
        Some(RollbackDocument::Short(run)) => {
            let settings = RollbackSettings { run: run.clone(), timeout: None, deadline: None, retry: None };
            Some(action(&format!("{path}.rollback"), &settings)?)
        }
    };
    Ok(StepDefinition {
        rollback,
        ..StepDefinition::new(
            Name::new(&document.name)
                .map_err(|error| Mistake::new(format!("{path}.name"), error.to_string()))?,
            action(&path, &settings)?,
            match &document.after {
                None => index.checked_sub(1).into_iter().collect(),
                Some(after) => predecessors(&path, after, names)?,
            },
        )
    })
}

/// The indices of the steps that `after` names, in ascending order.
fn predecessors(path: &str, after: &[String], names: &HashMap<&str, usize>) -> Result<Vec<usize>, Mistake> {
    let mut indices = Vec::with_capacity(after.len());
    for (position, name) in after.iter().enumerate() {
        let path = || format!("{path}.after[{position}]");
        let Some(index) = names.get(name.as_str()) else {
            let hint = match nearest(name, names.keys().copied()) {
                Some(near) => format!(": did you mean \"{near}\"?"),
                None => ": write names of steps of this flow".to_owned(),
            };
            return Err(Mistake::new(
                path(),
                format!("`after` names {}, and no step is called that{hint}", quote(name)),
            ));
        };
        if indices.contains(index) {
            return Err(Mistake::new(path(), format!("`after` names {} twice: take one away", quote(name))));
        }
        indices.push(*index);
    }
    indices.sort_unstable();
    Ok(indices)
}

fn action(path: &str, settings: &RollbackSettings) -> Result<Action, Mistake> {
    let (module, command) =
        run(&settings.run).map_err(|message| Mistake::new(format!("{path}.run"), message))?;
    Ok(Action {
        timeout: length(path, "timeout", settings.timeout)?.unwrap_or(TIMEOUT_DEFAULT),
        deadline: length(path, "deadline", settings.deadline)?,
        retry: retry(&format!("{path}.retry"), settings.retry.as_ref())?,
        ..Action::of_worker(module, command)
    })
}

/// `MODULE.COMMAND`, split at the first dot.
fn run(text: &str) -> Result<(Name, Name), String> {
    let example = "write MODULE.COMMAND, such as mysql.init_instance";
    if text.contains(['/', '\\']) {
        return Err(format!(
            "{} is a path, and `run` is a name that workers look up: {example}",
            quote(text)
        ));
    }
    let (module, command) =
        text.split_once('.').ok_or_else(|| format!("{} names no command: {example}", quote(text)))?;
    if module.is_empty() || command.is_empty() {
        let missing = if module.is_empty() { "module" } else { "command" };
        return Err(format!("{} names no {missing}: {example}", quote(text)));
    }
    if module == FLOW_MODULE {
        return Err(format!(
            "{} would start a flow as a step, which this version cannot do yet; `{FLOW_MODULE}` is reserved for it",
            quote(text)
        ));
    }
    let name = |part: &str| Name::new(part).map_err(|error| format!("`run`: {error}"));
    Ok((name(module)?, name(command)?))
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
        return Err(Mistake::new(path, format!("`retry` is {}, and the most is {RETRIES_MAX}", retry.max)));
    }
    if retry.cap > SPAN_MAX {
        return Err(Mistake::new(format!("{path}.cap"), too_long("cap")));
    }
    Ok(retry)
}

/// A length of time that cannot be 0.
fn length(path: &str, key: &str, span: Option<Span>) -> Result<Option<Millis>, Mistake> {
    let Some(length) = span.map(millis) else {
        return Ok(None);
    };
    if length == Millis(0) {
        let message = format!("a {key} of 0 would fail every attempt: give it a length, or leave it out");
        return Err(Mistake::new(format!("{path}.{key}"), message));
    }
    if length > SPAN_MAX {
        return Err(Mistake::new(format!("{path}.{key}"), too_long(key)));
    }
    Ok(Some(length))
}

fn too_long(key: &str) -> String {
    let days = SPAN_MAX.0 / Millis::from_secs(24 * 3600).0;
    format!("`{key}` is longer than {days} days, which is the most")
}

const fn millis(span: Span) -> Millis {
    Millis(span.ms)
}

/// Steps that wait for one another, the first of them again at the end, if there are such.
fn circle(steps: &[StepDefinition]) -> Option<Vec<usize>> {
    // Take away what can run until nothing more can. Each step that is left waits for one that is left as well,
    // so following these must come back to one that was met before.
    let mut waiting: Vec<bool> = vec![true; steps.len()];
    while let Some(free) = (0..steps.len())
        .find(|index| waiting[*index] && !steps[*index].after.iter().any(|before| waiting[*before]))
    {
        waiting[free] = false;
    }
    let mut path = vec![waiting.iter().position(|waiting| *waiting)?];
    loop {
        let last = *path.last()?;
        let before = *steps[last].after.iter().find(|before| waiting[**before])?;
        if let Some(start) = path.iter().position(|index| *index == before) {
            path.drain(..start);
            path.push(before);
            // People read a circle in the order things would run.
            path.reverse();
            return Some(path);
        }
        path.push(before);
    }
}
