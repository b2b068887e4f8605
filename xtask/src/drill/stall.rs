//! Processes that hang: a worker is stopped with SIGSTOP for longer than its lease, and continues when another worker has
//! had its attempts for long. Then the server is stopped for longer than all leases.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use tokio::time;
use windlass_client::{
    Client,
    api::{ExchangeRequest, PROTOCOL, Report, ReportOutcome, ReportStatus},
};

use super::{
    Length,
    fleet::Fleet,
    hand::Hand,
    ledger::{self, Begun},
    tasks,
};

/// The number of tasks that run when a process is stopped. Each worker has room for all of them.
const TASKS: usize = 10;
const WORK_MS: u64 = 1200;
const PATIENCE: Duration = Duration::from_secs(60);

/// The session under which the drill itself reports for the worker that was given up.
const SESSION: &str = "00000000-0000-4000-8000-000000000001";

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    // The long form uses the lease of a real worker.
    let (rounds, lease) = match length {
        Length::Short => (1, Duration::from_secs(1)),
        Length::Long => (5, Duration::from_secs(10)),
    };
    for round in 1..=rounds {
        stall_worker(program, lease, round).await?;
        stall_server(program, lease, round).await?;
    }
    Ok(())
}

async fn stall_worker(program: &Path, lease: Duration, round: usize) -> Result<()> {
    let (mut fleet, client, hand) = start(program, lease).await?;
    fleet.start_hand("stopped", hand).await?;
    let ids = submit(&client, "first").await?;
    let zombies = begun(&fleet, 1).await?;
    fleet.signal_worker("stopped", Signal::STOP)?;
    fleet.start_hand("other", hand).await?;
    // The second attempts run now, so a late report could do harm at this moment.
    begun(&fleet, 2).await?;
    let during = report_late(&client, 1, &zombies).await?;
    tasks::wait_until_succeeded(&client, TASKS, PATIENCE).await?;
    fleet.signal_worker("stopped", Signal::CONT)?;
    // The worker works again, in the same session or in another one: these tasks are more than the other worker has room
    // for.
    let more = [submit(&client, "second").await?, submit(&client, "third").await?].concat();
    tasks::wait_until_succeeded(&client, TASKS * 3, PATIENCE).await?;
    let after = report_late(&client, 2, &zombies).await?;

    let lost = tasks::count_events(&client, ids.iter().map(String::as_str), "step.lost").await?;
    let lost_later = tasks::count_events(&client, more.iter().map(String::as_str), "step.lost").await?;
    let effects = fleet.ledger().effects()?;
    let twice = ledger::repeated(&effects).len();
    println!(
        "stall round {round}: a worker with {TASKS} attempts was stopped for more than its lease of {} s: \
         {lost} attempts given up, late reports while the next attempt runs {during:?}, after it {after:?}, \
         {} of {} tasks lost, {twice} effects doubled, at most one accepted result each",
        lease.as_secs(),
        TASKS * 3 - effects.len(),
        TASKS * 3,
    );
    ensure!(lost == TASKS, "{lost} of {TASKS} attempts were given up");
    ensure!(lost_later == 0, "{lost_later} attempts were given up after all workers were back");
    ensure!(during == BTreeMap::from([("stale", TASKS)]), "late reports were answered {during:?}");
    ensure!(!after.contains_key("accepted"), "late reports were answered {after:?}");
    ensure!(effects.len() == TASKS * 3, "{} of {} tasks ran", effects.len(), TASKS * 3);
    ensure!(twice <= TASKS, "{twice} effects were doubled, but the stopped worker had {TASKS}");
    fleet.stop().await
}

async fn stall_server(program: &Path, lease: Duration, round: usize) -> Result<()> {
    let (mut fleet, client, hand) = start(program, lease).await?;
    fleet.start_hand("one", hand).await?;
    let ids = submit(&client, "stalled").await?;
    begun(&fleet, 1).await?;
    fleet.signal_server(Signal::STOP)?;
    time::sleep(lease * 3 / 2).await;
    fleet.signal_server(Signal::CONT)?;
    tasks::wait_until_succeeded(&client, TASKS, PATIENCE).await?;
    let lost = tasks::count_events(&client, ids.iter().map(String::as_str), "step.lost").await?;
    let effects = fleet.ledger().effects()?;
    let twice = ledger::repeated(&effects).len();
    println!(
        "stall round {round}: the server was stopped for {:.1} s with {TASKS} attempts under leases of {} s: \
         {lost} counted as dead, {} lost, {twice} effects doubled",
        (lease * 3 / 2).as_secs_f64(),
        lease.as_secs(),
        TASKS - effects.len(),
    );
    ensure!(lost == 0, "{lost} attempts were given up although only the server hung");
    ensure!(effects.len() == TASKS, "{} of {TASKS} tasks ran", effects.len());
    ensure!(twice == 0, "{twice} effects were doubled although no worker hung");
    fleet.stop().await
}

async fn start(program: &Path, lease: Duration) -> Result<(Fleet, Client, Hand)> {
    let mut fleet = Fleet::new(program, WORK_MS)?;
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    Ok((fleet, client, Hand { sessions: 1, concurrency: TASKS, lease }))
}

async fn submit(client: &Client, name: &str) -> Result<Vec<String>> {
    let tasks: Result<Vec<_>> =
        (0..TASKS).map(|index| tasks::task_of(format!("{name}-{index}"), WORK_MS)).collect();
    tasks::submit_all(client, &tasks?).await
}

/// Waits until attempts with this number of all steps have begun, and returns the first ones.
async fn begun(fleet: &Fleet, attempt: u32) -> Result<Vec<Begun>> {
    let all = async {
        loop {
            let begun = fleet.ledger().begun()?;
            let reached = |attempts: &&Vec<Begun>| attempts.iter().any(|begun| begun.attempt == attempt);
            if begun.values().filter(reached).count() == TASKS {
                return anyhow::Ok(begun.into_values().filter_map(|attempts| attempts.into_iter().next()));
            }
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    let first = time::timeout(PATIENCE, all).await;
    Ok(first.with_context(|| format!("attempts {attempt} do not begin"))??.collect())
}

/// Reports these attempts as succeeded, and counts the replies.
async fn report_late(client: &Client, seq: u64, attempts: &[Begun]) -> Result<BTreeMap<&'static str, usize>> {
    let mut reports = Vec::new();
    for begun in attempts {
        let report = Report {
            token: begun.token.clone(),
            outcome: ReportOutcome::Succeeded,
            result: None,
            error: None,
            delay_ms: None,
            progress: None,
            logs: Vec::new(),
        };
        reports.push(serde_json::value::to_raw_value(&report)?);
    }
    let request = ExchangeRequest {
        draining: None,
        protocol: PROTOCOL,
        session: SESSION.to_owned(),
        seq,
        attached: false,
        lease_ms: None,
        worker: None,
        holding: None,
        declining: Vec::new(),
        modules: None,
        free: None,
        wait_ms: 0,
        reports,
    };
    let mut answers = BTreeMap::new();
    for answer in client.exchange(&request).await?.reports {
        let status = match answer.status {
            ReportStatus::Accepted => "accepted",
            ReportStatus::Duplicate => "duplicate",
            ReportStatus::Stale => "stale",
            ReportStatus::Unknown => "unknown",
            ReportStatus::Invalid => "invalid",
        };
        *answers.entry(status).or_default() += 1;
    }
    Ok(answers)
}
