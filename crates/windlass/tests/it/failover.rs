//! A database fails over to a replica that was behind: what it had confirmed is gone, and somebody must hear of it.

use std::time::Duration;

use serde_json::Value;
use windlass_testkit::{MariaDb, Postgres, Server, SqlProduct};

use super::site::{Site, text, until_within};

const FLOW: &str = "flow: good\nsteps: [{ name: one, run: m.echo }]\n";

/// Servers try an unavailable database again after growing pauses.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than from one heartbeat of a server to the next, so that the replica lacks some.
const BEHIND: Duration = Duration::from_secs(4);

const KEYS: [&str; 3] = ["order-1", "order-2", "order-3"];

#[test]
fn a_failover_that_loses_tasks_raises_an_alarm_on_postgres() {
    fails_over(&Postgres::start().unwrap());
}

#[test]
fn a_failover_that_loses_tasks_raises_an_alarm_on_mariadb() {
    fails_over(&MariaDb::start().unwrap());
}

fn fails_over<P: SqlProduct>(database_server: &Option<Server<P>>) {
    let Some(database_server) = database_server else { return };
    let database = database_server.database().unwrap();
    let open = || Site::open(tempfile::tempdir().unwrap(), &database.url(), &[]);
    let (mut first, second) = (open(), open());
    first.apply(FLOW);
    first.start_worker();
    let kept = first.start_task_and_wait("good");

    // The replica has everything up to here.
    database_server.kill().unwrap();
    database_server.copy_data().unwrap();
    database_server.restart().unwrap();
    let lost = until_within(PATIENCE, "tasks are accepted again", || start_all(&first));
    assert!(went_back(&first).is_none(), "nothing was lost");
    std::thread::sleep(BEHIND);

    // It becomes the primary without what came after.
    database_server.kill().unwrap();
    database_server.put_back().unwrap();
    database_server.restart().unwrap();
    let alarm = until_within(PATIENCE, "an alarm says that the store went back", || went_back(&second));
    let message = alarm["message"].as_str().unwrap();
    assert!(message.contains("lost changes that it had confirmed"), "{message}");
    for id in &lost {
        let shown = first.run(&["task", "show", id]);
        assert!(text(&shown.stderr).contains("store_went_back"), "{shown:?}");
    }
    // All goes on, and what is submitted again under its key is run.
    assert_eq!(first.json(&["task", "show", &kept])["status"], "succeeded");
    let again = start_all(&first).expect("tasks are accepted");
    for id in &again {
        assert!(!lost.contains(id));
        until_within(PATIENCE, "what was submitted again runs", || {
            (second.json(&["task", "show", id])["status"] == "succeeded").then_some(())
        });
    }
}

/// Starts a task under each key; nothing while the database is unavailable.
fn start_all(site: &Site) -> Option<Vec<String>> {
    let start = |key: &&str| {
        let started = site.run(&["task", "start", "good", "--key", key]);
        started.status.success().then(|| text(&started.stdout).trim().to_owned())
    };
    KEYS.iter().map(start).collect()
}

/// The alarm, if there is one.
fn went_back(site: &Site) -> Option<Value> {
    let listed = site.run(&["alarm", "list", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).ok()?;
    let alarms = listed["items"].as_array()?;
    alarms.iter().find(|alarm| alarm["kind"] == "store_went_back").cloned()
}
