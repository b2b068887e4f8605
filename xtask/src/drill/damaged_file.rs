//! A damaged store file: while the server is down, bits are flipped, blocks are overwritten and ends are cut off, all in
//! used pages. Then `windlass doctor` examines the file, and a server starts on it.
//!
//! The server may refuse to start, answer as before, or report that it cannot read something. It must never return wrong
//! data of a task, because each row has a checksum. If the structure that leads to rows is damaged, it may miss tasks.
//! Then the doctor must find the damage. The drill prints how often this happens.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::time;
use windlass_client::{Client, Error, api::SubmitTask};

use super::{Length, fleet::Fleet, hand::Hand, tasks};

/// The number of tasks that have ended, that wait for a worker, and that wait for their time.
const ENDED: usize = 600;
const READY: usize = 100;
const SCHEDULED: usize = 100;

/// For one of this number of tasks, the steps and the history are compared as well.
const CLOSELY: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// The size of a page of the file, which is the least that a disk damages or loses.
const PAGE: usize = 4096;

/// A damage.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// One bit is flipped.
    Flip { at: usize },
    /// A block of this size is overwritten.
    Overwrite { at: usize, bytes: usize },
    /// The end is cut off.
    Cut { to: usize },
}

/// The result of a damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// The server refuses to start, and says why.
    Refused,
    /// The doctor finds it, and the server answers as before or reports what it cannot read.
    Found,
    /// The doctor finds it, and the server misses tasks.
    FoundAndMissed,
    /// The doctor finds nothing, and the server reports that it cannot read some tasks.
    Unreadable,
    /// The answers are as before: nothing uses these bytes.
    Unharmed,
    /// The server misses tasks, and the doctor finds nothing.
    Silent,
    /// The server returns something that was never true.
    Wrong,
}

/// The server's answer about a task before the damage.
struct Expected {
    listed: String,
    /// The same with its steps and history.
    closely: Option<String>,
}

type Accepted = BTreeMap<String, Expected>;

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    let places = if length == Length::Long { 60 } else { 5 };
    let (mut fleet, expected) = prepare(program).await?;
    let sound = fleet.store().to_owned();
    let size = used_bytes(&sound)?;
    let mut ends: BTreeMap<&'static str, BTreeMap<End, usize>> = BTreeMap::new();
    let mut unnoticed = Vec::new();
    for damage in damages(size, places) {
        let copy = fleet.dir().join("damaged.db");
        damage.apply(&sound, &copy)?;
        fleet.set_store(copy);
        let end = examine(&mut fleet, &expected).await.with_context(|| format!("with {damage}"))?;
        *ends.entry(damage.kind()).or_default().entry(end).or_default() += 1;
        if matches!(end, End::Silent | End::Wrong) {
            unnoticed.push(format!("{damage}: {end:?}"));
        }
    }
    let counts = |of: End| ends.values().map(|ends| ends.get(&of).unwrap_or(&0)).sum::<usize>();
    println!(
        "damaged-file: {} damages to {} KiB in use: {} times the server refused to start, {} times the doctor found \
         it and the server answered as before, {} times the doctor found it and the server missed tasks, \
         {} times the server reported what it cannot read, {} times nothing used the bytes, {} wrong answers {}",
        ends.values().flat_map(BTreeMap::values).sum::<usize>(),
        size >> 10,
        counts(End::Refused),
        counts(End::Found),
        counts(End::FoundAndMissed),
        counts(End::Unreadable),
        counts(End::Unharmed),
        unnoticed.len(),
        if length == Length::Long { format!("{ends:?}") } else { String::new() },
    );
    ensure!(unnoticed.is_empty(), "wrong answers with {}", unnoticed.join(", "));
    fleet.stop().await
}

/// Fills a store, stops its server, and returns what the server answered about each task.
async fn prepare(program: &Path) -> Result<(Fleet, Accepted)> {
    let mut fleet = Fleet::new(program, 0)?;
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    tasks::apply_flow_of(&client, "idle", "idle.work").await?;
    fleet.start_hand("worker", Hand { sessions: 1, concurrency: 16, lease: Duration::from_secs(10) }).await?;
    // Tasks are submitted one by one. After that many commits the log is copied into the file, and both contain data.
    let mut ids = Vec::new();
    for index in 0..ENDED + READY + SCHEDULED {
        ids.push(client.submit(&task(index)?).await?.id);
    }
    let ended = async {
        while fleet.ledger().effects()?.len() < ENDED
            || tasks::count(&tasks::all(&client).await?).get("succeeded") != Some(&ENDED)
        {
            time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    time::timeout(PATIENCE, ended).await.context("the tasks do not end")??;
    fleet.kill_worker().await?;
    let mut expected = BTreeMap::new();
    let listed = listed(&client).await?.context("an undamaged store cannot be read")?;
    for (index, id) in ids.into_iter().enumerate() {
        let closely = match index % CLOSELY {
            0 => match answer(&client, &id).await? {
                Answer::Told(answer) => Some(answer),
                answer => bail!("an undamaged store returns about task {id}: {answer:?}"),
            },
            _ => None,
        };
        let listed = listed.get(&id).context("an accepted task is missing from the list")?.clone();
        expected.insert(id, Expected { listed, closely });
    }
    fleet.stop_server().await?;
    Ok((fleet, expected))
}

fn task(index: usize) -> Result<SubmitTask> {
    let params =
        serde_json::json!({"ms": 0, "customer": format!("customer-{index}"), "note": "n".repeat(index)});
    let task = SubmitTask {
        params: Some(serde_json::value::to_raw_value(&params)?),
        ..tasks::task(format!("task-{index}"))
    };
    Ok(match index {
        0..ENDED => task,
        _ if index < ENDED + READY => SubmitTask { flow: "idle".to_owned(), ..task },
        _ => SubmitTask { at: Some(jiff::Timestamp::now() + Duration::from_secs(86_400)), ..task },
    })
}

/// The tasks that the server lists; nothing if it reports that it cannot list them.
async fn listed(client: &Client) -> Result<Option<BTreeMap<String, String>>> {
    match tasks::all(client).await {
        Ok(all) => {
            let listed = all.iter().map(|task| Ok((task.id.clone(), serde_json::to_string(task)?)));
            Ok(Some(listed.collect::<Result<_>>()?))
        }
        Err(error) => match error.downcast_ref::<Error>() {
            Some(Error::Refused(_)) => Ok(None),
            _ => Err(error),
        },
    }
}

/// The server's answer about a task.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Told(String),
    /// The task does not exist.
    Missing,
    /// The server cannot read the task.
    Unreadable,
}

/// The server's answer about a task, with its steps and history.
async fn answer(client: &Client, id: &str) -> Result<Answer> {
    let asked = async {
        let task = client.task(id).await?;
        let events = client.task_events(id, 0).await?.items;
        Ok((task, events))
    };
    match asked.await {
        Ok(answer) => Ok(Answer::Told(serde_json::to_string(&answer)?)),
        Err(Error::Refused(problem)) if problem.status == 404 => Ok(Answer::Missing),
        Err(Error::Refused(_)) => Ok(Answer::Unreadable),
        Err(error) => Err(error.into()),
    }
}

async fn examine(fleet: &mut Fleet, expected: &Accepted) -> Result<End> {
    let (sound, said) = fleet.doctor().await?;
    ensure!(!said.is_empty(), "the doctor prints nothing");
    if let Err(said) = fleet.start_server_or_refusal().await? {
        ensure!(said.contains("damaged.db") || !sound, "the server refuses without a clear message: {said}");
        return Ok(End::Refused);
    }
    let client = fleet.client()?;
    let (mut unreadable, mut missing, mut wrong) = (0_usize, 0_usize, 0_usize);
    let listed = listed(&client).await?;
    unreadable += usize::from(listed.is_none());
    for (id, expected) in expected {
        if let Some(listed) = &listed {
            match listed.get(id) {
                Some(listed) => wrong += usize::from(*listed != expected.listed),
                None => missing += 1,
            }
        }
        if let Some(expected) = &expected.closely {
            match answer(&client, id).await? {
                Answer::Unreadable => unreadable += 1,
                Answer::Missing => missing += 1,
                Answer::Told(answer) => wrong += usize::from(answer != *expected),
            }
        }
    }
    // The server must not list a task that was never accepted.
    wrong += listed.iter().flatten().filter(|(id, _)| !expected.contains_key(*id)).count();
    fleet.kill_server().await?;
    Ok(match (sound, missing, unreadable) {
        _ if wrong > 0 => End::Wrong,
        (false, 0, _) => End::Found,
        (false, ..) => End::FoundAndMissed,
        (true, 1.., _) => End::Silent,
        (true, 0, 1..) => End::Unreadable,
        (true, 0, 0) => End::Unharmed,
    })
}

/// The size of the used part of the file, which grows in large steps. A server that was stopped has copied its log into
/// the file.
fn used_bytes(path: &Path) -> Result<usize> {
    let bytes = fs::read(path)?;
    let pages: [u8; 4] = bytes.get(28..32).context("the file is shorter than its head")?.try_into()?;
    let used = usize::try_from(u32::from_be_bytes(pages))? * PAGE;
    ensure!(used <= bytes.len(), "the log was not copied into the file");
    Ok(used)
}

/// Damages at the beginning of the file, at `places` places in it, and at its end.
fn damages(size: usize, places: usize) -> Vec<Damage> {
    // The page size, and the root of the schema.
    let mut damages = vec![Damage::Flip { at: 16 }, Damage::Flip { at: 101 }];
    damages.extend([1, 2, 3].map(|quarter| Damage::Cut { to: size * quarter / 4 / PAGE * PAGE }));
    damages.extend([Damage::Cut { to: size - PAGE }, Damage::Cut { to: size - 100 }, Damage::Cut { to: 50 }]);
    for place in 0..places {
        // Spread over the file, and over the positions in a page.
        let at = size * (2 * place + 1) / (2 * places) + place * 977 % PAGE;
        damages.push(Damage::Flip { at: at.min(size - 1) });
        damages.push(Damage::Overwrite { at: at / 512 * 512, bytes: 512 });
        damages.push(Damage::Overwrite { at: at / PAGE * PAGE, bytes: PAGE });
    }
    damages
}

impl Damage {
    fn kind(self) -> &'static str {
        match self {
            Self::Flip { .. } => "flipped",
            Self::Overwrite { .. } => "overwritten",
            Self::Cut { .. } => "cut",
        }
    }

    /// Copies the store with its log to `copy`, and damages the database there.
    fn apply(self, sound: &Path, copy: &Path) -> Result<()> {
        let mut bytes = fs::read(sound)?;
        match self {
            Self::Flip { at } => bytes[at] ^= 0x10,
            Self::Overwrite { at, bytes: count } => {
                let end = (at + count).min(bytes.len());
                bytes[at..end].fill(0xa5);
            }
            Self::Cut { to } => bytes.truncate(to),
        }
        fs::write(copy, bytes)?;
        for beside in ["-wal", "-shm"] {
            let (from, to) = (with_suffix(sound, beside), with_suffix(copy, beside));
            if from.exists() {
                fs::copy(from, to)?;
            } else if to.exists() {
                fs::remove_file(to)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flip { at } => write!(out, "a bit flipped at {at}"),
            Self::Overwrite { at, bytes } => write!(out, "{bytes} bytes overwritten at {at}"),
            Self::Cut { to } => write!(out, "the file cut to {to} bytes"),
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
