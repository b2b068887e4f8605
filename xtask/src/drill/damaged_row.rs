//! Bits flip in single rows of a store: those of a task that waits in a deep queue, and of one that waits for its time.
//! On SQLite this happens while the server is down, on PostgreSQL while it runs.
//!
//! All other tasks must run, of the same module and of another one that is claimed in the same poll, and their timers
//! must fire. An alarm names each damaged task, the doctor lists it, and the server stays ready.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time,
};
use windlass_client::{Client, api::SubmitTask};
use windlass_testkit::Postgres;

use super::{Length, fleet::Fleet, hand::Hand, tasks};

/// Tasks that wait in the queue. On SQLite the last ones rest on disk; the server reads them when the others are claimed.
const READY: usize = 4_400;
const READY_LONG: usize = 9_000;

/// On a database no task rests, so a tenth is enough.
const SHARE_ON_DATABASE: usize = 10;

/// The distance of the damaged task from the end of the queue.
const FROM_END: usize = 100;

/// Tasks of another module that the same worker serves.
const OTHERS: usize = 20;

/// Tasks that wait for their time.
const TIMERS: usize = 50;

/// Longer than the time for which a server reads timers ahead. So these tasks rest on disk when they are submitted.
const REST_FOR: Duration = Duration::from_secs(64);

/// When the timers fire that a short drill waits for.
const SOON: Duration = Duration::from_secs(4);

/// The limit for all of it: until the tasks at rest are due, and the same time again.
const PATIENCE: Duration = Duration::from_secs(150);

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    on_sqlite(program, length).await?;
    let Some(server) = Postgres::start()? else { return Ok(()) };
    let database = server.database()?;
    let fleet = Fleet::on_database(program, 0, database.url())?;
    on_postgres(fleet, length, |sql| database.ask(sql).map(drop)).await
}

/// The submitted tasks: those that run, and the two with damaged rows.
struct Submitted {
    sound: usize,
    damaged: [String; 2],
}

async fn on_sqlite(program: &Path, length: Length) -> Result<()> {
    let mut fleet = Fleet::new(program, 0)?;
    fleet.start_server().await?;
    let count = ready_count(length);
    let submitted = submit(&fleet, count, REST_FOR).await?;
    fleet.stop_server().await?;
    for needle in ["needle-ready", "needle-timer"] {
        flip(fleet.store(), needle)?;
    }
    let (is_sound, said) = fleet.doctor().await?;
    ensure!(!is_sound, "the doctor finds nothing");
    for id in &submitted.damaged {
        ensure!(said.contains(id.as_str()), "the doctor does not list task {id}: {said}");
    }
    fleet.start_server().await?;
    let soon = submit_soon(&fleet.client()?).await?;
    // The short form does not wait for the tasks at rest, only for the alarm about the damaged one.
    let resting = if length == Length::Long { 0 } else { TIMERS };
    let took = check(&mut fleet, &submitted, submitted.sound + soon - resting).await?;
    println!(
        "damaged-row on SQLite: 2 of {} rows damaged with the server stopped; {} other tasks succeeded after {:.1} s, \
         both are named by alarms and by the doctor",
        submitted.sound + 2,
        submitted.sound + soon - resting,
        took.as_secs_f64()
    );
    fleet.stop().await
}

async fn on_postgres(mut fleet: Fleet, length: Length, ask: impl Fn(&str) -> Result<()>) -> Result<()> {
    fleet.start_server().await?;
    let submitted = submit(&fleet, ready_count(length) / SHARE_ON_DATABASE, SOON).await?;
    for id in &submitted.damaged {
        // The first byte is the format of the state.
        ask(&format!(
            "UPDATE windlass_task SET state = set_byte(state, 0, get_byte(state, 0) # 64) WHERE id = '{id}'"
        ))?;
    }
    let took = check(&mut fleet, &submitted, submitted.sound).await?;
    let (is_sound, said) = fleet.doctor().await?;
    for id in &submitted.damaged {
        ensure!(!is_sound && said.contains(id.as_str()), "the doctor does not list task {id}: {said}");
    }
    println!(
        "damaged-row on PostgreSQL: 2 of {} rows damaged while the server ran; {} other tasks succeeded after {:.1} s, \
         both are named by alarms and by the doctor",
        submitted.sound + 2,
        submitted.sound,
        took.as_secs_f64()
    );
    fleet.stop().await
}

fn ready_count(length: Length) -> usize {
    if length == Length::Long { READY_LONG } else { READY }
}

/// Submits tasks that wait, because no worker runs yet. One of the ready tasks and one of those that wait for their time
/// are to be damaged.
async fn submit(fleet: &Fleet, count: usize, timer: Duration) -> Result<Submitted> {
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    tasks::apply_flow_of(&client, "other", "other.work").await?;
    let modules = fleet.dir().join("modules");
    fs::create_dir_all(modules.join("other"))?;
    fs::copy(modules.join("drill/work"), modules.join("other/work"))?;
    let at = Timestamp::now() + timer;
    let timers = numbered(TIMERS, TIMERS / 2, "timer").map(|task| Ok(SubmitTask { at: Some(at), ..task? }));
    let timers = tasks::submit_all(&client, &timers.collect::<Result<Vec<_>>>()?).await?;
    let ready =
        tasks::submit_all(&client, &numbered(count, count - FROM_END, "ready").collect::<Result<Vec<_>>>()?)
            .await?;
    let others =
        (0..OTHERS).map(|n| SubmitTask { flow: "other".to_owned(), ..tasks::task(format!("other-{n}")) });
    tasks::submit_all(&client, &others.collect::<Vec<_>>()).await?;
    let damaged = [ready[count - FROM_END].clone(), timers[TIMERS / 2].clone()];
    Ok(Submitted { sound: count + TIMERS + OTHERS, damaged })
}

/// Tasks, and one more at that place. A word in its parameters identifies its row.
fn numbered(count: usize, place: usize, kind: &'static str) -> impl Iterator<Item = Result<SubmitTask>> {
    (0..=count).map(move |n| {
        let note = if n == place { format!("needle-{kind}") } else { "hay".to_owned() };
        let params = serde_json::json!({"ms": 0, "note": note});
        let params = Some(serde_json::value::to_raw_value(&params)?);
        Ok(SubmitTask { params, ..tasks::task(format!("{kind}-{n}")) })
    })
}

/// Submits tasks that are due soon, and returns their number.
async fn submit_soon(client: &Client) -> Result<usize> {
    let at = Timestamp::now() + SOON;
    let soon = (0..TIMERS).map(|n| SubmitTask { at: Some(at), ..tasks::task(format!("soon-{n}")) });
    Ok(tasks::submit_all(client, &soon.collect::<Vec<_>>()).await?.len())
}

/// Starts workers and waits until `count` tasks have succeeded and an alarm names each damaged task. Returns how long the
/// tasks took.
async fn check(fleet: &mut Fleet, submitted: &Submitted, count: usize) -> Result<Duration> {
    let began = time::Instant::now();
    // One worker claims for both modules in the same poll.
    fleet.start_worker("both", 4).await?;
    fleet.start_hand("drill", Hand { sessions: 1, concurrency: 32, lease: Duration::from_secs(10) }).await?;
    let client = fleet.client()?;
    tasks::wait_until_succeeded(&client, count, PATIENCE).await?;
    let took = began.elapsed();
    let expected: BTreeSet<String> = submitted.damaged.iter().map(|id| format!("damaged_row.{id}")).collect();
    let alarms = async {
        loop {
            let found: BTreeSet<String> =
                client.alarms(false).await?.items.into_iter().map(|alarm| alarm.id).collect();
            ensure!(found.is_subset(&expected), "there are other alarms: {found:?}");
            if found == expected {
                return Ok(());
            }
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    time::timeout(PATIENCE, alarms).await.context("no alarm names a damaged task")??;
    let ran = fleet.ledger().effects()?;
    for id in &submitted.damaged {
        ensure!(!ran.keys().any(|key| key.starts_with(id.as_str())), "a step of damaged task {id} ran");
    }
    ready(fleet).await?;
    Ok(took)
}

/// Checks that the server is ready, which means that no service keeps failing.
async fn ready(fleet: &Fleet) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", fleet.port())).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    match answer.starts_with("HTTP/1.1 200") {
        true => Ok(()),
        false => bail!("the server is not ready: {answer}"),
    }
}

/// Flips one bit wherever `needle` occurs in the file of a stopped server.
fn flip(path: &Path, needle: &str) -> Result<()> {
    let mut bytes = fs::read(path)?;
    let is_there = |window: &[u8]| window == needle.as_bytes();
    let places: Vec<usize> = bytes
        .windows(needle.len())
        .enumerate()
        .filter(|(_, window)| is_there(window))
        .map(|(at, _)| at)
        .collect();
    ensure!(!places.is_empty(), "{needle} is not in the file");
    places.iter().for_each(|at| bytes[*at] ^= 1);
    Ok(fs::write(path, bytes)?)
}
