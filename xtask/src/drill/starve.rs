//! Hostile clients: some send the largest bodies to the exchange and never end them. Others open many connections and never
//! complete a request. Workers must keep working, and health checks must be answered.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time,
};

use super::{Length, fleet::Fleet, hand::Hand, ledger, tasks};

/// The number of clients that hold a body, and how much of it they send. In sum it is more than the bodies of workers may
/// take.
const BODIES: usize = 18;
const BODY_BYTES: usize = 8 << 20;

/// The number of connections of one client that request nothing. It is above the limit of a client, and in the long form
/// above the limit of all clients.
const SILENT_SHORT: usize = 2_200;
const SILENT_LONG: usize = 4_224;

const TASKS: usize = 200;
const WORK_MS: u64 = 20;
const HEALTH_CHECKS: usize = 50;
const LEASE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(program: &Path, length: Length) -> Result<()> {
    let silent_count = if length == Length::Long { SILENT_LONG } else { SILENT_SHORT };
    let mut fleet = Fleet::new(program, WORK_MS)?;
    fleet.start_server().await?;
    let client = fleet.client()?;
    tasks::apply_flow(&client).await?;
    fleet.start_hand("worker", Hand { sessions: 2, concurrency: 8, lease: LEASE }).await?;
    let address = fleet.address().trim_start_matches("http://").to_owned();

    let mut bodies = Vec::new();
    for _ in 0..BODIES {
        bodies.push(hold_body(&address).await?);
    }
    let mut silent = Vec::new();
    for _ in 0..silent_count {
        let mut stream = TcpStream::connect(&address).await.context("a connection was refused")?;
        // The server may have closed it already.
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\n").await;
        silent.push(stream);
    }
    let work: Result<Vec<_>> = (0..TASKS).map(|n| tasks::task_of(format!("starve-{n}"), WORK_MS)).collect();
    let ids = tasks::submit_all(&client, &work?).await?;
    let mut healthy = 0;
    for _ in 0..HEALTH_CHECKS {
        healthy += usize::from(is_healthy(&address).await?);
    }
    tasks::wait_until_succeeded(&client, TASKS, PATIENCE).await?;
    let lost = tasks::count_events(&client, ids.iter().map(String::as_str), "step.lost").await?;
    let effects = fleet.ledger().effects()?;
    let twice = ledger::repeated(&effects).len();
    println!(
        "starve: {BODIES} bodies of 8 MiB that do not end and {silent_count} connections that request nothing, all of one \
         client that workers share: {healthy} of {HEALTH_CHECKS} health checks answered, {} of {TASKS} tasks lost, \
         {lost} attempts given up, {twice} effects doubled",
        TASKS - effects.len(),
    );
    ensure!(healthy == HEALTH_CHECKS, "{healthy} of {HEALTH_CHECKS} health checks were answered");
    ensure!(lost == 0, "{lost} attempts were given up although their workers were running");
    ensure!(effects.len() == TASKS, "{} of {TASKS} tasks ran", effects.len());
    ensure!(twice == 0, "{twice} effects were doubled although no worker hung");
    drop((bodies, silent));
    fleet.stop().await
}

/// Sends a body to the exchange except for its last byte. The server may refuse it before.
async fn hold_body(address: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "POST /v1/worker/exchange HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {BODY_BYTES}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let piece = vec![b' '; 64 << 10];
    let mut left = BODY_BYTES - 1;
    while left > 0 {
        let bytes = left.min(piece.len());
        let Ok(Ok(())) = time::timeout(Duration::from_secs(1), stream.write_all(&piece[..bytes])).await
        else {
            break;
        };
        left -= bytes;
    }
    Ok(stream)
}

async fn is_healthy(address: &str) -> Result<bool> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer.starts_with("HTTP/1.1 200"))
    };
    match time::timeout(PATIENCE, ask).await {
        Ok(answered) => answered,
        Err(_) => Ok(false),
    }
}
