//! Devices, as their users meet them: files of declarations, real servers, and tasks that share a device by its lock.

use std::fs;

use serde_json::json;
use windlass_testkit::Postgres;

use crate::site::{Site, text, until};

const DEVICES: &str = "
devices:
  - name: press-1
    labels: { site: nord, model: p7 }
    presence: { topic: nord/press-1/status }
    echoes_attempt: true
  - name: press-2
    labels: { site: sued, model: p7 }
    presence: { keep_alive: 60s }
  - name: lamp-1
    labels: { site: nord }
";

/// A flow of one step that has the lock of a device while the module's gate is closed.
const JOB: &str = "
flow: job
steps: [{ name: press, run: m.gate, locks: [device..press-1] }]
";

fn apply(site: &Site, name: &str, devices: &str) -> std::process::Output {
    let file = site.path(name);
    fs::write(&file, devices).unwrap();
    site.run(&["device", "apply", &file])
}

fn names(list: &serde_json::Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|device| device["name"].as_str().unwrap()).collect()
}

/// The body of an answer.
fn body(answer: &str) -> serde_json::Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn devices_are_declared_by_files_and_found_by_labels() {
    let site = Site::start();
    let applied = apply(&site, "fleet.yaml", DEVICES);
    assert_eq!(text(&applied.stdout), "3 created, 0 updated, 0 unchanged\n", "{applied:?}");
    let changed = DEVICES.replace("keep_alive: 60s", "keep_alive: 90s");
    let applied = apply(&site, "fleet.yaml", &changed);
    assert_eq!(text(&applied.stdout), "0 created, 1 updated, 2 unchanged\n", "{applied:?}");
    let one = apply(&site, "one.toml", "name = \"lamp-2\"\n[labels]\nsite = \"nord\"\n");
    assert_eq!(text(&one.stdout), "1 created, 0 updated, 0 unchanged\n", "{one:?}");

    let list = |arguments: &[&str]| site.json(&[&["device", "list"], arguments].concat());
    assert_eq!(names(&list(&[])), ["lamp-1", "lamp-2", "press-1", "press-2"]);
    assert_eq!(names(&list(&["--label", "site=nord", "--label", "model=p7"])), ["press-1"]);
    assert_eq!(names(&list(&["--online"])), ["lamp-1", "lamp-2"], "the others were never heard");
    assert_eq!(names(&list(&["--offline"])), ["press-1", "press-2"]);
    let table = text(&site.run(&["device", "list"]).stdout);
    assert!(table.contains("never heard") && table.contains("not watched"), "{table}");
    let shown = site.json(&["device", "show", "press-1"]);
    assert_eq!(
        shown["presence"],
        json!({ "topic": "nord/press-1/status", "online": "online", "offline": "offline" })
    );
    assert_eq!((&shown["echoes_attempt"], &shown["locked"]), (&json!(true), &json!(false)), "{shown}");

    let first = body(&site.get("/v1/devices?limit=3"));
    assert_eq!((names(&first).len(), &first["next"]), (3, &json!("press-1")), "{first}");
    let second = body(&site.get("/v1/devices?limit=3&after=press-1"));
    assert_eq!((names(&second), second["next"].is_null()), (vec!["press-2"], true), "{second}");
    assert_eq!(body(&site.get("/v1/devices/press-1/log")), json!({ "items": [], "next": null }));
    let log = site.run(&["device", "log", "press-1"]);
    assert_eq!(text(&log.stdout), "nothing happened to it yet\n", "{log:?}");
}

#[test]
fn mistakes_in_declarations_have_their_place_and_store_nothing() {
    let site = Site::start();
    let bad = DEVICES.replace("    labels: { site: nord }", "    label: { site: nord }");
    let refused = apply(&site, "fleet.yaml", &bad);
    let stderr = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr.contains("fleet.yaml:11:5: error: unknown key \"label\" in a device"), "{stderr}");
    let twice = site.path("twice.yaml");
    fs::write(&twice, "name: lamp-1\n").unwrap();
    fs::write(site.path("fleet.yaml"), DEVICES).unwrap();
    let refused = site.run(&["device", "apply", &site.path("fleet.yaml"), &twice]);
    assert!(text(&refused.stderr).contains("device lamp-1 is in "), "{refused:?}");

    for (request, status, detail) in [
        (r#"{"devices":[{"name":"a"},{"name":"b","presence":{}}]}"#, "422", "`devices[1]` (\\\"b\\\"): "),
        (r#"{"devices":[{"name":"a"},{"labels":{}}]}"#, "422", "`devices[1]`: a device needs `name`"),
        (r#"{"devices":[{"name":"a"},{"name":"a"}]}"#, "422", "another device a"),
        (r#"{"devices":[{"name":"a","presence":{"topic":"a/+"}}]}"#, "422", "wildcard"),
        (r#"{"devices":[{"name":"a"},{"name":7}]}"#, "400", "`devices[1].name`"),
        (r#"{"devices":[{"name":"a","topic":"x"}]}"#, "400", "unknown field `topic`"),
        (r#"[{"name":"a"}]"#, "400", "it is an array"),
        (r#"{"devices":"#, "400", "not valid JSON"),
        ("", "400", "the body is empty"),
    ] {
        let answer = site.post("/v1/devices", request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
        assert!(answer.contains(detail), "{request}: {answer}");
    }
    let many: Vec<_> = (0..10_001).map(|n| json!({ "name": format!("d{n}") })).collect();
    let answer = site.post("/v1/devices", &json!({ "devices": many }).to_string());
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("10001 devices"), "{answer}");
    assert!(names(&site.json(&["device", "list"])).is_empty(), "nothing was stored");

    for (path, status) in [
        ("/v1/devices/none", "404"),
        ("/v1/devices/none/log", "404"),
        ("/v1/devices/a%20b", "400"),
        ("/v1/devices?label=site", "400"),
        ("/v1/devices?online=maybe", "400"),
        ("/v1/devices?after=a&cursor=b", "400"),
        ("/v1/devices?limit=0", "400"),
        ("/v1/devices/none?view=modern", "400"),
        ("/v1/devices/none/log?before=x", "400"),
    ] {
        let answer = site.get(path);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    for arguments in
        [&["show", "none"][..], &["log", "none"], &["remove", "none"], &["unlock", "none", "--reason", "x"]]
    {
        let refused = site.run(&[&["device"], arguments].concat());
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        assert!(text(&refused.stderr).contains("windlass device"), "{refused:?}");
    }
}

#[test]
fn tasks_queue_for_a_device_and_an_operator_unlocks_it() {
    let site = Site::with_worker();
    apply(&site, "fleet.yaml", DEVICES);
    site.apply(JOB);
    let tasks: Vec<String> = (0..3).map(|_| site.start_task("job")).collect();
    let shown = until("two tasks wait", || {
        let shown = site.json(&["device", "show", "press-1"]);
        (shown["waiting"] == 2).then_some(shown)
    });
    assert_eq!((&shown["locked"], &shown["task"]), (&json!(true), &json!(tasks[0])), "{shown}");
    assert_eq!(shown["queue"], json!(tasks[1..]), "{shown}");
    assert!(shown["locked_since"].is_string(), "{shown}");
    assert_eq!(
        body(&site.get("/v1/devices/press-1?view=classic")),
        json!({ "online": false, "locked": true, "pendingQueue": tasks[1..] })
    );
    let table = text(&site.run(&["device", "show", "press-1"]).stdout);
    assert!(table.contains(&tasks[0]) && table.contains(&tasks[2]), "{table}");

    let refused = site.run(&["device", "remove", "press-1"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(text(&refused.stderr).contains("2 waiting; `windlass device show NAME`"), "{refused:?}");
    let unlock = |device: &str, reason: &str| site.run(&["device", "unlock", device, "--reason", reason]);
    assert_eq!(unlock("press-1", " ").status.code(), Some(1), "it needs a reason");
    let unlocked = unlock("press-1", "it was replaced");
    assert!(text(&unlocked.stdout).contains(&format!("step press of task {}", tasks[0])), "{unlocked:?}");
    let shown = site.json(&["device", "show", "press-1"]);
    assert_eq!((&shown["task"], &shown["queue"]), (&json!(tasks[1]), &json!([tasks[2]])), "{shown}");
    let free = unlock("press-2", "why not");
    assert!(free.status.code() == Some(3) && text(&free.stderr).contains("nobody has"), "{free:?}");
    until("the history says so", || {
        let events = text(&site.run(&["task", "events", &tasks[0]]).stdout);
        events.contains("it was replaced").then_some(())
    });

    let removed = site.run(&["device", "remove", "press-1", "--force"]);
    assert_eq!(text(&removed.stdout), "removed press-1\n", "{removed:?}");
    site.open_gate();
    until("the tasks that waited end", || {
        let counts = site.json(&["task", "list", "--status", "succeeded", "--count"]);
        (counts["total"].as_u64() >= Some(2)).then_some(())
    });
    assert_eq!(names(&site.json(&["device", "list"])), ["lamp-1", "press-2"]);
}

#[test]
fn every_server_on_a_database_shows_the_devices_that_another_one_declared() {
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let database = postgres.database().unwrap();
    let [one, other] = [0, 1].map(|_| Site::open(tempfile::tempdir().unwrap(), &database.url(), &[]));
    let applied = apply(&one, "fleet.yaml", DEVICES);
    assert_eq!(text(&applied.stdout), "3 created, 0 updated, 0 unchanged\n", "{applied:?}");
    assert_eq!(names(&other.json(&["device", "list", "--label", "site=nord"])), ["lamp-1", "press-1"]);
    let again = apply(&other, "fleet.yaml", &DEVICES.replace("sued", "west"));
    assert_eq!(text(&again.stdout), "0 created, 1 updated, 2 unchanged\n", "{again:?}");
    assert_eq!(one.json(&["device", "show", "press-2"])["labels"]["site"], "west");
    assert_eq!(text(&other.run(&["device", "remove", "lamp-1"]).stdout), "removed lamp-1\n");
    assert_eq!(names(&one.json(&["device", "list"])), ["press-1", "press-2"]);
}
