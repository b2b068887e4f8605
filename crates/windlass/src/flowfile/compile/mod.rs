//! Compiles a document to the flow that the engine runs: fills in defaults, resolves names, checks
//! everything.

mod action;
mod circle;
mod device;
mod step;

use std::collections::HashMap;

use windlass_api::{
    self as api, FlowDocument, OnFailure, RetryBy, RollbackParams, UniqueDocument, UniqueSettings,
    UniqueWhile,
};
use windlass_core::{
    DEATHS_MAX, During, Expression, Flow, FlowFault, Json, Name, OnConflict, STEPS_MAX, Unique,
};

use super::{
    FlowError, Source,
    error::{quote, too_many_steps},
};
use circle::circle;

/// The name of the step that a flow's `on_error` becomes.
pub(super) const ON_ERROR: &str = "on_error";

/// Compiles a flow of a file. Its version is 0 until the catalogue gives it one.
///
/// # Errors
/// The first mistake found, with its line and column. Of steps: the first one of each.
pub fn compile(source: &Source) -> Result<Flow, FlowError> {
    let place = |mistake: Mistake| source.error(&mistake.path, mistake.message);
    flow(source).map_err(|mut mistake| {
        let others = std::mem::take(&mut mistake.others).into_iter().map(place).collect();
        FlowError { others, ..place(mistake) }
    })
}

/// Compiles a document without a source text. Its version is 0 until the catalogue assigns one.
///
/// # Errors
/// The first mistake found, with its path.
pub fn compile_document(document: &FlowDocument) -> Result<Flow, FlowError> {
    let with_path = |mistake: Mistake| FlowError::new(format!("{}: {}", mistake.path, mistake.message));
    flow(document).map_err(|mut mistake| {
        let others = std::mem::take(&mut mistake.others).into_iter().map(with_path).collect();
        FlowError { others, ..with_path(mistake) }
    })
}

/// A mistake at a path of the document, such as `steps[2].after[0]`.
struct Mistake {
    path: String,
    message: String,
    /// The first mistakes of further steps.
    others: Vec<Mistake>,
}

impl Mistake {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), others: Vec::new() }
    }
}

fn flow(document: &FlowDocument) -> Result<Flow, Mistake> {
    let name = document
        .flow
        .as_deref()
        .ok_or_else(|| Mistake::new("flow", "the flow has no name: begin with `flow: NAME`"))?;
    let name = Name::new(name).map_err(|error| Mistake::new("flow", error.to_string()))?;
    let count = document.steps.len() + usize::from(document.on_error.is_some());
    if count > STEPS_MAX {
        return Err(Mistake::new("steps", too_many_steps(count)));
    }
    let names = step_names(document)?;
    let key = document.key.as_deref().map(|text| expression("key", "key", text)).transpose()?;
    let compiled = document.steps.iter().enumerate();
    let compiled = compiled.map(|(index, document)| step::step(index, document, &names, key.as_ref()));
    let mut steps = all(compiled)?;
    if let Some(on_error) = &document.on_error {
        steps.push(step::on_error(on_error, key)?);
    }
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
        deadline: action::length("", "deadline", document.deadline)?,
        unique: document.unique.as_ref().map(unique).transpose()?,
        exclusive: document
            .exclusive
            .as_ref()
            .map(|queue| step::lock("exclusive", "exclusive", queue))
            .transpose()?,
        retention: action::length("", "retention", document.retention)?,
        rollback_params: match document.rollback_params.unwrap_or(RollbackParams::Step) {
            RollbackParams::Step => windlass_core::RollbackParams::Step,
            RollbackParams::StepAndResult => windlass_core::RollbackParams::StepAndResult,
            RollbackParams::Shared => windlass_core::RollbackParams::Shared,
        },
        deaths_max: document.deaths_max.unwrap_or(DEATHS_MAX),
        secret: secret(&document.secret)?,
        ..Flow::new(name, steps)
    };
    if let Some(circle) = circle(&flow.steps) {
        let names: Vec<&str> = circle.iter().map(|index| flow.steps[*index].name.as_str()).collect();
        let message = format!("steps wait for one another in a circle: {}; break it", names.join(" → "));
        return Err(Mistake::new(format!("steps[{}].after", circle[0]), message));
    }
    flow.check().map_err(|fault| of_fault(fault, document))?;
    Ok(flow)
}

/// All of them, or all mistakes.
fn all<T>(results: impl Iterator<Item = Result<T, Mistake>>) -> Result<Vec<T>, Mistake> {
    let (mut found, mut mistakes) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(one) => found.push(one),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    let mut mistakes = mistakes.into_iter();
    match mistakes.next() {
        None => Ok(found),
        Some(first) => Err(Mistake { others: mistakes.collect(), ..first }),
    }
}

/// A mistake found by the core, at the key that its message names first: `rollback` or, in backquotes, ``
/// `delay` ``.
fn of_fault(FlowFault { step, message }: FlowFault, document: &FlowDocument) -> Mistake {
    let key = message.split('`').nth(1).and_then(|quoted| quoted.split(':').next()).unwrap_or_default();
    let path = match step {
        None if document.steps.is_empty() => "steps".to_owned(),
        None => key.to_owned(),
        Some(index) if index < document.steps.len() => format!("steps[{index}].{key}"),
        Some(_) => format!("{ON_ERROR}.{key}"),
    };
    Mistake::new(path, message)
}

/// The common parameters as text. An empty object means none.
fn params(document: &FlowDocument) -> Result<Option<Box<str>>, Mistake> {
    let Some(params) = document.params.as_ref().filter(|params| !params.is_empty()) else {
        return Ok(None);
    };
    let text = serde_json::to_string(params).map_err(|error| Mistake::new("params", error.to_string()))?;
    Json::parse(&text).map_err(|error| Mistake::new("params", format!("`params`: {error}")))?;
    Ok(Some(text.into()))
}

/// The names of its secret parameters.
fn secret(names: &[String]) -> Result<Vec<Name>, Mistake> {
    let name = |(index, name): (usize, &String)| {
        Name::new(name).map_err(|error| Mistake::new(format!("secret[{index}]"), error.to_string()))
    };
    names.iter().enumerate().map(name).collect()
}

/// The unique key of the flow's tasks.
fn unique(document: &UniqueDocument) -> Result<Unique, Mistake> {
    let UniqueSettings { key, during, period, on_conflict } = match document {
        UniqueDocument::Short(text) => {
            let key = expression("unique", "unique", text)?;
            return Ok(Unique { key, during: During::Running, on_conflict: OnConflict::Return });
        }
        UniqueDocument::Full(settings) => settings,
    };
    let period = action::length("unique", "for", *period)?;
    let during = match (during.unwrap_or(UniqueWhile::Running), period) {
        (UniqueWhile::Finished, Some(period)) => During::Finished(period),
        (UniqueWhile::Finished, None) => {
            let message = "`while: finished` needs `for`: how long after its end, as in `for: 1h`";
            return Err(Mistake::new("unique.while", message));
        }
        (_, Some(_)) => {
            let message =
                "`for` counts from a task's end: write `while: finished` beside it, or leave it out";
            return Err(Mistake::new("unique.for", message));
        }
        (UniqueWhile::Pending, None) => During::Pending,
        (UniqueWhile::Running, None) => During::Running,
    };
    let on_conflict = match on_conflict {
        None | Some(api::OnConflict::Return) => OnConflict::Return,
        Some(api::OnConflict::Fail) => OnConflict::Fail,
    };
    Ok(Unique { key: expression("unique.key", "key", key)?, during, on_conflict })
}

/// The index of every step by its name.
fn step_names(document: &FlowDocument) -> Result<HashMap<&str, usize>, Mistake> {
    let mut names = HashMap::new();
    for (index, step) in document.steps.iter().enumerate() {
        let path = || format!("steps[{index}].name");
        if step.name == ON_ERROR && document.on_error.is_some() {
            let message = format!(
                "`{ON_ERROR}` is the name of the flow's step for errors: give this step another name"
            );
            return Err(Mistake::new(path(), message));
        }
        if let Some(first) = names.insert(step.name.as_str(), index) {
            return Err(Mistake::new(
                path(),
                format!(
                    "duplicate step {}: step {} and step {} need different names",
                    quote(&step.name),
                    first + 1,
                    index + 1
                ),
            ));
        }
    }
    Ok(names)
}

/// A condition at a path.
fn condition(path: &str, key: &str, text: &str) -> Result<Expression, Mistake> {
    let condition = compiled(path, key, text)?;
    // Reports mistakes of constant expressions now, not in the first task.
    if condition.is_constant() {
        condition.holds_always().map_err(|message| Mistake::new(path, format!("`{key}`: {message}")))?;
    }
    Ok(condition)
}

/// An expression for a key or a name, at a path.
fn expression(path: impl Into<String>, key: &str, text: &str) -> Result<Expression, Mistake> {
    let path = path.into();
    let expression = compiled(&path, key, text)?;
    if expression.is_constant() {
        expression.constant_text().map_err(|message| Mistake::new(&path, format!("`{key}`: {message}")))?;
    }
    Ok(expression)
}

/// An expression at a path. Its message contains the place within the expression: the file may quote or fold
/// the text, so that place has no fixed position in the file.
fn compiled(path: &str, key: &str, text: &str) -> Result<Expression, Mistake> {
    Expression::compile(text).map_err(|error| {
        let place = match (error.line, error.column) {
            (Some(1) | None, Some(column)) => format!(" (column {column} of the expression)"),
            (Some(line), Some(column)) => format!(" (line {line}, column {column} of the expression)"),
            (_, None) => String::new(),
        };
        Mistake::new(path, format!("`{key}`: {}{place}", error.message))
    })
}
