//! What a store costs that holds much: opening it, its memory, and commits beside what waits in it.
//!
//! It is filled with delayed tasks, which wait for a time far off, with finished ones, and with ready ones, which wait
//! for a worker. Opened in another process it then runs tasks of one step, one batch after the other, and prints how
//! long they took; then it hands out what is ready.
//!
//! ```text
//! cargo run --release --example depth -- fill FILE DELAYED FINISHED READY
//! cargo run --release --example depth -- open FILE
//! ```

#[path = "shared/work.rs"]
mod work;

use std::{
    error::Error,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use windlass_conformance::claim;
use windlass_core::{
    Attempt, Command, Flow, Millis, Name, Outcome as Ended, Report, Retry, TaskId, Timestamp,
};
use windlass_store::{
    Change, ClaimRequest, Claims as _, Loaded, Now, Outcome, PollState, Queries as _, SessionId,
    SessionRenewal, Store, StoredFlow, resident::Resident,
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink};

/// Tasks in a batch while the store is filled.
const FILL_BATCH: usize = 2_000;

/// Tasks run at the end, and how many of them in a batch.
const RUN: usize = 50_000;
const RUN_BATCH: usize = 100;

const START: Timestamp = Timestamp(1_700_000_000_000);
const DAY: Millis = Millis::from_secs(24 * 3600);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    match arguments[..] {
        ["fill", file, delayed, finished, ready] => {
            runtime.block_on(fill(file.as_ref(), delayed.parse()?, finished.parse()?, ready.parse()?))
        }
        ["open", file] => runtime.block_on(open(file.as_ref())),
        _ => Err("say fill FILE DELAYED FINISHED READY, or open FILE".into()),
    }
}

async fn fill(file: &Path, delayed: usize, finished: usize, ready: usize) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let sink = SqliteSink::open(file, SqliteOptions::default())?;
    let store = Resident::open(Arc::new(sink), Now { wall: START, mono: Millis(0) }).await?;
    let flow = work::flow(1, Retry::default())?;
    commit(&store, vec![Change::Flow(StoredFlow { flow: flow.clone(), created_at: START })]).await?;
    let mut ids = (1..).map(|n| work::id(START, n));
    for batch in sizes(finished, FILL_BATCH) {
        run(&store, &flow, ids.by_ref().take(batch)).await?;
    }
    for batch in sizes(delayed, FILL_BATCH) {
        let at = Some(START + DAY);
        let changes = ids.by_ref().take(batch).map(|id| accept(&flow, id, at));
        commit(&store, changes.collect::<Result<_, _>>()?).await?;
    }
    for batch in sizes(ready, FILL_BATCH) {
        let changes = ids.by_ref().take(batch).map(|id| accept(&flow, id, None));
        commit(&store, changes.collect::<Result<_, _>>()?).await?;
    }
    println!("{:>10.1} s to fill", started.elapsed().as_secs_f64());
    println!("{:>10} MB of memory", memory_mb()?);
    Ok(())
}

async fn open(file: &Path) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let sink = SqliteSink::open(file, SqliteOptions::default())?;
    let store = Resident::open(Arc::new(sink), Now { wall: START, mono: Millis(0) }).await?;
    println!("{:>10.3} s to open", started.elapsed().as_secs_f64());
    println!("{:>10} MB of memory", memory_mb()?);
    if store.queues().await?.iter().any(|queue| queue.ready > 0) {
        return hand_out(&store).await;
    }
    let flow = store.flow("line", None).await?.ok_or("the store was not filled")?.flow;
    // Later than those of every run before.
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now = Timestamp(since.as_millis().try_into()?);
    let mut ids = (1..).map(|n| work::id(now, n));
    let mut times = Vec::new();
    let started = Instant::now();
    for batch in sizes(RUN, RUN_BATCH) {
        let begun = Instant::now();
        run(&store, &flow, ids.by_ref().take(batch)).await?;
        times.push(begun.elapsed());
    }
    print_times("accepted and ended", RUN, started, times)
}

/// Hands out what is ready and accepts its results, one batch after the other.
async fn hand_out(store: &Resident) -> Result<(), Box<dyn Error>> {
    // Behind the grace in which workers name what they have.
    let now = Now { wall: START, mono: Millis(60_000) };
    let (session, lease) = (SessionId(1), Millis::from_secs(3_600));
    let poll = PollState::Unknown;
    store
        .renew(vec![SessionRenewal { session, poll, lease, lease_unpolled: lease, worker: None }], now)
        .await?;
    let claim_request = ClaimRequest {
        module: Name::new("bench")?,
        commands: None,
        free: u32::try_from(RUN_BATCH).unwrap_or(1),
    };
    let started = Instant::now();
    let (mut done, mut times) = (0, Vec::new());
    while done < RUN {
        let begun = Instant::now();
        let claimed = claim(store, session, std::slice::from_ref(&claim_request), now).await?;
        if claimed.is_empty() {
            break;
        }
        let ids: Vec<TaskId> = claimed.iter().map(|claimed| claimed.id.task).collect();
        let loaded = store.load(&ids).await?;
        let reports = claimed.iter().zip(loaded.iter().flatten()).map(|(claimed, loaded)| {
            let attempt =
                Attempt { key: claimed.id.key, number: claimed.id.attempt, started_at: Some(claimed.at) };
            change(loaded, &Command::Report(Report { attempt, outcome: Ended::Succeeded(None) }))
        });
        commit(store, reports.collect::<Result<_, _>>()?).await?;
        done += claimed.len();
        times.push(begun.elapsed());
    }
    print_times("handed out", done, started, times)
}

fn print_times(
    what: &str,
    tasks: usize,
    started: Instant,
    mut times: Vec<Duration>,
) -> Result<(), Box<dyn Error>> {
    println!("{:>10.0} tasks/s {what}", tasks as f64 / started.elapsed().as_secs_f64());
    times.sort_unstable();
    for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
        let time = times[((times.len() - 1) as f64 * part) as usize];
        println!("{:>10.2} ms for a batch, {name}", time.as_secs_f64() * 1000.0);
    }
    println!("{:>10} MB of memory", memory_mb()?);
    Ok(())
}

/// Takes tasks in and cancels them: two commits, and nothing of them is left in memory.
async fn run(
    store: &Resident,
    flow: &Arc<Flow>,
    ids: impl Iterator<Item = TaskId>,
) -> Result<(), Box<dyn Error>> {
    let ids: Vec<TaskId> = ids.collect();
    let accepted = ids.iter().map(|id| accept(flow, *id, None));
    commit(store, accepted.collect::<Result<_, _>>()?).await?;
    let loaded = store.load(&ids).await?;
    let cancelled = loaded.iter().flatten().map(|loaded| change(loaded, &Command::Cancel { by: None }));
    commit(store, cancelled.collect::<Result<_, _>>()?).await
}

async fn commit(store: &Resident, changes: Vec<Change>) -> Result<(), Box<dyn Error>> {
    let outcomes = store.commit(changes).await?;
    let committed = outcomes.iter().all(|outcome| *outcome == Outcome::Committed);
    if committed { Ok(()) } else { Err("a change was not taken".into()) }
}

fn accept(flow: &Arc<Flow>, id: TaskId, at: Option<Timestamp>) -> Result<Change, Box<dyn Error>> {
    let task = Arc::new(work::task(flow, id, START, at));
    change(&Loaded::untouched(task), &Command::Accept { done: Vec::new(), overrides_unique: false, by: None })
}

fn change(loaded: &Loaded, command: &Command) -> Result<Change, Box<dyn Error>> {
    Ok(work::change(&loaded.task, command, &loaded.context(START), loaded.generation)?.into())
}

/// `count` in pieces of at most `size`.
fn sizes(count: usize, size: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(size).map(move |from| size.min(count - from))
}

/// What the process has in memory, as the system counts it.
fn memory_mb() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1024)
}
