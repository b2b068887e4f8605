//! Three exclusive workers under a coordinator, one of which works. The leader is killed, stopped and ended in order,
//! in turn. The commands write a ledger, which shows whether two of them ever ran at once, and how long takeovers took.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use rustix::process::Signal;
use tokio::{process::Command, time};
use windlass_client::{Client, api::SubmitTask};
use windlass_testkit::{Consul, Etcd, ZooKeeper};

use super::{Length, fleet::Fleet, tasks};

/// The name that the workers campaign for.
const NAME: &str = "drill/leader";

/// Their lease: short, so that the drill is.
const LEASE: &str = "4s";

/// Flows whose steps must not run at once. Those of the second one have an exclusive queue, which promises an order.
const FLOWS: [(&str, Option<&str>); 2] = [("free", None), ("ordered", Some("drill"))];

/// The leader works for so long between two strikes.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a takeover, or the last task, may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the ledger is read while something is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Coordinator {
    /// Consul
    Consul,
    /// etcd
    Etcd,
    /// ZooKeeper
    Zookeeper,
}

/// What happens to the leader.
const STRIKES: [(&str, Signal); 3] =
    [("SIGKILL", Signal::KILL), ("SIGSTOP", Signal::STOP), ("SIGTERM", Signal::TERM)];

/// Runs the drill on this coordinator, or on each. One that is not installed is left out, which is said.
pub(super) async fn run(program: &Path, length: Length, coordinator: Option<Coordinator>) -> Result<()> {
    for product in Coordinator::value_variants() {
        if coordinator.is_some_and(|wanted| wanted != *product) {
            continue;
        }
        // Each server lives as long as its drill.
        match product {
            Coordinator::Consul => {
                if let Some(server) = Consul::start()? {
                    run_on(program, length, "consul", server.port()).await?;
                }
            }
            Coordinator::Etcd => {
                if let Some(server) = Etcd::start()? {
                    run_on(program, length, "etcd", server.port()).await?;
                }
            }
            Coordinator::Zookeeper => {
                if let Some(server) = ZooKeeper::start()? {
                    run_on(program, length, "zookeeper", server.port()).await?;
                }
            }
        }
    }
    Ok(())
}

async fn run_on(program: &Path, length: Length, scheme: &str, port: u16) -> Result<()> {
    let (count, strikes) = if length == Length::Long { (1000, 30) } else { (40, 3) };
    let mut fleet = Fleet::new(program, 0)?;
    let ledger = Reigns::new(fleet.dir())?;
    fleet.start_server().await?;
    let client = fleet.client()?;
    let url = format!("{scheme}://127.0.0.1:{port}");
    let campaign = ["--exclusive", NAME, "--exclusive-lease", LEASE, "--coordinator", &url];
    for worker in 0..3 {
        fleet.launch_worker(&format!("worker-{worker}"), 1, "error", &campaign)?;
    }
    let submitted = submit(&client, count).await?;
    let mut fence = ledger.reign_after(0).await?;
    let mut takeovers: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for strike in 0..strikes {
        time::sleep(PAUSE).await;
        let (word, signal) = STRIKES[strike % STRIKES.len()];
        let leader = leader(program, &url).await?;
        fleet.signal_worker(&leader, signal)?;
        let mut struck = Instant::now();
        if signal != Signal::STOP {
            fleet.reap_worker(&leader).await?;
            fleet.launch_worker(&format!("{leader}-next"), 1, "error", &campaign)?;
        }
        if signal == Signal::TERM {
            // It has finished what it had, which is not part of the takeover.
            struck = Instant::now();
        }
        fence = ledger.reign_after(fence).await?;
        takeovers.entry(word).or_default().push(i64::try_from(struck.elapsed().as_millis())?);
        if signal == Signal::STOP {
            fleet.signal_worker(&leader, Signal::CONT)?;
        }
    }
    tasks::wait_until_succeeded(&client, count, PATIENCE.max(PAUSE * u32::try_from(count)?)).await?;
    let verdict = ledger.verdict(&submitted)?;
    let mut line = format!(
        "leader-kill on {scheme}, lease {LEASE}: {strikes} strikes, {count} tasks, 0 lost, {} run twice, never two at once, order kept",
        verdict.repeated
    );
    for (word, mut times) in takeovers {
        times.sort_unstable();
        let (median, longest) = (tasks::percentile(&times, 50), tasks::percentile(&times, 100));
        line.push_str(&format!("; takeover after {word} {median} ms (median), {longest} ms (longest)"));
    }
    println!("{line}");
    ensure!(
        verdict.reigns > strikes,
        "{} leaders for {strikes} strikes: the drill shows nothing",
        verdict.reigns
    );
    fleet.stop().await
}

/// Applies the flows, and submits tasks of them by turns. Returns their ids with the names of their flows, in order.
async fn submit(client: &Client, count: usize) -> Result<Vec<(String, &'static str)>> {
    for (name, queue) in FLOWS {
        let mut flow = serde_json::json!({
            "flow": name, "steps": [{"name": "act", "run": "drill.act", "timeout": "1m"}],
        });
        if let Some(queue) = queue {
            flow["exclusive"] = queue.into();
        }
        client.apply_flow(name, &serde_json::from_value(flow)?).await?;
    }
    let names: Vec<&'static str> = FLOWS.iter().map(|(name, _)| *name).cycle().take(count).collect();
    let task = |flow: &&str| SubmitTask { flow: (*flow).to_owned(), ..SubmitTask::default() };
    let tasks: Vec<SubmitTask> = names.iter().map(task).collect();
    Ok(tasks::submit_all(client, &tasks).await?.into_iter().zip(names).collect())
}

/// The name of the worker that leads.
async fn leader(program: &Path, url: &str) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(["leader", NAME, "--coordinator", url, "-o", "json"]).output().await?;
    let leader: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("nobody leads: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(leader["id"].as_str().context("a leader without an id")?.to_owned())
}

/// The file to which commands append lines `FENCE WORD TASK`, several while they run.
struct Reigns {
    file: PathBuf,
}

/// What the ledger shows.
struct Verdict {
    /// How many leaders there were.
    reigns: usize,
    /// Tasks whose command ran to its end more than once.
    repeated: usize,
}

impl Reigns {
    /// Writes the command `drill.act`, which takes about 150 ms and ignores SIGTERM.
    fn new(dir: &Path) -> Result<Self> {
        let file = dir.join("reigns");
        let command = dir.join("modules/drill/act");
        let script = format!(
            "#!/bin/sh\ntrap '' TERM\nsay() {{ echo \"$WINDLASS_LEADER_FENCE $1 $WINDLASS_TASK\" >> '{}'; }}\n\
             say begin\nfor i in 1 2 3 4 5; do sleep 0.02; say acts; done\nsay end\n",
            file.display()
        );
        fs::write(&command, script)?;
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755))?;
        Ok(Self { file })
    }

    /// The whole lines so far.
    fn lines(&self) -> Result<Vec<(u64, String, String)>> {
        let text = match fs::read_to_string(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let line = |line: &str| {
            let mut words = line.split(' ');
            let mut word = || words.next().context("a short line in the ledger");
            Ok((word()?.parse()?, word()?.to_owned(), word()?.to_owned()))
        };
        whole.lines().map(line).collect()
    }

    /// Waits until a later leader acts. Returns its fence.
    async fn reign_after(&self, fence: u64) -> Result<u64> {
        let began = Instant::now();
        loop {
            if let Some((last, ..)) = self.lines()?.last().filter(|(last, ..)| *last > fence) {
                return Ok(*last);
            }
            ensure!(began.elapsed() < PATIENCE, "no other leader acts after {PATIENCE:?}");
            time::sleep(LOOK_EVERY).await;
        }
    }

    /// Fails when two commands ran at once, tasks were lost, or those of the queue began in another order.
    fn verdict(&self, submitted: &[(String, &'static str)]) -> Result<Verdict> {
        let mut open: Option<(u64, String)> = None;
        let (mut fences, mut ends, mut begun) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        for (fence, word, task) in self.lines()? {
            let highest = fences.last().copied().unwrap_or(0);
            ensure!(
                fence >= highest,
                "{task} acted under the fence {fence} after the first act under {highest}"
            );
            fences.insert(fence);
            match (word.as_str(), &open) {
                ("begin", Some((other, running))) if *other == fence => {
                    bail!("{task} began under the fence {fence} while {running} ran");
                }
                ("begin", _) => {
                    if !begun.contains(&task) {
                        begun.push(task.clone());
                    }
                    open = Some((fence, task));
                }
                (_, Some(running)) if *running == (fence, task.clone()) => {
                    if word == "end" {
                        *ends.entry(task).or_insert(0) += 1;
                        open = None;
                    }
                }
                _ => bail!("{task} acted under the fence {fence} after another command had begun"),
            }
        }
        let lost = submitted.iter().filter(|(id, _)| !ends.contains_key(id)).count();
        ensure!(lost == 0, "{lost} tasks never ran to their end");
        let ordered = submitted.iter().filter(|(_, flow)| *flow == "ordered").map(|(id, _)| id);
        let began = begun.iter().filter(|id| submitted.contains(&((*id).clone(), "ordered")));
        ensure!(ordered.eq(began), "the tasks of the exclusive queue began in another order");
        Ok(Verdict { reigns: fences.len(), repeated: ends.values().filter(|times| **times > 1).count() })
    }
}
