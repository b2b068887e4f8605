//! One list, consumed by Windlass and by consumers of the first design.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use windlass_testkit::Postgres;

use super::{
    classic::Classic,
    stage::{List, Stage},
};
use crate::site::{until, until_within};

/// The tasks of the list.
const TASKS: u32 = 1_000;

/// All of it takes about half of this.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tasks that each consumer does before the other one leads.
const REIGN: u32 = 100;

/// How often the consumer of the first design gives up leadership.
const HANDOVERS: u32 = 3;

#[test]
fn each_task_of_a_shared_list_is_done_once_and_by_one_leader_at_a_time() {
    let Some(list) = List::new("shared-list") else { return };
    list.put_all(TASKS);
    let rest = format!("leader = \"{}\"\nlease = \"2s\"", list.leader_key());
    let mut stage = Stage::new(list, &rest);
    let began = Instant::now();
    let say = |what: &str| eprintln!("after {:.1} s {what}", began.elapsed().as_secs_f64());
    let (ends, reigns) = (AtomicBool::new(false), AtomicU32::new(0));
    let classic = Classic {
        list,
        ledger: stage.ledger_path(),
        reign: REIGN,
        handovers: HANDOVERS,
        ends: &ends,
        reigns: &reigns,
    };
    thread::scope(|scope| {
        scope.spawn(|| classic.run());
        // Also after a panic, so that the other thread ends.
        let _ends = Ends(&ends);
        let is_done = |stage: &Stage| stage.ledger().len() == 2 * TASKS as usize;
        for ending in [Stage::kill, Stage::end, Stage::kill] {
            let before = stage.done_by("windlass").len();
            until("the server has led for a while", || {
                let did = stage.done_by("windlass").len() - before;
                (did >= REIGN as usize || is_done(&stage)).then_some(())
            });
            say("the server ends");
            let led = reigns.load(Ordering::SeqCst);
            ending(&mut stage);
            until("the other consumer leads", || {
                (reigns.load(Ordering::SeqCst) > led || is_done(&stage)).then_some(())
            });
            say("the other consumer leads");
            stage.start();
        }
        until_within(PATIENCE, "all are done", || is_done(&stage).then_some(()));
    });
    list.is_empty();
    let (ours, theirs) = all_once(&stage, TASKS);
    assert!(ours >= 3 * REIGN as usize && theirs >= 3 * REIGN as usize, "leadership changed hands");
    // Nobody began while another task was under way.
    let ledger = stage.ledger();
    for (begins, ends) in ledger.iter().step_by(2).zip(ledger.iter().skip(1).step_by(2)) {
        assert_eq!(begins.replace("begins", "ends"), *ends);
    }
    assert!(stage.alarms().is_empty(), "{:?}", stage.alarms());
}

#[test]
fn without_a_leader_key_the_faster_consumer_has_a_task() {
    const TASKS: u32 = 300;

    let Some(list) = List::new("contested-list") else { return };
    let stage = Stage::new(list, "");
    list.put_all(TASKS);
    let (ends, reigns) = (AtomicBool::new(false), AtomicU32::new(0));
    let ledger = stage.ledger_path();
    let classic = Classic { list, ledger, reign: 0, handovers: 0, ends: &ends, reigns: &reigns };
    classic.run_beside();
    let is_done = || stage.ledger().len() == 2 * TASKS as usize;
    until_within(PATIENCE, "all are done", || is_done().then_some(()));
    list.is_empty();
    all_once(&stage, TASKS);
}

#[test]
fn servers_that_share_a_store_share_a_list() {
    const TASKS: u32 = 100;

    let Some(list) = List::new("servers-list") else { return };
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let database = postgres.database().unwrap();
    let mut stage = Stage::on_database(list, database.url(), "window = 10");
    let second = stage.second_server();
    list.put_all(TASKS);
    until_within(PATIENCE, "many are done", || (stage.done_by("windlass").len() > 30).then_some(()));
    // The other one settles what this one has taken.
    stage.kill();
    stage.lead_worker_to(&second);
    until_within(PATIENCE, "the list is empty", || list.entries().is_empty().then_some(()));
    let tasks = second.json(&["task", "list", "--limit", "1000"]);
    let tasks = tasks["items"].as_array().unwrap();
    assert_eq!(tasks.len(), TASKS as usize, "one for each entry");
    assert!(tasks.iter().all(|task| task["status"] == "succeeded"), "{tasks:?}");
}

#[test]
fn a_leader_whose_key_was_changed_leads_again() {
    let Some(list) = List::new("changed-leader") else { return };
    let rest = format!("leader = \"{}\"\nlease = \"2s\"", list.leader_key());
    let stage = Stage::new(list, &rest);
    list.put(1, "note");
    list.is_empty();
    let path = format!("/v1/kv/{}", list.leader_key());
    list.consul.ask("PUT", &path, "an operator").unwrap();
    list.put(2, "note");
    list.is_empty();
    assert_eq!(stage.done_by("windlass"), [1, 2]);
}

/// Each task was done once, by whomever.
fn all_once(stage: &Stage, tasks: u32) -> (usize, usize) {
    let (ours, theirs) = (stage.done_by("windlass"), stage.done_by("classic"));
    eprintln!("windlass did {}, the other {}", ours.len(), theirs.len());
    let mut all = [&ours[..], &theirs[..]].concat();
    all.sort_unstable();
    assert_eq!(all, (0..tasks).collect::<Vec<_>>(), "each once");
    (ours.len(), theirs.len())
}

pub(super) struct Ends<'a>(pub(super) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
