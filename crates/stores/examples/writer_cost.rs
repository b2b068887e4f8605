//! What the writer thread costs: its CPU time per task of three steps.
//!
//! Each task is four changes, a submit and three reports, in batches of a hundred changes from many tasks, as a
//! busy server has them. The whole system can do no more tasks per second than this thread.
//!
//! ```text
//! cargo run --release --example writer_cost -- [tasks] [changes per batch] [directory]
//! ```

#[path = "shared/work.rs"]
mod work;

use std::{
    collections::VecDeque,
    error::Error,
    fs,
    path::PathBuf,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use windlass_core::{
    ActKey, Attempt, Command, Context, Flow, Json, Millis, Outcome, Rejection, Report, Retry, Task, Timestamp,
};
use windlass_store::{
    Change, StoredFlow, TaskChange,
    resident::{Room, RowSink},
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink};

/// Tasks under way at a time, as with a worker of 256 slots.
const IN_FLIGHT: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let tasks: usize = arguments.next().map_or(Ok(50_000), |text| text.parse())?;
    let per_batch: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let parent: PathBuf = arguments.next().map_or_else(std::env::current_dir, |text| Ok(text.into()))?;
    let directory = tempfile::tempdir_in(parent)?;

    let flow = work::flow(3, Retry::default())?;
    let batches = batches(&flow, tasks, per_batch)?;
    let started = Instant::now();
    let sink = SqliteSink::open(&directory.path().join("bench.db"), SqliteOptions::default())?;
    println!("opened in {:?}", started.elapsed());
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(sink.recover(Room::ENDLESS))?;
    write(&sink, vec![Change::Flow(StoredFlow { flow, created_at: Timestamp(1) })])?;

    let mut waits = Vec::with_capacity(batches.len());
    let (started, cpu) = (Instant::now(), threads_cpu()?);
    for batch in batches {
        waits.push(write(&sink, batch)?);
    }
    let wall = started.elapsed();
    println!("{tasks} tasks of 3 steps, {per_batch} changes per batch");
    println!("{:>10.1} µs of wall time per task", micros(wall, tasks));
    for ((name, before), (_, after)) in cpu.into_iter().zip(threads_cpu()?) {
        println!("{:>10.1} µs of CPU per task in {name}", micros(after.saturating_sub(before), tasks));
    }
    waits.sort_unstable();
    for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("most", 1.0)] {
        let index = ((waits.len() - 1) as f64 * part) as usize;
        println!("{:>10.2} ms per batch, {name}", waits[index].as_secs_f64() * 1000.0);
    }
    let started = Instant::now();
    sink.close();
    println!("closed in {:?}", started.elapsed());
    for entry in fs::read_dir(directory.path())? {
        let entry = entry?;
        println!("{:>10} KiB {}", entry.metadata()?.len() / 1024, entry.file_name().to_string_lossy());
    }
    Ok(())
}

fn micros(time: Duration, tasks: usize) -> f64 {
    time.as_secs_f64() * 1e6 / tasks as f64
}

/// Writes a batch and waits until it is on disk.
fn write(sink: &SqliteSink, batch: Vec<Change>) -> Result<Duration, Box<dyn Error>> {
    let (sender, receiver) = mpsc::channel();
    let started = Instant::now();
    sink.write(Arc::new(batch.into()), Box::new(move |result| drop(sender.send(result))));
    receiver.recv()??;
    Ok(started.elapsed())
}

/// CPU time of the sink's threads so far, from the scheduler's statistics.
fn threads_cpu() -> Result<Vec<(String, Duration)>, Box<dyn Error>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let directory = entry?.path();
        let name = fs::read_to_string(directory.join("comm"))?.trim().to_owned();
        let nanos = fs::read_to_string(directory.join("schedstat"))?;
        let nanos = nanos.split(' ').next().unwrap_or_default().parse()?;
        if name.starts_with("sqlite-") {
            threads.push((name, Duration::from_nanos(nanos)));
        }
    }
    Ok(threads)
}

/// All batches of the run, made before the clock starts.
fn batches(flow: &Arc<Flow>, tasks: usize, per_batch: usize) -> Result<Vec<Vec<Change>>, Box<dyn Error>> {
    let mut now = Timestamp(1_700_000_000_000);
    let (mut batches, mut batch) = (Vec::new(), Vec::new());
    let mut under_way: VecDeque<Arc<Task>> = VecDeque::new();
    let mut submitted = 0;
    while submitted < tasks || !under_way.is_empty() {
        let change = if submitted < tasks && under_way.len() < IN_FLIGHT {
            submitted += 1;
            let task = work::task(flow, work::id(now, submitted), now, None);
            work::change(
                &task,
                &Command::Accept { done: Vec::new(), overrides_unique: false, by: None },
                &Context::at(now),
                0,
            )?
        } else {
            let Some(task) = under_way.pop_front() else { break };
            report(&task, now)?
        };
        if !change.task.is_ended() {
            under_way.push_back(change.task.clone());
        }
        batch.push(Change::Task(Box::new(change)));
        if batch.len() == per_batch {
            batches.push(std::mem::take(&mut batch));
            now = now + Millis(2);
        }
    }
    batches.push(batch);
    Ok(batches)
}

fn report(task: &Task, now: Timestamp) -> Result<TaskChange, Rejection> {
    let open = task.acts().find(|(_, act)| act.is_open());
    let (key, number) = open.map_or((ActKey::forward(0), 1), |(key, act)| (key, act.attempt));
    let result = Json::from_stored(r#"{"volume":"vol-0001","ok":true}"#);
    let attempt = Attempt { key, number, started_at: Some(now) };
    let report = Report { attempt, outcome: Outcome::Succeeded(Some(result)) };
    work::change(task, &Command::Report(report), &Context::at(now), 0)
}
