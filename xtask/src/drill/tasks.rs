//! The tasks of the drills: what is submitted, and what the server returns about it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tokio::time;
use windlass_client::{
    Client, TaskFilter,
    api::{SubmitBatch, SubmitTask, Task},
};

/// The flow of the drills: one step, `drill.work`.
pub(super) const FLOW: &str = "drill";

/// The number of tasks in one batch.
const BATCH: usize = 1000;

pub(super) async fn apply_flow(client: &Client) -> Result<()> {
    apply_flow_of(client, FLOW, "drill.work").await
}

/// Applies a flow with one step.
pub(super) async fn apply_flow_of(client: &Client, name: &str, run: &str) -> Result<()> {
    let flow = serde_json::from_value(serde_json::json!({
        "flow": name, "steps": [{"name": "work", "run": run, "timeout": "1m"}],
    }))?;
    client.apply_flow(name, &flow).await?;
    Ok(())
}

/// A task of the drill's flow, to be submitted under `key`.
pub(super) fn task(key: String) -> SubmitTask {
    SubmitTask { flow: FLOW.to_owned(), key: Some(key), ..SubmitTask::default() }
}

/// The same, with a step that takes `ms` in the drills' own worker.
pub(super) fn task_of(key: String, ms: u64) -> Result<SubmitTask> {
    Ok(SubmitTask {
        params: Some(serde_json::value::to_raw_value(&serde_json::json!({"ms": ms}))?),
        ..task(key)
    })
}

/// Submits tasks in batches. Returns their ids, in their order.
pub(super) async fn submit_all(client: &Client, tasks: &[SubmitTask]) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for batch in tasks.chunks(BATCH) {
        let tasks = batch.iter().map(serde_json::value::to_raw_value).collect::<Result<_, _>>()?;
        for result in client.submit_batch(&SubmitBatch { tasks }).await?.results {
            ids.push(result.id.with_context(|| format!("a task was refused: {:?}", result.problem))?);
        }
    }
    Ok(ids)
}

/// All tasks, without their steps.
pub(super) async fn all(client: &Client) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    let mut filter = TaskFilter { limit: Some(1000), ..TaskFilter::default() };
    loop {
        let page = client.tasks(&filter).await?;
        tasks.extend(page.items);
        match page.next {
            Some(next) => filter.cursor = Some(next),
            None => return Ok(tasks),
        }
    }
}

/// Counts tasks by status.
pub(super) fn count(tasks: &[Task]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for task in tasks {
        *counts.entry(task.status.as_str()).or_default() += 1;
    }
    counts
}

/// Waits until `n` tasks have succeeded, and returns all tasks.
pub(super) async fn wait_until_succeeded(client: &Client, n: usize, patience: Duration) -> Result<Vec<Task>> {
    let started = Instant::now();
    loop {
        let tasks = all(client).await?;
        let counts = count(&tasks);
        if counts.get("succeeded") == Some(&n) {
            return Ok(tasks);
        }
        ensure!(
            started.elapsed() < patience,
            "{n} tasks had to succeed; after {patience:?} there are {counts:?}"
        );
        time::sleep(Duration::from_millis(100)).await;
    }
}

/// How often events of that kind are in the histories of these tasks. Fails if a step has more than one accepted result.
pub(super) async fn count_events(
    client: &Client,
    ids: impl IntoIterator<Item = &str>,
    kind: &str,
) -> Result<usize> {
    let mut count = 0;
    for id in ids {
        let events = client.task_events(id, 0).await?.items;
        let of_kind = |kind: &str| events.iter().filter(|event| event.kind == kind).count();
        ensure!(
            of_kind("step.succeeded") <= 1,
            "task {id} has {} accepted results",
            of_kind("step.succeeded")
        );
        count += of_kind(kind);
    }
    Ok(count)
}

/// How long these tasks took from being accepted to their end, shortest first, in milliseconds.
pub(super) fn latencies(tasks: &[Task]) -> Vec<i64> {
    let ended = |task: &Task| Some(task.ended_at?.as_millisecond() - task.created_at.as_millisecond());
    let mut latencies: Vec<i64> = tasks.iter().filter_map(ended).collect();
    latencies.sort_unstable();
    latencies
}

/// The value that `share` of 100 of the sorted values do not exceed.
pub(super) fn percentile(sorted: &[i64], share: usize) -> i64 {
    let rank = (sorted.len() * share).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}
