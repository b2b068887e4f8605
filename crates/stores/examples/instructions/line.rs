//! A line of three steps, tasks of it, and the changes that a busy server commits.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    sync::Arc,
};

use windlass_core::{
    ActKey, Action, Attempt, Command, Context, Effect, Event, EventKind, Flow, Input, Json, Millis, Name,
    OnFailure, Outcome, Report, Retry, RetryBy, StepDefinition, Task, TaskId, Timestamp, apply,
};
use windlass_engine::ports::{Change, TaskChange};

/// When everything happens.
pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);

const STEPS: usize = 3;

/// Changes in a batch, as a busy server has them.
pub(crate) const BATCH: usize = 100;

/// Three steps one after the other; each can be undone.
pub(crate) fn flow(retry: Retry) -> Result<Arc<Flow>, Box<dyn Error>> {
    let action = |command: &str| -> Result<Action, Box<dyn Error>> {
        Ok(Action {
            module: Name::new("bench")?,
            command: Name::new(command)?,
            timeout: Millis::from_secs(60),
            deadline: None,
            retry,
        })
    };
    let step = |index: usize| -> Result<StepDefinition, Box<dyn Error>> {
        Ok(StepDefinition {
            name: Name::new(&format!("step-{index}"))?,
            run: action("do")?,
            rollback: Some(action("undo")?),
            after: index.checked_sub(1).into_iter().collect(),
            locks: Vec::new(),
        })
    };
    Ok(Arc::new(Flow {
        name: Name::new("line")?,
        version: 1,
        params: None,
        retry_by: RetryBy::Engine,
        on_failure: OnFailure::Rollback,
        steps: (0..STEPS).map(step).collect::<Result<_, _>>()?,
    }))
}

/// A task that was not accepted yet. Its number is the place of its id.
pub(crate) fn task(flow: &Arc<Flow>, number: usize) -> Task {
    let input = Input {
        params: Json::from_stored(r#"{"name":"instance-1","size":"small","disk_gb":20,"region":"north"}"#),
        labels: BTreeMap::new(),
        priority: 0,
        at: None,
        by: None,
        traceparent: None,
        created_at: NOW,
    };
    // As the engine makes ids: the time, then a counter.
    let time = u128::try_from(NOW.0).unwrap_or(0);
    let id = TaskId(time << 80 | 7 << 76 | 2 << 62 | (number as u128) << 32);
    Task::new(id, flow.clone(), input.into())
}

/// The first attempt at doing a step, with a worker.
pub(crate) fn attempt(step: usize) -> Attempt {
    Attempt { key: ActKey::forward(step), number: 1, started_at: Some(NOW) }
}

/// A worker has done a step.
pub(crate) fn success(step: usize) -> Command {
    let result = Json::from_stored(r#"{"volume":"vol-0001","ok":true}"#);
    Command::Report(Report { attempt: attempt(step), outcome: Outcome::Succeeded(Some(result)) })
}

/// What the rules know while a worker has this step.
pub(crate) fn with_worker(step: usize) -> Context {
    let held = BTreeSet::from([ActKey::forward(step)]);
    Context { now: NOW, handed_out: held.clone(), held }
}

/// The task once it was accepted and its first `done` steps are done.
pub(crate) fn done(task: &Task, done: usize) -> Result<Task, Box<dyn Error>> {
    let accepted = apply(task, &Command::Accept, &Context::at(NOW))?.task;
    (0..done).try_fold(accepted, |task, step| Ok(apply(&task, &success(step), &with_worker(step))?.task))
}

/// Batches of changes as a busy server commits them: in each as many tasks begin as end, and as many go on to each
/// step between. The first three are shorter, as nothing ends yet.
pub(crate) fn batches(
    flow: &Arc<Flow>,
    count: usize,
    generation: u64,
) -> Result<Vec<Vec<Change>>, Box<dyn Error>> {
    let per_batch = BATCH / (STEPS + 1);
    let mut under_way: Vec<Vec<Task>> = vec![Vec::new(); STEPS + 1];
    let (mut batches, mut number) = (Vec::with_capacity(count), 0);
    while batches.len() < count {
        let mut batch = Vec::with_capacity(BATCH);
        for step in (0..=STEPS).rev() {
            let (tasks, command, context) = match step.checked_sub(1) {
                None => {
                    let new: Vec<Task> =
                        (number..number + per_batch).map(|number| task(flow, number)).collect();
                    number += per_batch;
                    (new, Command::Accept, Context::at(NOW))
                }
                Some(before) => {
                    (std::mem::take(&mut under_way[before]), success(before), with_worker(before))
                }
            };
            for task in tasks {
                let change = change(&task, &command, &context, generation)?;
                under_way[step].push(Task::clone(&change.task));
                batch.push(change.into());
            }
        }
        under_way[STEPS].clear();
        batches.push(batch);
    }
    Ok(batches)
}

/// What is committed of a command, as the engine's committer makes it.
fn change(
    task: &Task,
    command: &Command,
    context: &Context,
    generation: u64,
) -> Result<TaskChange, Box<dyn Error>> {
    let transition = apply(task, command, context)?;
    let result = |event: &Event| match &event.kind {
        EventKind::ActSucceeded { key, result: Some(result), .. } => Some((*key, result.clone())),
        _ => None,
    };
    Ok(TaskChange {
        before: task.state.events,
        generation,
        results: transition.events.iter().filter_map(result).collect(),
        task: Arc::new(transition.task),
        events: transition.events,
        waits: transition.effects.into_iter().filter(|effect| !matches!(effect, Effect::Send(_))).collect(),
        messages: Vec::new(),
        logs: Vec::new(),
        submit_key: None,
    })
}
