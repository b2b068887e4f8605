//! An attempt has not ended when it is handed out and gets the parameters and results that its flow defines, and an execution
//! returns the result that its worker reported.
//!
//! The expected values are computed here from the stored events, without the code of the core that computes
//! them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use serde_json::{Map, Value};
use windlass_core::{
    ActKey, ActState, Direction, EventKind, Failure, Outcome, ResolutionKind, Role, RollbackParams, Task,
    TaskId,
};
use windlass_engine::{HandedOut, Results};
use windlass_store::{AttemptId, Change, TaskChange};

use super::{Invariant, broken};
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

type Object = Map<String, Value>;

/// Makes a violation about a value: its kind, the actual value, and the expected one.
type Wrong<'a> = dyn Fn(&str, &dyn Debug, &dyn Debug) -> Result<(), Violation> + 'a;

#[derive(Default)]
pub(super) struct Parameters {
    /// The results that workers reported of successful attempts.
    reported: BTreeMap<(TaskId, ActKey, u32), Vec<Option<String>>>,
    /// The stored results.
    results: BTreeMap<(TaskId, ActKey), Object>,
    /// The last failure of each execution.
    failures: BTreeMap<(TaskId, ActKey), Failure>,
    /// Parameters that operators gave to steps.
    amended: BTreeMap<(TaskId, usize), Object>,
}

impl Invariant for Parameters {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        match seen {
            Seen::Written(Change::Task(change)) => {
                self.note_change(change)?;
                self.check_conditions(change, truth)
            }
            Seen::Said { id, outcome: Outcome::Succeeded(result) } => {
                let result = result.as_ref().map(|result| result.as_str().to_owned());
                self.reported.entry((id.task, id.key, id.attempt)).or_default().push(result);
                Ok(())
            }
            Seen::HandedOut(attempt) => self.check(attempt, truth, world),
            _ => Ok(()),
        }
    }
}

impl Parameters {
    fn note_change(&mut self, change: &TaskChange) -> Result<(), Violation> {
        let task = &change.task;
        for event in &change.events {
            match &event.kind {
                EventKind::ActSucceeded { key, attempt, result } => {
                    let text = result.as_ref().map(|result| result.as_str());
                    let id = (task.id, *key, *attempt);
                    if let Some(reported) = self.reported.get(&id)
                        && !reported.iter().any(|reported| reported.as_deref() == text)
                    {
                        let message = format!(
                            "task {}: {key:?} attempt {attempt} returned {text:?}, and its worker reported {reported:?}",
                            task.id
                        );
                        return Err(broken("parameters", task.id, message));
                    }
                    self.keep_result(task.id, *key, text);
                }
                EventKind::ActResolved { key, resolution: ResolutionKind::Done, result, .. } => {
                    self.keep_result(task.id, *key, result.as_ref().map(|result| result.as_str()));
                }
                EventKind::ActFailed { key, failure, .. } => {
                    self.failures.insert((task.id, *key), failure.clone());
                }
                EventKind::StepAmended { step, after, .. } => {
                    self.amended.entry((task.id, *step)).or_default().extend(object(after));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn keep_result(&mut self, task: TaskId, key: ActKey, result: Option<&str>) {
        match result {
            Some(result) => drop(self.results.insert((task, key), object(result))),
            None => drop(self.results.remove(&(task, key))),
        }
    }

    /// A step is skipped only when its condition is false, and starts only when it is true.
    fn check_conditions(&self, change: &TaskChange, truth: &Truth) -> Result<(), Violation> {
        let Some(task) = truth.tasks.get(&change.task.id).map(|known| &*known.task) else { return Ok(()) };
        for event in &change.events {
            let (key, begins) = match event.kind {
                EventKind::ActSkipped { key } => (key, false),
                EventKind::ActFanned { key, .. }
                | EventKind::ActDelayed { key, .. }
                | EventKind::ActReady { key, attempt: 1 } => (key, true),
                _ => continue,
            };
            let when = task.flow.steps[key.step].when.as_ref();
            if key.direction == Direction::Rollback || key.is_member() {
                continue;
            }
            let holds = when.is_none_or(|when| holds(when.source(), &self.params(task, key)));
            if holds != begins {
                let condition = when.map(|when| when.source());
                let message = format!(
                    "task {}: {key:?} begins: {begins}, and its condition {condition:?} holds: {holds}",
                    task.id
                );
                return Err(broken("parameters", task.id, message));
            }
        }
        Ok(())
    }

    /// Compares an attempt with its task's definition, unless the task has changed since.
    fn check(&self, attempt: &HandedOut, truth: &Truth, world: &World) -> Result<(), Violation> {
        let AttemptId { task, key, attempt: number, .. } = attempt.id;
        if !attempt.task.act(key).is_some_and(|act| act.state == ActState::Ready && act.attempt == number) {
            let message = format!("task {task}: {key:?} attempt {number} is handed out after its end");
            return Err(broken("parameters", task, message));
        }
        let Some(known) = truth.tasks.get(&task).map(|known| &*known.task) else { return Ok(()) };
        let is_current =
            known.act(key).is_some_and(|act| act.attempt == number && act.state == ActState::Ready);
        // The step for errors gets the results that exist when it is handed out.
        if !is_current || known.flow.steps[key.step].role == Role::OnError {
            return Ok(());
        }
        let wrong = |what: &str, handed: &dyn Debug, expected: &dyn Debug| {
            let message = format!(
                "task {task}: {key:?} attempt {number} is handed the {what} {handed:?}, and must get {expected:?}"
            );
            Err(broken("parameters", task, message))
        };
        let (handed, expected) = (object(attempt.params.as_str()), self.params(known, key));
        if handed != expected {
            return wrong("parameters", &handed, &expected);
        }
        let handed = match &attempt.results {
            Results::None => Object::new(),
            Results::These(results) => object(results.as_str()),
            Results::TooLarge => return Ok(()),
        };
        let expected = self.results_before(known, key.step);
        if handed != expected {
            return wrong("results", &handed, &expected);
        }
        world.count("parameters: as the flow says");
        if key.direction == Direction::Rollback {
            return self.check_rollback(attempt, known, &wrong);
        }
        Ok(())
    }

    /// A rollback also gets the result of its own step or item, and the failure where that failed.
    fn check_rollback(&self, attempt: &HandedOut, known: &Task, wrong: &Wrong<'_>) -> Result<(), Violation> {
        let forward = ActKey { direction: Direction::Forward, ..attempt.id.key };
        let returned = attempt.task.done_by(attempt.id.key).map(|result| object(result.as_str()));
        let expected = self.results.get(&(known.id, forward)).cloned();
        if returned != expected {
            return wrong("result of its step", &returned, &expected);
        }
        let failure = attempt.task.act(forward).filter(|act| act.state == ActState::Failed);
        let failure = failure.and_then(|act| act.failure.as_ref());
        if let Some(expected) = self.failures.get(&(known.id, forward)).filter(|_| failure.is_some())
            && failure != Some(expected)
        {
            return wrong("failure of its step", &failure, &expected);
        }
        Ok(())
    }

    /// The parameters of an execution. A rollback gets those of its step, and others that its flow defines.
    fn params(&self, task: &Task, key: ActKey) -> Object {
        let definition = &task.flow.steps[key.step];
        let policy = Some(task.flow.rollback_params).filter(|_| key.direction == Direction::Rollback);
        let mut params = task.flow.params.as_deref().map(object).unwrap_or_default();
        params.extend(object(task.input.params.as_str()));
        let result_of = |key: ActKey| self.results.get(&(task.id, key)).cloned().unwrap_or_default();
        if policy == Some(RollbackParams::Shared) && !key.is_member() {
            let steps = 0..task.flow.steps.len();
            params.extend(steps.clone().flat_map(|step| result_of(ActKey::forward(step))));
            params.extend(steps.rev().flat_map(|step| result_of(ActKey::rollback(step))));
        } else {
            params.extend(
                ancestors(task, key.step).into_iter().flat_map(|step| result_of(ActKey::forward(step))),
            );
        }
        params.extend(self.amended.get(&(task.id, key.step)).cloned().unwrap_or_default());
        let errors = self.errors(task, key.step);
        if !errors.is_empty() {
            params.insert("errors".to_owned(), Value::Array(errors));
        }
        if let Some((index, each)) = key.index().zip(definition.each.as_ref()) {
            let list = params.remove(&*each.list);
            let item = list.and_then(|list| list.get(index as usize).cloned()).unwrap_or_default();
            if policy.is_some_and(|policy| policy != RollbackParams::Step) {
                params.extend(result_of(ActKey { direction: Direction::Forward, ..key }));
            }
            params.insert("item".to_owned(), item);
            params.insert("index".to_owned(), index.into());
        } else if policy == Some(RollbackParams::StepAndResult) {
            params.extend(result_of(ActKey { direction: Direction::Forward, ..key }));
        }
        params
    }

    /// The failures of the steps before one that continues in spite of them.
    fn errors(&self, task: &Task, step: usize) -> Vec<Value> {
        let mut errors = Vec::new();
        for before in &task.flow.steps[step].after {
            let key = ActKey::forward(*before);
            if task.act(key).is_none_or(|act| act.state != ActState::Failed) {
                continue;
            }
            let total = task.state.steps[*before].members.as_ref().map_or(0, |members| members.total());
            let failed = |key: &ActKey| task.act(*key).is_some_and(|act| act.state == ActState::Failed);
            let mut keys: Vec<ActKey> =
                (1..=total).map(|number| key.of_member(number)).filter(failed).collect();
            if keys.is_empty() {
                keys.push(key);
            }
            for key in keys {
                let Some(failure) = self.failures.get(&(task.id, key)) else { continue };
                let mut error = Object::new();
                error.insert("step".to_owned(), task.flow.steps[*before].name.as_str().into());
                if let Some(index) = key.index() {
                    error.insert("index".to_owned(), index.into());
                }
                error.insert("code".to_owned(), failure.code.into());
                error.insert("message".to_owned(), (*failure.message).into());
                errors.push(Value::Object(error));
            }
        }
        errors
    }

    /// The results of all steps before one, by the names of the steps.
    fn results_before(&self, task: &Task, step: usize) -> Object {
        let mut results = Object::new();
        for step in ancestors(task, step) {
            let definition = &task.flow.steps[step];
            let Some(result) = self.results.get(&(task.id, ActKey::forward(step))) else { continue };
            let list = definition.each.as_ref().and_then(|_| result.get(definition.name.as_str()));
            let value = list.cloned().unwrap_or_else(|| Value::Object(result.clone()));
            results.insert(definition.name.to_string(), value);
        }
        results
    }
}

/// The direct and indirect predecessors of a step, in definition order.
fn ancestors(task: &Task, step: usize) -> BTreeSet<usize> {
    let (mut all, mut open) = (BTreeSet::new(), vec![step]);
    while let Some(step) = open.pop() {
        open.extend(task.flow.steps[step].after.iter().filter(|before| all.insert(**before)));
    }
    all
}

fn object(text: &str) -> Object {
    serde_json::from_str(text).unwrap_or_default()
}

/// Evaluates one of the conditions used in flows.
fn holds(condition: &str, params: &Object) -> bool {
    let number = |name: &str| params.get(name).and_then(Value::as_u64);
    match condition {
        "size > 1" => number("size").is_some_and(|size| size > 1),
        "size < 100" => number("size").is_some_and(|size| size < 100),
        "has(params.list)" => params.contains_key("list"),
        "missing == 1" => number("missing") == Some(1),
        _ => panic!("the condition {condition:?} is not one of those that flows have"),
    }
}
