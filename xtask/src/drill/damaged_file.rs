//! A damaged store file: bytes are flipped, blocks overwritten and ends cut off while the server is down, all in
//! pages that hold something. Then `windlass doctor` looks at it, and a server is started on it.
//!
//! The server may refuse to start, or answer what was accepted, or say that it cannot. It must never tell something
//! else of a task: each row has a checksum. Where the structure that leads to rows is damaged it may miss tasks, and
//! then the doctor must find it; how often is printed.

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

/// Tasks that have ended, that wait for a worker, and that wait for their time.
const ENDED: usize = 600;
const READY: usize = 100;
const SCHEDULED: usize = 100;

/// Of every so many tasks the steps and the history are compared too.
const CLOSELY: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// Size of a page of the file, which is what a disk damages or loses at least.
const PAGE: usize = 4096;

/// What is done to the file.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// One bit is another one.
    Flip { at: usize },
    /// A block of that size holds something else.
    Overwrite { at: usize, bytes: usize },
    /// The end is missing.
    Cut { to: usize },
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// The server refuses to start, and says why.
    Refused,
    /// The doctor finds it, and the server answers as before or says what it cannot read.
    Found,
    /// The doctor finds it, and the server misses tasks.
    FoundAndMissed,
    /// The doctor finds nothing, and the server says of some tasks that it cannot read them.
    Unreadable,
    /// All is as it was: nothing uses these bytes.
    Unharmed,
    /// The server misses tasks, and the doctor finds nothing.
    Silent,
    /// The server tells something that never was.
    Wrong,
}

/// What the server told of a task while its store was sound.
struct Expected {
    listed: String,
    /// With its steps and history.
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
         it and the server told nothing else than before, {} times the doctor found it and the server missed tasks, \
         {} times the server said what it cannot read, {} times nothing used the bytes, {} wrong answers {}",
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

/// Fills a store and stops its server. Tells what it answered about each task.
async fn prepare(program: &Path) -> Result<(Fleet, Accepted)> {
    let mut fleet = Fleet::new(program, 0)?;
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    tasks::apply_flow_of(&client, "idle", "idle.work").await?;
    fleet.start_hand("worker", Hand { sessions: 1, concurrency: 16, lease: Duration::from_secs(10) }).await?;
    // One by one: so many commits that the log is copied into the file, and both hold data.
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
    let listed = listed(&client).await?.context("a sound store cannot be read")?;
    for (index, id) in ids.into_iter().enumerate() {
        let closely = match index % CLOSELY {
            0 => match answer(&client, &id).await? {
                Answer::Told(answer) => Some(answer),
                answer => bail!("a sound store says of task {id}: {answer:?}"),
            },
            _ => None,
        };
        let listed = listed.get(&id).context("an accepted task is not in the list")?.clone();
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

/// What the server lists; nothing if it says that it cannot.
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

/// What the server says of a task.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Told(String),
    /// That there is no such task.
    Missing,
    /// That it cannot read it.
    Unreadable,
}

/// What the server tells of a task and its history.
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
    ensure!(!said.is_empty(), "the doctor says nothing");
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
    // And no task that was never accepted.
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

/// How much of the file holds something: it grows in large pieces. A server that was stopped has copied its log into
/// it.
fn used_bytes(path: &Path) -> Result<usize> {
    let bytes = fs::read(path)?;
    let pages: [u8; 4] = bytes.get(28..32).context("the file is shorter than its head")?.try_into()?;
    let used = usize::try_from(u32::from_be_bytes(pages))? * PAGE;
    ensure!(used <= bytes.len(), "the log was not copied into the file");
    Ok(used)
}

/// Damages at the beginning, at `places` places of the file, and at its end.
fn damages(size: usize, places: usize) -> Vec<Damage> {
    // The page size, the root of the schema.
    let mut damages = vec![Damage::Flip { at: 16 }, Damage::Flip { at: 101 }];
    damages.extend([1, 2, 3].map(|quarter| Damage::Cut { to: size * quarter / 4 / PAGE * PAGE }));
    damages.extend([Damage::Cut { to: size - PAGE }, Damage::Cut { to: size - 100 }, Damage::Cut { to: 50 }]);
    for place in 0..places {
        // Spread over the file, and over the places in a page.
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
