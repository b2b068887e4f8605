//! A line of three steps, tasks of it, and the changes that a busy server commits.

use std::{collections::BTreeMap, error::Error, sync::Arc};

use windlass_core::{
    ActKey, Attempt, Command, Context, Flow, Json, Outcome, Report, Retry, Task, Timestamp, apply,
};
use windlass_store::Change;

use crate::work;

/// When everything happens.
pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);

const STEPS: usize = 3;

/// Changes in a batch, as a busy server has them.
pub(crate) const BATCH: usize = 100;

/// Three steps one after the other; each can be rolled back.
pub(crate) fn flow(retry: Retry) -> Result<Arc<Flow>, Box<dyn Error>> {
    work::flow(STEPS, retry)
}

/// A task that was not accepted yet. Its number is the place of its id.
pub(crate) fn task(flow: &Arc<Flow>, number: usize) -> Task {
    work::task(flow, work::id(NOW, number), NOW, None)
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
    let held = BTreeMap::from([(ActKey::forward(step), Some(NOW))]);
    Context { handed_out: held.keys().copied().collect(), held, ..Context::at(NOW) }
}

/// The task once it was accepted and its first `done` steps are done.
pub(crate) fn done(task: &Task, done: usize) -> Result<Task, Box<dyn Error>> {
    let accepted = apply(
        task,
        &Command::Accept { done: Vec::new(), overrides_unique: false, by: None },
        &Context::at(NOW),
    )?
    .task;
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
                    (
                        new,
                        Command::Accept { done: Vec::new(), overrides_unique: false, by: None },
                        Context::at(NOW),
                    )
                }
                Some(before) => {
                    (std::mem::take(&mut under_way[before]), success(before), with_worker(before))
                }
            };
            for task in tasks {
                let change = work::change(&task, &command, &context, generation)?;
                under_way[step].push(Task::clone(&change.task));
                batch.push(change.into());
            }
        }
        under_way[STEPS].clear();
        batches.push(batch);
    }
    Ok(batches)
}
