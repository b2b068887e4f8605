//! What a member of a fanned-out step costs, by how many there are: tasks run to their end through the engine, over a
//! store in a file. The members are the same number together each time, and so are the calls of the worker.
//!
//! ```text
//! cargo run --release --example fan_out [PARALLEL]
//! ```

use std::{
    error::Error,
    fs,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use windlass_core::{
    Action, Each, Flow, Input, Json, Millis, Name, Outcome, PARALLEL_DEFAULT, StepDefinition, TaskId,
    Timestamp,
};
use windlass_engine::{Committer, Engine, Exchange, ExchangeAnswer, Said, Submission, WorkerReport};
use windlass_store::{ClaimRequest, Now, SessionId, resident::Resident};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink};

/// Members of all tasks together.
const MEMBERS: usize = 10_000;

/// Reports in one call of the worker.
const REPORTS: usize = 10;

const NOW: Now = Now { wall: Timestamp(1_700_000_000_000), mono: Millis(0) };

fn main() -> Result<(), Box<dyn Error>> {
    let parallel = std::env::args().nth(1).map_or(Ok(PARALLEL_DEFAULT), |text| text.parse())?;
    println!(
        "members of a task | tasks | µs per member | of them at work on it | KiB written per member | ms to read a task"
    );
    for members in [100, 1_000, 10_000] {
        measure(members, parallel)?;
    }
    Ok(())
}

/// Runs tasks with this number of items, one after the other.
fn measure(members: usize, parallel: u32) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let sink = SqliteSink::open(&directory.path().join("windlass.db"), SqliteOptions::default())?;
    let store = runtime.block_on(Resident::open(Arc::new(sink), NOW))?;
    let engine = Arc::new(Engine::new(Arc::new(store), 1));
    let bench = Bench { committer: Committer::new(engine.clone()), engine, runtime };
    bench.drive(bench.engine.apply_flow(flow(parallel)?, NOW))?;
    let (begun, at_work, written) = (Instant::now(), at_work()?, written()?);
    let tasks = MEMBERS / members;
    let (mut seq, mut reading) = (0, Duration::ZERO);
    for _ in 0..tasks {
        let id = bench.submit(members)?;
        bench.run(&mut seq, parallel as usize)?;
        let asked = Instant::now();
        let task = bench.drive(bench.engine.task(id))?.task;
        reading += asked.elapsed();
        if !task.is_ended() {
            return Err("a task has not ended".into());
        }
    }
    let per_member = |time: Duration| time.as_secs_f64() * 1e6 / MEMBERS as f64;
    let wall = per_member(begun.elapsed() - reading);
    let at_work = per_member(self::at_work()?.saturating_sub(at_work));
    let written = (self::written()? - written) as f64 / 1024.0 / MEMBERS as f64;
    let reading = reading.as_secs_f64() * 1e3 / tasks as f64;
    println!("{members:>17} | {tasks:>5} | {wall:>13.0} | {at_work:>21.0} | {written:>22.1} | {reading:.1}");
    Ok(())
}

/// One step with items, of which this number run at once.
fn flow(parallel: u32) -> Result<Flow, Box<dyn Error>> {
    let run = Action::of_worker(Name::new("bench")?, Name::new("do")?);
    let each = Some(Each { list: "items".into(), parallel });
    let step = StepDefinition { each, ..StepDefinition::new(Name::new("each")?, run, Vec::new()) };
    Ok(Flow::new(Name::new("fan")?, vec![step]))
}

struct Bench {
    engine: Arc<Engine>,
    committer: Committer,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn submit(&self, members: usize) -> Result<TaskId, Box<dyn Error>> {
        let items: Vec<String> = (0..members).map(|n| format!("\"file-{n:05}\"")).collect();
        let params = Json::parse(&format!(r#"{{"items":[{}]}}"#, items.join(",")))?;
        let submission = Submission {
            flow: Name::new("fan")?,
            version: None,
            input: Input::new(params, NOW.wall),
            key: None,
            fingerprint_before: None,
        };
        let accepted = self.drive(self.engine.submit(submission, NOW))?;
        Ok(accepted.loaded.task.id)
    }

    /// A worker has as much as there may be under way, and reports a little of it at a time.
    fn run(&self, seq: &mut u64, parallel: usize) -> Result<(), Box<dyn Error>> {
        let mut has: Vec<String> = Vec::new();
        loop {
            let free = u32::try_from(parallel - has.len())?;
            let answer = self.call(seq, Some(&has), free, Vec::new())?;
            let taken: Vec<String> = answer.attempts.into_iter().map(|attempt| attempt.token).collect();
            has.extend(taken);
            if has.is_empty() {
                return Ok(());
            }
            let result = Json::from_stored(r#"{"bytes":123456,"ok":true}"#);
            let report = |token: String| WorkerReport {
                token,
                said: Ok(Said::Ended(Outcome::Succeeded(Some(result.clone())))),
                logs: Vec::new(),
            };
            let reports: Vec<WorkerReport> = has.drain(..REPORTS.min(has.len())).map(report).collect();
            self.call(seq, None, 0, reports)?;
        }
    }

    fn call(
        &self,
        seq: &mut u64,
        holding: Option<&[String]>,
        free: u32,
        reports: Vec<WorkerReport>,
    ) -> Result<ExchangeAnswer, Box<dyn Error>> {
        *seq += 1;
        let claim_requests = vec![ClaimRequest { module: Name::new("bench")?, commands: None, free }];
        let call = Exchange {
            session: SessionId(1),
            seq: *seq,
            attached: false,
            lease: None,
            worker: None,
            holding: holding.map(<[String]>::to_vec),
            declining: Vec::new(),
            claim_requests: Some(claim_requests),
            free: None,
            draining: None,
            wait: Millis(0),
            reports,
        };
        Ok(self.drive(self.engine.exchange(call, NOW))?)
    }

    /// Runs `future` to its end, and commits what it waits for.
    fn drive<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut committing = pin!(async {
            loop {
                self.engine.inbox().wait().await;
                while self.committer.run_once(|| NOW).await > 0 {}
            }
        });
        self.runtime.block_on(poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            let _: Poll<()> = committing.as_mut().poll(context);
            future.as_mut().poll(context)
        }))
    }
}

/// For how long the processor was at work for this process.
fn at_work() -> Result<Duration, Box<dyn Error>> {
    let mut nanos = 0;
    for entry in fs::read_dir("/proc/self/task")? {
        let text = fs::read_to_string(entry?.path().join("schedstat"))?;
        nanos += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// How many bytes this process has written.
fn written() -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(line.unwrap_or("0").parse()?)
}
