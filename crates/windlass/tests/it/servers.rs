//! Several servers on one database, as their users meet them.

use std::{fs, path::PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use windlass_testkit::Postgres;

use super::site::{Site, until};

const FLOW: &str = "flow: good\nsteps:\n  - { name: one, run: m.echo }\n";

/// Far less than an hour.
const MINUTES: SignedDuration = SignedDuration::from_mins(5);

/// A server on this database, in a folder of its own.
fn server(url: &str, variables: &[(&str, &str)]) -> Site {
    Site::open(tempfile::tempdir().unwrap(), url, variables)
}

fn servers(site: &Site) -> Vec<Value> {
    site.json(&["server", "list"])["items"].as_array().unwrap().clone()
}

#[test]
fn each_server_lists_all_and_one_that_ends_in_order_is_gone_at_once() {
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let database = postgres.database().unwrap();
    let url = database.url();
    let first = server(&url, &[("WINDLASS_SERVER_ADVERTISE", "http://north:7700")]);
    let mut second = server(&url, &[]);
    for (site, other) in [(&first, &second), (&second, &first)] {
        let listed = servers(site);
        assert_eq!(listed.len(), 2, "{listed:?}");
        assert!(listed.iter().all(|server| server["state"] == "up" && server["level"] == 1), "{listed:?}");
        assert_eq!(listed.iter().filter(|server| server["answers"] == true).count(), 1);
        let same = servers(other);
        let ids = |list: &[Value]| list.iter().map(|server| server["id"].to_string()).collect::<Vec<_>>();
        assert_eq!(ids(&listed), ids(&same));
        assert_ne!(answering(&listed), answering(&same));
    }
    assert_eq!(answering(&servers(&first))["address"], "http://north:7700");
    assert_eq!(answering(&servers(&second))["address"], second.url.as_str());
    let server = &mut second.children[0];
    let pid = rustix::process::Pid::from_child(server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
    let left = servers(&first);
    assert_eq!((left.len(), &left[0]["answers"]), (1, &true.into()), "{left:?}");
}

fn answering(servers: &[Value]) -> &Value {
    servers.iter().find(|server| server["answers"] == true).expect("one of them answers")
}

#[test]
fn the_clocks_of_two_servers_may_be_an_hour_apart() {
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let Some(library) = faketime() else {
        assert!(std::env::var_os("CI").is_none(), "libfaketime is missing: install the package faketime");
        eprintln!("SKIPPED, libfaketime is not installed (apt-get install faketime)");
        return;
    };
    let database = postgres.database().unwrap();
    let url = database.url();
    let ahead = [
        ("LD_PRELOAD", library.to_str().unwrap()),
        ("FAKETIME", "+3600"),
        // As on a machine: only the date is wrong.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let mut right = server(&url, &[]);
    let mut wrong = server(&url, &ahead);
    right.apply(FLOW);
    right.start_worker();
    wrong.start_worker();
    let due = Timestamp::now() + SignedDuration::from_secs(3);
    let later = Timestamp::now() + SignedDuration::from_mins(30);
    for site in [&right, &wrong] {
        let at = |time: Timestamp| site.run(&["task", "start", "good", "--at", &time.to_string()]);
        assert_eq!((at(due).status.code(), at(later).status.code()), (Some(0), Some(0)));
        let done = site.json(&["task", "show", &site.start_task_and_wait("good")]);
        let created: Timestamp = done["created_at"].as_str().unwrap().parse().unwrap();
        assert!(created.duration_until(Timestamp::now()).abs() < MINUTES, "{done}");
    }
    let tasks = until("what is due ends", || {
        let tasks = right.json(&["task", "list"])["items"].as_array().unwrap().clone();
        let ended = tasks.iter().filter(|task| task["status"] == "succeeded").count();
        (ended == 4).then_some(tasks)
    });
    for task in &tasks {
        let Some(at) = task["at"].as_str() else { continue };
        let at: Timestamp = at.parse().unwrap();
        assert_eq!(task["status"], if at > due + MINUTES { "scheduled" } else { "succeeded" }, "{task}");
        if let Some(started) = task["started_at"].as_str() {
            let late = started.parse::<Timestamp>().unwrap().duration_since(at);
            assert!(!late.is_negative() && late < MINUTES, "{task}");
        }
        let events = right.json(&["task", "events", task["id"].as_str().unwrap()]).to_string();
        assert!(!events.contains("step.lost"), "{events}");
    }
    for site in [&right, &wrong] {
        assert!(servers(site).iter().all(|server| server["state"] == "up"), "{:?}", servers(site));
    }
}

/// Where libfaketime is, if it is installed.
fn faketime() -> Option<PathBuf> {
    const NAME: &str = "faketime/libfaketime.so.1";
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut places = folders.chain(["/usr/lib".into(), "/usr/local/lib".into()]).map(|dir| dir.join(NAME));
    places.find(|path| path.exists())
}
