//! Measures latencies and the resources of processes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use super::site::Site;

/// Latencies in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    ms: Vec<f64>,
}

impl Latencies {
    pub(super) fn add(&mut self, latency: Duration) {
        self.ms.push(latency.as_secs_f64() * 1000.0);
    }

    /// The latency below which this fraction of all latencies lies.
    pub(super) fn percentile(&self, part: f64) -> f64 {
        let mut sorted = self.ms.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the index of a percentile"
        )]
        let index = (sorted.len() as f64 * part) as usize;
        sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }
}

/// Wall time in microseconds, the same for all processes of this machine. This process runs no server, so it
/// need not use a server's clock, and the system clock may be finer.
pub(super) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Counters of a server's work with its store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StoreCounts {
    /// Round trips to the store; none unless the store is a database.
    pub(super) round_trips: Option<f64>,
    /// Transitions decided again after a conflict.
    pub(super) conflicts: f64,
}

impl StoreCounts {
    /// The sums of the counters of all servers.
    pub(super) async fn of(site: &Site) -> anyhow::Result<Self> {
        let mut all = Self::default();
        for url in site.urls() {
            let metrics = site.client(url)?.metrics().await?;
            let trips = counter(&metrics, "windlass_store_round_trips_total")?;
            all.round_trips = trips.map(|trips| trips + all.round_trips.unwrap_or(0.0));
            all.conflicts += counter(&metrics, "windlass_commit_conflicts_total")?.unwrap_or(0.0);
        }
        Ok(all)
    }
}

fn counter(metrics: &str, name: &str) -> anyhow::Result<Option<f64>> {
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map(|value| value.trim().parse().context("a metric is not a number")).transpose()
}

/// CPU time a process has used, in milliseconds.
pub(super) fn cpu_ms(pid: u32) -> anyhow::Result<f64> {
    let stat =
        std::fs::read_to_string(format!("/proc/{pid}/stat")).context("cannot read a process's CPU time")?;
    // The name in parentheses may contain any character; user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    #[expect(clippy::cast_precision_loss, reason = "a hundred or so")]
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    Ok((ticks(11) + ticks(12)) * 1000.0 / ticks_per_s)
}

/// Resident memory of a process, in MiB.
pub(super) fn rss_mb(pid: u32) -> anyhow::Result<f64> {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).context("cannot read a process's memory")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the process has ended")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
