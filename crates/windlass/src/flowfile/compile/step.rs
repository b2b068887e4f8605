//! Compiles one step: its place in the graph, its conditions and its repetitions.

use std::collections::HashMap;

use windlass_api::{ActionDocument, LockDocument, OnPartialDocument, StepDocument};
use windlass_core::{
    Each, Expression, LockRef, NAME_BYTES_MAX, Name, OnPartial, PARALLEL_DEFAULT, Role, StepDefinition,
};

use super::{Mistake, ON_ERROR, action, condition, device, expression, quote};
use crate::flowfile::fields::nearest;

/// A step of the list. `key` is the concurrency key of the flow, for steps without their own.
pub(super) fn step(
    index: usize,
    document: &StepDocument,
    names: &HashMap<&str, usize>,
    key: Option<&Expression>,
) -> Result<StepDefinition, Mistake> {
    let path = format!("steps[{index}]");
    let name =
        Name::new(&document.name).map_err(|error| Mistake::new(format!("{path}.name"), error.to_string()))?;
    let run = action::of_step(&path, document)?;
    if let (Some(_), None) = (&document.key, run.worker()) {
        let message = "`key` is for limits on what workers do, and no worker does this step: leave it out";
        return Err(Mistake::new(format!("{path}.key"), message));
    }
    let rollback = document.rollback.as_ref();
    let rollback = rollback.map(|document| {
        action::of_document(&format!("{path}.rollback"), document, run.device_job().is_some())
    });
    let after = match &document.after {
        None => index.checked_sub(1).into_iter().collect(),
        Some(after) => predecessors(&path, after, names)?,
    };
    Ok(StepDefinition {
        rollback: rollback.transpose()?,
        when: when(&path, document)?,
        each: each(&path, document)?,
        on_partial: match document.on_partial {
            None | Some(OnPartialDocument::Word(windlass_api::OnPartial::Fail)) => OnPartial::Fail,
            Some(OnPartialDocument::Word(windlass_api::OnPartial::Continue)) => OnPartial::Continue,
            Some(OnPartialDocument::AtLeast(least)) => OnPartial::AtLeast(least),
        },
        delay: action::delay(&path, "delay", document.delay)?,
        key: own_key(&path, document)?.or_else(|| key.filter(|_| run.worker().is_some()).cloned()),
        locks: locks(&path, document)?,
        ..StepDefinition::new(name, run, after)
    })
}

fn when(path: &str, document: &StepDocument) -> Result<Option<Expression>, Mistake> {
    document.when.as_deref().map(|text| condition(&format!("{path}.when"), "when", text)).transpose()
}

fn own_key(path: &str, document: &StepDocument) -> Result<Option<Expression>, Mistake> {
    document.key.as_deref().map(|text| expression(format!("{path}.key"), "key", text)).transpose()
}

/// The step that runs on errors.
pub(super) fn on_error(
    document: &ActionDocument,
    key: Option<Expression>,
) -> Result<StepDefinition, Mistake> {
    let name = Name::new(ON_ERROR).map_err(|error| Mistake::new(ON_ERROR, error.to_string()))?;
    let run = action::of_document(ON_ERROR, document, false)?;
    Ok(StepDefinition { role: Role::OnError, key, ..StepDefinition::new(name, run, Vec::new()) })
}

/// The list whose elements are the items of the step, and how many of them run concurrently.
fn each(path: &str, document: &StepDocument) -> Result<Option<Each>, Mistake> {
    let Some(list) = &document.each else {
        return match document.parallel {
            None => Ok(None),
            Some(_) => {
                let message = "`parallel` is for a step with `each`: name the parameter with the list, as in `each: hosts`";
                Err(Mistake::new(format!("{path}.parallel"), message))
            }
        };
    };
    if !(1..=NAME_BYTES_MAX).contains(&list.len()) {
        let message = format!(
            "`each` is {}: write the name of the parameter with the list, of 1 to {NAME_BYTES_MAX} bytes",
            quote(list)
        );
        return Err(Mistake::new(format!("{path}.each"), message));
    }
    Ok(Some(Each { list: list.as_str().into(), parallel: document.parallel.unwrap_or(PARALLEL_DEFAULT) }))
}

/// The lock or exclusive queue at `path`, which `key` names.
pub(super) fn lock(path: &str, key: &str, document: &LockDocument) -> Result<LockRef, Mistake> {
    match document {
        LockDocument::Name(name) => {
            let name = Name::new(name).map_err(|error| {
                let hint = if Expression::compile(name).is_ok() {
                    ". If the name depends on parameters, write { expression: TEXT }"
                } else {
                    ""
                };
                Mistake::new(path, format!("`{key}`: {error}{hint}"))
            })?;
            Ok(LockRef::Name(name))
        }
        LockDocument::Expression(lock) => {
            let expression = expression(format!("{path}.expression"), "expression", &lock.expression)?;
            Ok(LockRef::Expression(expression))
        }
    }
}

/// The locks of a step. That of its device is the first.
fn locks(path: &str, document: &StepDocument) -> Result<Vec<LockRef>, Mistake> {
    let documents = document.locks.as_deref().unwrap_or_default();
    let device = document.device.as_ref().map(|document| device::device(&format!("{path}.device"), document));
    let mut locks: Vec<LockRef> = device.transpose()?.into_iter().collect();
    for (position, document) in documents.iter().enumerate() {
        let path = format!("{path}.locks[{position}]");
        let lock = lock(&path, "locks", document)?;
        if locks.contains(&lock) {
            return Err(Mistake::new(path, "`locks` names the same lock twice: remove one"));
        }
        locks.push(lock);
    }
    Ok(locks)
}

/// The indices of the steps that `after` names, in ascending order.
fn predecessors(path: &str, after: &[String], names: &HashMap<&str, usize>) -> Result<Vec<usize>, Mistake> {
    let mut indices = Vec::with_capacity(after.len());
    for (position, name) in after.iter().enumerate() {
        let path = || format!("{path}.after[{position}]");
        let Some(index) = names.get(name.as_str()) else {
            if name == ON_ERROR {
                let message = format!("no step can run after `{ON_ERROR}`: it runs once the task has failed");
                return Err(Mistake::new(path(), message));
            }
            let hint = match nearest(name, names.keys().copied()) {
                Some(near) => format!(": did you mean \"{near}\"?"),
                None => ": write names of steps of this flow".to_owned(),
            };
            return Err(Mistake::new(
                path(),
                format!("`after` names the unknown step {}{hint}", quote(name)),
            ));
        };
        if indices.contains(index) {
            return Err(Mistake::new(path(), format!("`after` names {} twice: remove one", quote(name))));
        }
        indices.push(*index);
    }
    indices.sort_unstable();
    Ok(indices)
}
