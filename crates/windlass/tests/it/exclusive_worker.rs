//! `windlass worker --exclusive` under real coordinators: leaders that are killed, stopped and cut off, and a ledger
//! that their commands write.

use std::{fs, path::PathBuf, time::Instant};

use crate::{
    leaders::coordinators::{Kind, LEASE, Ledger, Process, on_each, run},
    site::{Site, script, store, until_within},
};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Acts for about half a second, and as long as there is a file `LEDGER.goes-on`, from a process that the command
/// started; ignores SIGTERM.
const ACTS: &str = "trap '' TERM
(i=0; while [ $i -lt 20 ] || [ -e LEDGER.goes-on ]; do
  echo \"$WINDLASS_LEADER_FENCE $WINDLASS_TASK\"; sleep 0.02; i=$((i + 1))
done >> LEDGER) & wait";

/// A server with a flow whose tasks act, and a ledger.
struct Stage {
    site: Site,
    ledger: Ledger,
    name: String,
}

impl Stage {
    fn new(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let site = Site::open(dir, &store, &[]);
        site.apply("flow: act\nsteps: [{ name: one, run: m.act, timeout: 1m }]\n");
        let ledger = Ledger::new();
        let module = PathBuf::from(site.path("modules/m"));
        fs::create_dir_all(&module).unwrap();
        script(&module.join("act"), &ACTS.replace("LEDGER", &ledger.file().display().to_string()));
        Self { site, ledger, name: name.to_owned() }
    }

    fn worker(&self, url: &str, name: &str) -> Process {
        let modules = self.site.path("modules");
        let arguments = ["worker", "--server", &self.site.url, "--modules", &modules, "--concurrency", "3"];
        let exclusive = ["--name", name, "--exclusive", &self.name, "--exclusive-lease", LEASE];
        let coordinator = ["--coordinator", url];
        Process::start(
            &[&arguments[..], &exclusive, &coordinator].concat(),
            &self.ledger.dir().join(format!("{name}.log")),
        )
    }

    /// From now on commands do not end, or end again.
    fn go_on(&self, on: bool) {
        let file = self.ledger.file().with_extension("goes-on");
        if on { fs::write(file, "") } else { fs::remove_file(file) }.unwrap();
    }

    fn start_tasks(&self, count: usize) {
        for _ in 0..count {
            self.site.start_task("act");
        }
    }

    /// Checks that no leader had an effect after a later one, and that there were at most two leaders more than the test caused. On a
    /// busy machine a leader may lose its lease.
    fn assert_reigns(&self, caused: usize) {
        let reigns = self.ledger.reigns();
        assert!((caused..=caused + 2).contains(&reigns.len()), "{caused} leaders were caused: {reigns:?}");
    }

    /// Waits until this number of tasks has succeeded.
    fn done(&self, count: usize) {
        until_within(PATIENCE, "all tasks succeed", || {
            let counts = self.site.json(&["task", "list", "--status", "succeeded", "--count"]);
            (counts["total"].as_u64() == Some(count as u64)).then_some(())
        });
    }

    /// The number of the worker that leads.
    fn leads(&self, url: &str) -> usize {
        let leader: serde_json::Value = until_within(PATIENCE, "the leader is shown", || {
            let output = run(&["leader", &self.name, "--coordinator", url, "-o", "json"]);
            serde_json::from_slice(&output.stdout).ok()
        });
        leader["id"].as_str().unwrap().trim_start_matches("worker-").parse().unwrap()
    }
}

#[test]
fn one_worker_at_a_time_works_whether_leaders_are_killed_or_stopped() {
    on_each(|kind| {
        let stage = Stage::new("one-worker");
        let url = kind.url();
        let mut workers: Vec<Process> =
            (0..3).map(|number| stage.worker(&url, &format!("worker-{number}"))).collect();
        stage.start_tasks(40);
        let first = stage.ledger.next_after(0);
        let killed_worker = stage.leads(&url);
        workers[killed_worker].0.kill().unwrap();
        let killed = Instant::now();
        let second = stage.ledger.next_after(first);
        kind.say("after SIGKILL the next worker works", killed);
        let stopped = stage.leads(&url);
        stage.go_on(true);
        workers[stopped].signal("STOP");
        let at = Instant::now();
        // The commands of the stopped worker would go on: its guard has killed them by now.
        let third = stage.ledger.next_after(second);
        kind.say("after SIGSTOP the next worker works", at);
        stage.go_on(false);
        workers[stopped].signal("CONT");
        stage.done(40);
        stage.assert_reigns(3);
        // A clean end lets the next one take over at once: the last worker stands by.
        // Its commands go on until it has the signal: otherwise it could do everything before on a busy machine.
        stage.go_on(true);
        stage.start_tasks(20);
        let third_worker = stage.leads(&url);
        workers[third_worker].signal("TERM");
        stage.go_on(false);
        assert_eq!(workers[third_worker].code(), Some(0));
        let ended = Instant::now();
        stage.ledger.next_after(third);
        kind.say("after SIGTERM the next worker works", ended);
        assert_eq!(stage.leads(&url), 3 - killed_worker - third_worker, "the only worker that is left");
        stage.done(60);
        stage.assert_reigns(4);
    });
}

#[test]
fn a_worker_that_is_cut_off_from_its_coordinator_stops_and_works_again_later() {
    on_each(|kind| {
        let stage = Stage::new("cut-off-worker");
        let (network, url) = kind.proxied();
        let _worker = stage.worker(&url, "worker-0");
        stage.start_tasks(6);
        let first = stage.ledger.next_after(0);
        network.cut();
        let cut = Instant::now();
        until_within(PATIENCE, "it stands by", || {
            let log = fs::read_to_string(stage.ledger.dir().join("worker-0.log")).unwrap();
            log.contains("stopping the running attempts").then_some(())
        });
        network.heal();
        stage.start_tasks(6);
        stage.ledger.next_after(first);
        kind.say("it works again", cut);
        stage.done(12);
        stage.assert_reigns(2);
    });
}

/// Each product counts fences from another number, and the store is asked by all of them.
#[test]
fn a_change_of_the_coordinator_does_not_lower_the_fence() {
    let stage = Stage::new("changing");
    let mut urls: Vec<String> = Kind::all().into_iter().map(Kind::url).collect();
    urls.push(stage.site.url.clone());
    urls.extend(urls.clone().into_iter().rev());
    let mut tasks = 0;
    for url in &urls {
        let mut worker = stage.worker(url, "worker-0");
        stage.start_tasks(1);
        tasks += 1;
        stage.done(tasks);
        worker.signal("TERM");
        assert_eq!(worker.code(), Some(0));
    }
    // On a busy machine a leader may have had several terms.
    assert!(stage.ledger.reigns().len() >= urls.len(), "each has a higher fence than the one before");
}

#[test]
fn workers_that_disagree_about_the_coordinator_do_not_work_at_once() {
    let [one, other, ..] = Kind::all()[..] else { return };
    let stage = Stage::new("disagreeing");
    stage.go_on(true);
    let mut first = stage.worker(&one.url(), "worker-0");
    stage.start_tasks(20);
    stage.ledger.next_after(0);
    let _second = stage.worker(&other.url(), "worker-1");
    // Its own coordinator has elected it, as nobody else campaigns there.
    let log = stage.ledger.dir().join("worker-1.log");
    until_within(PATIENCE, "the other worker says what is wrong", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        let says = "give all candidates of a name the same coordinator";
        assert!(!log.contains("elected name"), "one of them works: {log}");
        (log.contains(says) && log.contains("is worker-0, which is alive")).then_some(())
    });
    stage.go_on(false);
    first.signal("TERM");
    assert_eq!(first.code(), Some(0));
    stage.done(20);
    assert!(stage.ledger.reigns().len() >= 2);
}
