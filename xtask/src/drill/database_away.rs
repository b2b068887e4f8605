//! The database is killed with SIGKILL under load, as a failure of its machine would, stays down for longer than any
//! lease, and comes back. The server and its worker keep running.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    path::Path,
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use futures_util::future::try_join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{self, Instant},
};
use windlass_client::{Client, Error};
use windlass_testkit::{MariaDb, Postgres, Server, SqlProduct};

use super::{Length, fleet::Fleet, hand::Hand, ledger, servers::Database, tasks};

const SUBMITTERS: usize = 6;

/// How long a step takes: long enough that some steps are always in flight and end while the database is unavailable.
const WORK_MS: u64 = 200;

const WORKER: Hand = Hand { sessions: 1, concurrency: 8, lease: Duration::from_secs(4) };

/// How long there is load before and after.
const LOAD: Duration = Duration::from_secs(3);

/// How long the drill waits for the server to refuse submits.
const REFUSED_WITHIN: Duration = Duration::from_secs(20);

/// The limit for all tasks once the database is back.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the drill on this database, or on each. A database that is not installed is reported and skipped.
pub(super) async fn run(program: &Path, length: Length, database: Option<Database>) -> Result<()> {
    if Database::Postgres.is_wanted(database)
        && let Some(server) = Postgres::start()?
    {
        run_on(program, length, &server).await?;
    }
    if Database::Mariadb.is_wanted(database)
        && let Some(server) = MariaDb::start()?
    {
        run_on(program, length, &server).await?;
    }
    Ok(())
}

async fn run_on<P: SqlProduct>(program: &Path, length: Length, server: &Server<P>) -> Result<()> {
    let away = Duration::from_secs(if length == Length::Long { 45 } else { 8 });
    let database = server.database()?;
    let mut fleet = Fleet::on_database(program, WORK_MS, database.url())?;
    // The server warns about each call that it refuses.
    fleet.set_server_variable("WINDLASS_LOG", "error");
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    fleet.start_hand("worker", WORKER).await?;
    let (stop, refused) = (Cell::new(false), Cell::new(0));
    let accepted = RefCell::new(Vec::new());
    let submitters = (0..SUBMITTERS).map(|submitter| submit(&client, submitter, &stop, &refused, &accepted));
    let outage = async {
        time::sleep(LOAD).await;
        server.kill()?;
        let gone = Instant::now();
        let refusal = wait_for_refusal(&fleet).await?;
        time::sleep_until(gone + away).await;
        server.restart()?;
        let (back, before) = (Instant::now(), accepted.borrow().len());
        while accepted.borrow().len() == before {
            ensure!(back.elapsed() < PATIENCE, "no submit is accepted although the database is back");
            time::sleep(Duration::from_millis(10)).await;
        }
        let accepted_after = back.elapsed();
        time::sleep(LOAD).await;
        stop.set(true);
        Ok((refusal, back - gone, accepted_after))
    };
    let (_, (refusal, gone, accepted_after)) = tokio::try_join!(try_join_all(submitters), outage)?;
    let accepted: BTreeSet<String> = accepted.into_inner().into_iter().collect();
    let all = tasks::wait_until_succeeded(&client, accepted.len(), PATIENCE).await?;
    let known: BTreeSet<String> = all.into_iter().map(|task| task.id).collect();
    let effects = fleet.ledger().effects()?;
    let ran: BTreeSet<&str> = effects.keys().map(|key| ledger::task_of(key)).collect();
    let twice = ledger::repeated(&effects).len();
    let lost = accepted.iter().filter(|id| !known.contains(*id) || !ran.contains(id.as_str())).count();
    let too_many = known.difference(&accepted).count();
    println!(
        "database-away on {}: unavailable for {:.1} s, {} tasks accepted, {lost} lost, {too_many} too many, {twice} run twice, \
         {} submits refused, the first with \"{refusal}\", accepted again {} ms after the database was back",
        P::NAME,
        gone.as_secs_f64(),
        accepted.len(),
        refused.get(),
        accepted_after.as_millis(),
    );
    ensure!(lost == 0, "{lost} accepted tasks are missing or did not run");
    ensure!(too_many == 0, "{too_many} tasks exist whose submits were not answered");
    ensure!(twice == 0, "{twice} attempts ran twice although no worker died");
    fleet.stop().await
}

/// Submits one task after the other, each under its own key until it is accepted.
async fn submit(
    client: &Client,
    submitter: usize,
    stop: &Cell<bool>,
    refused: &Cell<usize>,
    accepted: &RefCell<Vec<String>>,
) -> Result<()> {
    for index in 0.. {
        let task = tasks::task_of(format!("{submitter}-{index}"), WORK_MS)?;
        loop {
            match client.submit(&task).await {
                Ok(submitted) => {
                    accepted.borrow_mut().push(submitted.id);
                    break;
                }
                Err(Error::Refused(problem)) if problem.status == 503 => refused.set(refused.get() + 1),
                Err(other) => return Err(other.into()),
            }
            time::sleep(Duration::from_millis(100)).await;
        }
        if stop.get() {
            break;
        }
        time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Submits until the server refuses, and returns the first line of that answer. The answer must say when to try again.
async fn wait_for_refusal(fleet: &Fleet) -> Result<String> {
    // The flow does not exist, so the submit would be refused even with a database, and starts nothing.
    let body = r#"{"flow":"drill-nothing"}"#;
    let address = fleet.address().trim_start_matches("http://").to_owned();
    let request = format!(
        "POST /v1/tasks HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let until = Instant::now() + REFUSED_WITHIN;
    while Instant::now() < until {
        let mut stream = TcpStream::connect(&address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let head = answer.split("\r\n\r\n").next().unwrap_or_default();
        let first = head.lines().next().unwrap_or_default().to_owned();
        if first.contains(" 503") {
            ensure!(
                head.to_ascii_lowercase().contains("\r\nretry-after: "),
                "the refusal does not say when to try again: {head}"
            );
            return Ok(first);
        }
        time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the server does not refuse submits although the database is unavailable")
}
