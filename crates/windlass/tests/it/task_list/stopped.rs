//! A task that runs when the leader key goes to another consumer is stopped before that consumer begins.

use std::{
    sync::atomic::{AtomicBool, AtomicU32},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    classic::Classic,
    stage::{List, Stage},
};
use crate::site::until_within;

/// Long enough for a session to expire, which takes up to twice its TTL of 13.5 s, and for a takeover.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn what_runs_is_stopped_when_the_session_of_the_leader_is_destroyed() {
    let Some(list) = List::new("destroyed-session") else { return };
    let stage = led(list, "60s");
    let destroy = || {
        if let Some(session) = session_of_windlass(list) {
            list.consul.ask("PUT", &format!("/v1/session/destroy/{session}"), "").unwrap();
        }
    };
    // Before the other consumer asks for the key: a request that Consul works on while the session ends gets the key without
    // the lock-delay.
    destroy();
    beside_another(list, &stage, || {
        // Of the candidates either may lead next.
        until_within(PATIENCE, "the other consumer has done its task", || {
            destroy();
            stage.done_by("classic").contains(&2).then_some(())
        });
    });
    ends_well(list, &stage);
}

#[test]
fn a_restarted_server_stops_what_its_predecessor_began_unless_it_leads() {
    let Some(list) = List::new("restarted-leader") else { return };
    let mut stage = led(list, "30s");
    stage.kill();
    // The worker goes on with the next server.
    stage.start();
    beside_another(list, &stage, || {
        until_within(PATIENCE, "the task was stopped", || {
            stage.ledger().contains(&"windlass stops 1".to_owned()).then_some(())
        });
    });
    ends_well(list, &stage);
}

/// A server that leads, and a task of it that runs. What runs has a tenth of the lease to end.
fn led(list: List, lease: &str) -> Stage {
    let stage = Stage::new(list, &format!("leader = \"{}\"\nlease = \"{lease}\"", list.leader_key()));
    list.put(1, "slow");
    until_within(PATIENCE, "the task runs", || (stage.ledger() == ["windlass begins 1"]).then_some(()));
    stage
}

/// Has another consumer wait for its turn in the meantime. Opens the gate after that, and waits for the end of all tasks.
fn beside_another(list: List, stage: &Stage, meanwhile: impl FnOnce()) {
    list.put(2, "note");
    let (ends, reigns) = (AtomicBool::new(false), AtomicU32::new(0));
    let ledger = stage.ledger_path();
    let classic = Classic { list, ledger, reign: u32::MAX, handovers: 0, ends: &ends, reigns: &reigns };
    thread::scope(|scope| {
        scope.spawn(|| classic.run());
        let _ends = super::shared::Ends(&ends);
        meanwhile();
        stage.site.open_gate();
        until_within(PATIENCE, "the list is empty", || list.entries().is_empty().then_some(()));
    });
}

/// The session with which a server of Windlass locks the leader key.
fn session_of_windlass(list: List) -> Option<String> {
    let answer = list.consul.ask("GET", &format!("/v1/kv/{}", list.leader_key()), "").ok()?;
    let key: Value = serde_json::from_str(&answer).ok()?;
    let session = key[0]["Session"].as_str()?;
    let answer = list.consul.ask("GET", &format!("/v1/session/info/{session}"), "").ok()?;
    let info: Value = serde_json::from_str(&answer).ok()?;
    // The sessions of the other consumer have no name.
    info[0]["Name"].as_str().filter(|name| !name.is_empty()).map(|_| session.to_owned())
}

/// Each task was done once, and none began while another one ran.
fn ends_well(list: List, stage: &Stage) {
    let ledger = stage.ledger();
    eprintln!("{ledger:#?}");
    for lines in ledger.chunks(2) {
        let [begins, ends] = lines else { panic!("a task began and did not end: {ledger:?}") };
        let of = begins.replace("begins", "");
        let stops = ends.replace("ends", "").replace("stops", "");
        assert!(begins.contains("begins") && of == stops, "two at once: {ledger:?}");
    }
    assert!(ledger.contains(&"windlass stops 1".to_owned()), "{ledger:?}");
    let mut done = [stage.done_by("windlass"), stage.done_by("classic")].concat();
    done.sort_unstable();
    assert_eq!(done, [1, 2], "each once");
    assert!(list.entries().is_empty());
    let tasks = stage.tasks();
    assert!(tasks.iter().all(|task| task["status"] == "succeeded"), "{tasks:?}");
}
