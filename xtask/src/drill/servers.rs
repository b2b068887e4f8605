//! Three servers on one database, each with workers. Every five seconds one of them is killed with SIGKILL, every other
//! time together with its workers, and is started again. All servers accept tasks meanwhile.

use std::{cell::Cell, collections::BTreeSet, path::Path, time::Duration};

use anyhow::{Result, ensure};
use clap::ValueEnum;
use futures_util::future::try_join_all;
use jiff::Timestamp;
use tokio::time;
use windlass_client::{
    Client, Error,
    api::{SubmitTask, Task},
};
use windlass_testkit::{MariaDb, Postgres, Server, SqlProduct};

use super::{Length, fleet::Fleet, hand::Hand, ledger, tasks};

const SERVERS: usize = 3;
const WORK_MS: u64 = 50;
const SUBMITTERS: usize = 6;

/// The time between two kills.
const KILL_EVERY: Duration = Duration::from_secs(5);

/// How long a killed server stays down. Its workers keep their attempts and reconnect to it.
const AWAY: Duration = Duration::from_secs(1);

/// The lease of each server's workers. When they die with their server, no connection reports it, so the lease must end.
const WORKERS: Hand = Hand { sessions: 1, concurrency: 8, lease: Duration::from_secs(4) };

/// One of this number of tasks is due only later. Tasks whose server has ended by then must run as well.
const DUE_LATER_EVERY: usize = 10;
const LATER: Duration = Duration::from_secs(3);

/// The limit for all tasks after the last kill.
const PATIENCE: Duration = Duration::from_secs(120);

/// The database of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Database {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
}

/// A kill, and whether the workers of the server died with it.
#[derive(Debug, Clone, Copy)]
struct Kill {
    at: Timestamp,
    with_workers: bool,
}

impl Database {
    /// Whether the drill is to run on it: on one database, or on each.
    pub(super) fn is_wanted(self, only: Option<Self>) -> bool {
        only.is_none_or(|only| only == self)
    }
}

/// Runs the drill on this database, or on each. A database that is not installed is reported and skipped.
pub(super) async fn run(program: &Path, length: Length, database: Option<Database>) -> Result<()> {
    if Database::Postgres.is_wanted(database)
        && let Some(server) = Postgres::start()?
    {
        let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
        run_on(program, length, &server, deadlocks).await?;
    }
    if Database::Mariadb.is_wanted(database)
        && let Some(server) = MariaDb::start()?
    {
        let deadlocks = "select variable_value from information_schema.global_status \
                         where variable_name = 'INNODB_DEADLOCKS'";
        run_on(program, length, &server, deadlocks).await?;
    }
    Ok(())
}

async fn run_on<P: SqlProduct>(
    program: &Path,
    length: Length,
    server: &Server<P>,
    deadlocks: &str,
) -> Result<()> {
    let kills = if length == Length::Long { 60 } else { 4 };
    let database = server.database()?;
    let mut fleets = start(program, database.url()).await?;
    let clients = fleets.iter().map(Fleet::client).collect::<Result<Vec<_>>>()?;
    let stop = Cell::new(false);
    let submitters = try_join_all((0..SUBMITTERS).map(|submitter| submit(&clients, submitter, &stop)));
    let killer = async {
        let killed = kill_in_turn(&mut fleets, kills).await?;
        time::sleep(KILL_EVERY).await;
        stop.set(true);
        Ok(killed)
    };
    let (accepted, (killed, first_answer)) = tokio::try_join!(submitters, killer)?;
    let accepted: Vec<String> = accepted.into_iter().flatten().collect();
    let all = wait_until_ended(&clients, accepted.len()).await?;
    let outcome = Outcome { accepted, all, killed, first_answer, deadlocks: database.ask(deadlocks)? };
    outcome.check(P::NAME, &fleets[0], &clients).await?;
    for fleet in fleets {
        fleet.stop().await?;
    }
    Ok(())
}

/// Waits until all tasks have succeeded, and checks that all servers return the same about them.
async fn wait_until_ended(clients: &[Client], accepted: usize) -> Result<Vec<Task>> {
    let all = tasks::wait_until_succeeded(&clients[0], accepted, PATIENCE).await?;
    for client in &clients[1..] {
        let others = tasks::count(&tasks::all(client).await?);
        ensure!(
            others == tasks::count(&all),
            "one server returns {:?}, another one {others:?}",
            tasks::count(&all)
        );
    }
    Ok(all)
}

/// Starts three servers on the database with their workers, and applies the flow.
async fn start(program: &Path, url: String) -> Result<Vec<Fleet>> {
    let mut fleets = vec![Fleet::on_database(program, WORK_MS, url)?];
    fleets[0].start_server().await?;
    tasks::apply_flow(&fleets[0].client()?).await?;
    while fleets.len() < SERVERS {
        let mut fleet = fleets[0].beside()?;
        fleet.start_server().await?;
        fleets.push(fleet);
    }
    for (index, fleet) in fleets.iter_mut().enumerate() {
        fleet.start_hand(&format!("workers-{index}"), WORKERS).await?;
    }
    Ok(fleets)
}

/// Kills one server after the other and starts each again. Returns the kills, and the longest time that a server's first
/// answer took.
async fn kill_in_turn(fleets: &mut [Fleet], kills: usize) -> Result<(Vec<Kill>, Duration)> {
    let started = time::Instant::now();
    let mut killed = Vec::new();
    let mut first_answer = Duration::ZERO;
    for kill in 0..kills {
        time::sleep_until(started + KILL_EVERY * u32::try_from(kill + 1)?).await;
        let (fleet, with_workers) = (&mut fleets[kill % SERVERS], kill % 2 == 1);
        killed.push(Kill { at: Timestamp::now(), with_workers });
        if with_workers {
            fleet.kill_worker().await?;
        }
        fleet.kill_server().await?;
        time::sleep(AWAY).await;
        first_answer = first_answer.max(fleet.start_server().await?);
        if with_workers {
            fleet.start_hand(&format!("workers-after-{kill}"), WORKERS).await?;
        }
    }
    Ok((killed, first_answer))
}

/// Submits one task after the other, each to another server, and each under its own key until it is accepted. Returns
/// their ids.
async fn submit(clients: &[Client], submitter: usize, stop: &Cell<bool>) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    let mut servers = clients.iter().cycle().skip(submitter);
    while !stop.get() {
        let index = ids.len();
        let is_due_later = index % DUE_LATER_EVERY == 0;
        let task = SubmitTask {
            at: is_due_later.then(|| Timestamp::now() + LATER),
            ..tasks::task_of(format!("{submitter}-{index}"), WORK_MS)?
        };
        // A server may die before or after it wrote the task. Because of the key, it is safe to submit to another one.
        for client in servers.by_ref() {
            match client.submit(&task).await {
                Ok(submitted) => {
                    ids.push(submitted.id);
                    break;
                }
                Err(Error::Unreachable { .. } | Error::Malformed { .. }) => {}
                Err(Error::Refused(problem)) if problem.status == 503 => {}
                Err(refused) => return Err(refused.into()),
            }
            time::sleep(Duration::from_millis(20)).await;
        }
        time::sleep(Duration::from_millis(20)).await;
    }
    Ok(ids)
}

/// The results of a run.
struct Outcome {
    /// The ids of tasks, as submits returned them.
    accepted: Vec<String>,
    /// All tasks, after all have ended.
    all: Vec<Task>,
    killed: Vec<Kill>,
    first_answer: Duration,
    deadlocks: String,
}

impl Outcome {
    /// Prints the figures. Fails if something was lost or accepted twice, or ran twice without a dead worker.
    async fn check(&self, product: &str, fleet: &Fleet, clients: &[Client]) -> Result<()> {
        let known: BTreeSet<&str> = self.all.iter().map(|task| task.id.as_str()).collect();
        let accepted: BTreeSet<&str> = self.accepted.iter().map(String::as_str).collect();
        let effects = fleet.ledger().effects()?;
        let ran: BTreeSet<&str> = effects.keys().map(|key| ledger::task_of(key)).collect();
        let twice = ledger::repeated(&effects);
        // This also checks that each task has one accepted result.
        let ids = twice.iter().map(|key| ledger::task_of(key));
        let given_up = tasks::count_events(&clients[0], ids, "step.lost").await?;
        let begun_again = fleet.ledger().begun()?.values().filter(|attempts| attempts.len() > 1).count();
        let lost = accepted.iter().filter(|id| !known.contains(*id) || !ran.contains(*id)).count();
        let too_many = known.difference(&accepted).count();
        let shared_ids = self.accepted.len() - accepted.len();
        let latencies = tasks::latencies(&self.at_once().cloned().collect::<Vec<_>>());
        println!(
            "servers on {product}: {} kills among {SERVERS} servers, {} tasks accepted, {lost} lost, {} accepted twice, \
             {begun_again} attempts handed out again, {} run twice ({given_up} of them given up with their worker), a killed \
             server's tasks had continued and ended after {} ms at most (killed alone) or {} ms (with its workers, leases \
             of {} ms), first answer after {} ms at most, tasks took {} ms (p50), {} ms (p99), those due later {} ms after their time (p99), \
             {} deadlocks in the database",
            self.killed.len(),
            accepted.len(),
            too_many + shared_ids,
            twice.len(),
            self.longest_after(false),
            self.longest_after(true),
            WORKERS.lease.as_millis(),
            self.first_answer.as_millis(),
            tasks::percentile(&latencies, 50),
            tasks::percentile(&latencies, 99),
            tasks::percentile(&self.lateness(), 99),
            self.deadlocks,
        );
        ensure!(lost == 0, "{lost} accepted tasks are missing or did not run");
        ensure!(too_many == 0, "{too_many} tasks exist whose submits were not answered");
        ensure!(shared_ids == 0, "{shared_ids} keys got the id of another key's task");
        ensure!(ran.len() == known.len(), "{} tasks ran, but {} exist", ran.len(), known.len());
        // Steps that a killed worker had just run and not yet reported run again.
        let dead = self.killed.iter().filter(|kill| kill.with_workers).count();
        ensure!(
            twice.len() <= dead * WORKERS.concurrency,
            "{} attempts ran twice, but the killed workers had at most {}",
            twice.len(),
            dead * WORKERS.concurrency
        );
        Ok(())
    }

    /// The tasks that were due at once.
    fn at_once(&self) -> impl Iterator<Item = &Task> {
        self.all.iter().filter(|task| task.at.is_none())
    }

    /// The longest time, in milliseconds, from a kill of that kind to the end of a task that was running then.
    fn longest_after(&self, with_workers: bool) -> i64 {
        let kills = self.killed.iter().filter(|kill| kill.with_workers == with_workers);
        let ends = kills.flat_map(|kill| {
            let under_way = self.at_once().filter(|task| task.created_at < kill.at);
            under_way.filter_map(|task| Some(task.ended_at?.as_millisecond() - kill.at.as_millisecond()))
        });
        ends.max().unwrap_or_default()
    }

    /// The time from the due time of the delayed tasks to their end, shortest first, in milliseconds.
    fn lateness(&self) -> Vec<i64> {
        let late = |task: &Task| Some(task.ended_at?.as_millisecond() - task.at?.as_millisecond());
        let mut lateness: Vec<i64> = self.all.iter().filter_map(late).collect();
        lateness.sort_unstable();
        lateness
    }
}
