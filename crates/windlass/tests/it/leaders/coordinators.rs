//! Coordinators on this machine, and a ledger of who acts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Instant,
};

use tempfile::TempDir;
use windlass_testkit::{Consul, Etcd, Proxy, ZooKeeper};

use crate::site::{PROGRAM, Site, until};

/// The lease of all candidates.
pub(crate) const LEASE: &str = "4s";

/// A coordinator and its port.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) scheme: &'static str,
    port: u16,
}

impl Kind {
    /// All that are installed.
    pub(crate) fn all() -> Vec<Self> {
        let consul = Consul::shared().unwrap().map(|server| Self { scheme: "consul", port: server.port() });
        let etcd = Etcd::shared().unwrap().map(|server| Self { scheme: "etcd", port: server.port() });
        let zookeeper =
            ZooKeeper::shared().unwrap().map(|server| Self { scheme: "zookeeper", port: server.port() });
        [consul, etcd, zookeeper].into_iter().flatten().collect()
    }

    pub(crate) fn url(self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// A network that fails, and the URL behind it.
    pub(crate) fn proxied(self) -> (Proxy, String) {
        let network = Proxy::start(self.port).unwrap();
        let url = format!("{}://127.0.0.1:{}", self.scheme, network.port());
        (network, url)
    }

    pub(crate) fn say(self, what: &str, since: Instant) {
        eprintln!("{}: {what} after {:.2} s", self.scheme, since.elapsed().as_secs_f64());
    }
}

/// Runs a test on all coordinators at once, a server of Windlass among them: it waits most of the time.
pub(crate) fn on_each(test: impl Fn(Kind) + Sync) {
    let site = Site::start();
    let port = site.url.rsplit(':').next().unwrap().parse().unwrap();
    let windlass = Kind { scheme: "http", port };
    std::thread::scope(|scope| {
        for kind in Kind::all().into_iter().chain([windlass]) {
            let test = &test;
            scope.spawn(move || test(kind));
        }
    });
}

/// Runs a test on all coordinators that are no servers of Windlass, at once.
pub(crate) fn on_each_elsewhere(test: impl Fn(Kind) + Sync) {
    std::thread::scope(|scope| {
        for kind in Kind::all() {
            let test = &test;
            scope.spawn(move || test(kind));
        }
    });
}

/// A file to which leaders append lines `FENCE WORD`.
pub(crate) struct Ledger {
    dir: TempDir,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("ledger")
    }

    /// The whole lines so far: each a fence and a word.
    pub(crate) fn lines(&self) -> Vec<(u64, String)> {
        let text = fs::read_to_string(self.file()).unwrap_or_default();
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let line = |line: &str| {
            let (fence, word) = line.split_once(' ').unwrap();
            (fence.parse().unwrap(), word.to_owned())
        };
        whole.lines().map(line).collect()
    }

    /// The fences in the order in which they appear, each once. An effect of an earlier leader after one of a later
    /// leader is a panic.
    pub(crate) fn reigns(&self) -> Vec<u64> {
        let mut fences: Vec<u64> = self.lines().into_iter().map(|(fence, _)| fence).collect();
        assert!(fences.is_sorted(), "an effect of an earlier leader after one of a later leader: {fences:?}");
        fences.dedup();
        fences
    }

    /// Waits until a leader after this one has an effect. Returns its fence.
    pub(crate) fn next_after(&self, fence: u64) -> u64 {
        until("the next leader acts", || {
            self.lines().last().map(|(last, _)| *last).filter(|last| *last > fence)
        })
    }

    /// How often this word was written.
    pub(crate) fn count(&self, word: &str) -> usize {
        self.lines().iter().filter(|(_, written)| written == word).count()
    }
}

impl Drop for Ledger {
    /// After a failure the logs of the processes say more.
    fn drop(&mut self) {
        let files = fs::read_dir(self.dir()).into_iter().flatten().flatten();
        for file in files.filter(|file| std::thread::panicking() && file.path() != self.file()) {
            eprintln!("{}:\n{}", file.path().display(), fs::read_to_string(file.path()).unwrap_or_default());
        }
    }
}

/// A process of the program. It is killed when this is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts the program. Its log goes to this file.
    pub(crate) fn start(arguments: &[&str], log: &Path) -> Self {
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Self(command.spawn().unwrap())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([&format!("-{signal}"), &self.0.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for its end.
    pub(crate) fn code(&mut self) -> Option<i32> {
        until("the process ends", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A stopped process dies as well. One that has ended cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}
