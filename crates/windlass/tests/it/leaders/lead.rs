//! `windlass lead` under real coordinators: leaders that are killed, stopped and cut off, and a ledger that their
//! commands write.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use windlass_testkit::Proxy;

use crate::{
    leaders::coordinators::{Kind, LEASE, Ledger, Process, on_each, run},
    site::{has_handlers, text, until},
};

/// Acts all the time, from a process that the command started, and ignores SIGTERM.
const ACTS: &str = "trap '' TERM
    (while :; do echo $WINDLASS_FENCE acts; sleep 0.01; done >> $0) & wait";

/// Acts until SIGTERM, which it notes.
const ENDS: &str = "trap 'echo $WINDLASS_FENCE term >> $0; exit 5' TERM
    while :; do echo $WINDLASS_FENCE acts >> $0; sleep 0.01; done";

/// A candidate whose command is this script.
fn candidate(url: &str, name: &str, ledger: &Ledger, script: &str, options: &[&str]) -> Process {
    candidate_for(LEASE, url, name, ledger, script, options)
}

/// The same with this lease.
fn candidate_for(
    lease: &str,
    url: &str,
    name: &str,
    ledger: &Ledger,
    script: &str,
    options: &[&str],
) -> Process {
    let file = ledger.file();
    let start = ["lead", name, "--coordinator", url, "--lease", lease];
    let command = ["--", "sh", "-c", script, file.to_str().unwrap()];
    Process::start(&[&start[..], options, &command].concat(), &ledger.dir().join("log"))
}

/// Waits until the command of the first leader acts. Returns its fence.
fn first_fence(ledger: &Ledger) -> u64 {
    ledger.next_after(0)
}

#[test]
fn a_killed_leader_is_replaced() {
    on_each(|kind| {
        let ledger = Ledger::new();
        let mut first = candidate(&kind.url(), "killed", &ledger, ACTS, &[]);
        let fence = first_fence(&ledger);
        let _second = candidate(&kind.url(), "killed", &ledger, ACTS, &[]);
        first.0.kill().unwrap();
        let killed = Instant::now();
        let next = ledger.next_after(fence);
        kind.say("the next leader acts", killed);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(ledger.reigns(), [fence, next]);
    });
}

/// The stopped process cannot end its command: another one must.
#[test]
fn the_command_of_a_stopped_leader_is_gone_before_the_next_leader_acts() {
    on_each(|kind| {
        let ledger = Ledger::new();
        let mut first = candidate(&kind.url(), "stopped", &ledger, ACTS, &[]);
        let fence = first_fence(&ledger);
        let _second = candidate(&kind.url(), "stopped", &ledger, ACTS, &[]);
        first.signal("STOP");
        let stopped = Instant::now();
        let next = ledger.next_after(fence);
        kind.say("the next leader acts", stopped);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(ledger.reigns(), [fence, next]);
        first.signal("CONT");
        assert_eq!(first.code(), Some(12), "it has noticed the loss");
        assert_eq!(ledger.reigns(), [fence, next]);
    });
}

#[test]
fn a_command_that_ends_gives_its_exit_code_and_the_next_one_leads_at_once() {
    on_each(|kind| {
        let ledger = Ledger::new();
        let script = "echo $WINDLASS_FENCE $WINDLASS_LEADER_NAME-${WINDLASS_COORDINATOR-none} >> $0; \
                      sleep 600 & read line; exit 7";
        let mut first = candidate(&kind.url(), "team/ends", &ledger, script, &[]);
        assert_eq!(first.code(), Some(7), "its input is empty, and what it leaves behind is killed");
        let nobody = run(&["leader", "team/ends", "--coordinator", &kind.url()]);
        assert_eq!(nobody.status.code(), Some(3), "it has resigned: {nobody:?}");
        let fence = first_fence(&ledger);
        let ended = Instant::now();
        let _second = candidate(&kind.url(), "team/ends", &ledger, ACTS, &[]);
        let next = ledger.next_after(fence);
        kind.say("the next leader acts", ended);
        assert_eq!(ledger.reigns(), [fence, next]);
        assert_eq!(ledger.count("team/ends-none"), 1, "{:?}", ledger.lines().first());
    });
}

#[test]
fn a_signal_is_passed_on_and_the_leader_resigns() {
    on_each(|kind| {
        let ledger = Ledger::new();
        let mut first = candidate(&kind.url(), "signalled", &ledger, ENDS, &[]);
        let fence = first_fence(&ledger);
        let mut second = candidate(&kind.url(), "signalled", &ledger, ENDS, &[]);
        first.signal("TERM");
        assert_eq!(first.code(), Some(5), "its command's own code");
        assert_eq!(ledger.count("term"), 1);
        let ended = Instant::now();
        let next = ledger.next_after(fence);
        kind.say("the next leader acts", ended);
        assert_eq!(ledger.reigns(), [fence, next]);
        // Where nothing runs yet, there is nothing to pass it on to.
        let mut third = candidate(&kind.url(), "signalled", &ledger, ENDS, &[]);
        let pid = Pid::from_child(&third.0);
        until("the third candidate catches SIGINT", || has_handlers(pid, &[Signal::INT]).then_some(()));
        // The candidate catches signals before it campaigns: this gives it time to campaign.
        std::thread::sleep(Duration::from_millis(500));
        third.signal("INT");
        assert_eq!(third.code(), Some(130));
        second.signal("TERM");
        assert_eq!(second.code(), Some(5));
    });
}

/// Cuts the leader off, until its command notes SIGTERM.
fn cut_off(network: &Proxy, ledger: &Ledger, terms: usize) {
    network.cut();
    until("the command gets SIGTERM", || (ledger.count("term") == terms).then_some(()));
}

#[test]
fn a_coordinator_that_is_away_for_a_moment_changes_nothing_and_for_long_ends_the_command() {
    // A busy machine delays a renewal for less than this. The leader renews every 1.7 s: most of the outages meet a renewal. The
    // rounds together take longer than the lease.
    const LONG: &str = "10s";
    on_each(|kind| {
        let ledger = Ledger::new();
        let (network, url) = kind.proxied();
        let mut first = candidate_for(LONG, &url, "cut-off", &ledger, ENDS, &[]);
        let fence = first_fence(&ledger);
        for _ in 0..4 {
            network.cut();
            std::thread::sleep(Duration::from_secs(1));
            network.heal();
            // A renewal in ZooKeeper only proves one that is 2.5 s older.
            std::thread::sleep(Duration::from_millis(3500));
        }
        assert_eq!((ledger.reigns(), ledger.count("term")), (vec![fence], 0));
        let second = candidate_for(LONG, &kind.url(), "cut-off", &ledger, ACTS, &[]);
        cut_off(&network, &ledger, 1);
        assert_eq!(first.code(), Some(12));
        let next = ledger.next_after(fence);
        // The leader also wrote at its SIGTERM: no line of another leader is before that.
        assert_eq!(ledger.reigns(), [fence, next]);
        drop(second);
    });
}

#[test]
fn with_restart_a_leader_stands_by_and_leads_again() {
    on_each(|kind| {
        let ledger = Ledger::new();
        let (network, url) = kind.proxied();
        let mut only = candidate(&url, "restarts", &ledger, ENDS, &["--restart"]);
        let first = first_fence(&ledger);
        cut_off(&network, &ledger, 1);
        network.heal();
        let second = ledger.next_after(first);
        assert_eq!(ledger.reigns(), [first, second]);
        only.signal("TERM");
        assert_eq!((only.code(), ledger.count("term")), (Some(5), 2));
    });
}

#[test]
fn the_leader_can_be_asked_for() {
    on_each(|kind| {
        let ledger = Ledger::new();
        let url = kind.url();
        let ask = |more: &[&str]| run(&[&["leader", "asked", "--coordinator", &url], more].concat());
        let nobody = ask(&[]);
        assert_eq!(nobody.status.code(), Some(3));
        assert!(text(&nobody.stderr).contains("nobody leads asked"), "{nobody:?}");
        let options = ["--id", "db-7", "--value", "10.0.0.7:80"];
        let _leader = candidate(&url, "asked", &ledger, ACTS, &options);
        let fence = first_fence(&ledger);
        let leader: serde_json::Value = serde_json::from_slice(&ask(&["-o", "json"]).stdout).unwrap();
        let expected =
            serde_json::json!({"name": "asked", "id": "db-7", "fence": fence, "value": "10.0.0.7:80"});
        assert_eq!(leader, expected);
        let table = text(&ask(&[]).stdout);
        assert!(table.contains("db-7") && table.contains("10.0.0.7:80"), "{table}");
    });
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    for (arguments, code, words) in [
        (&["lead", "a b", "--", "sh"][..], 2, "invalid name"),
        (
            &["lead", "n", "--coordinator", "nacos://u:secret@h", "--", "sh"],
            2,
            "consul://, consuls://, etcd://",
        ),
        (&["lead", "n", "--coordinator", "etcd://u:secret@h:x", "--", "sh"], 2, "invalid URL"),
        (&["lead", "a name", "--coordinator", "etcd://u:secret@h", "--", "sh"], 2, "invalid name"),
        (&["lead", "n", "--coordinator", "etcd://h", "--lease", "1s", "--", "sh"], 2, "invalid lease"),
        (&["lead", "n", "--coordinator", "etcd://h", "--", "no-such"], 2, "there is no such command"),
        (&["leader", "n", "--coordinator", "etcd://u:secret@127.0.0.1:9"], 5, "unavailable"),
        (&["leader", "a//b?c", "--coordinator", "consul://:secret@127.0.0.1:9"], 2, "invalid name"),
    ] {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words) && !said.contains("secret"), "{said}");
    }
}

#[test]
fn a_standby_waits_for_a_coordinator_and_its_log_has_no_password() {
    let Some(kind) = Kind::all().into_iter().find(|kind| kind.scheme == "etcd") else { return };
    let ledger = Ledger::new();
    let (network, url) = kind.proxied();
    network.cut();
    let url = url.replace("etcd://", "etcd://somebody:secret@127.0.0.1:9,");
    let file = ledger.dir().join("url");
    std::fs::write(&file, format!("{url}\n")).unwrap();
    let start = ["lead", "waits", "--coordinator-file", file.to_str().unwrap(), "--lease", "2s"];
    let command = ["--", "sh", "-c", ACTS, ledger.dir().join("ledger").to_str().unwrap()].map(str::to_owned);
    let arguments: Vec<&str> = start.into_iter().chain(command.iter().map(String::as_str)).collect();
    let log = ledger.dir().join("log");
    let mut leader = Process::start(&arguments, &log);
    let said = until("it says that it waits", || {
        std::fs::read_to_string(&log).ok().filter(|text| text.contains("cannot campaign; retrying"))
    });
    assert!(said.contains("etcd://127.0.0.1:9,") && !said.contains("secret"), "{said}");
    assert_eq!(leader.0.try_wait().unwrap(), None);
}
