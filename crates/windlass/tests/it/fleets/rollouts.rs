//! Rollouts, with real servers and workers: each device gets one task, whatever dies, and an abort leaves nothing done.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use windlass_testkit::Postgres;

use crate::site::{Site, script, store, text, until, until_within};

/// Far more than a fleet of a few hundred devices takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const UPDATE: &str = "
flow: update
steps: [{ name: install, run: m.install, rollback: m.echo }]
";

/// A device whose name contains `-bad-` fails. Ids of tasks, which the document has too, cannot contain that.
const INSTALL: &str = "read -r document; case \"$document\" in *-bad-*) exit 7;; esac; echo '{}'";

/// Declares devices with these names, all of one site.
fn declare(site: &Site, names: impl Iterator<Item = String>) {
    let device = |name: String| {
        let model = if name.len().is_multiple_of(2) { "p7" } else { "p8" };
        json!({ "name": name, "labels": { "site": "nord", "model": model } })
    };
    let devices: Vec<Value> = names.map(device).collect();
    let file = site.path("devices.json");
    std::fs::write(&file, json!({ "devices": devices }).to_string()).unwrap();
    let output = site.run(&["device", "apply", &file]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

fn start(site: &Site, rollout: &str) -> std::process::Output {
    let file = site.path("rollout.yaml");
    std::fs::write(&file, format!("rollout: r\nflow: update\nselect: {{ site: nord }}\n{rollout}")).unwrap();
    site.run(&["rollout", "start", &file])
}

fn started(site: &Site, rollout: &str) {
    let output = start(site, rollout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Adds a worker with the module of the flow.
fn work(site: &mut Site) {
    let module = site.dir.path().join("modules/m");
    std::fs::create_dir_all(&module).unwrap();
    script(&module.join("install"), INSTALL);
    site.start_worker();
}

fn shown(site: &Site) -> Value {
    site.json(&["rollout", "show", "r"])
}

/// Waits until the rollout has this status; returns it.
fn until_status(site: &Site, status: &str) -> Value {
    until_within(PATIENCE, status, || Some(shown(site)).filter(|shown| shown["status"] == status))
}

/// The devices of all tasks: each has one.
fn devices_of_tasks(site: &Site) -> BTreeSet<String> {
    let tasks = site.json(&["task", "list", "--label", "rollout=r", "--all"]);
    let tasks = tasks["items"].as_array().unwrap();
    let device = |task: &Value| task["labels"]["device"].as_str().unwrap().to_owned();
    let devices: BTreeSet<_> = tasks.iter().map(device).collect();
    assert_eq!(devices.len(), tasks.len(), "a device has two tasks");
    devices
}

#[test]
fn three_hundred_devices_get_one_task_each_although_the_server_is_killed() {
    let mut site = Site::start();
    site.apply(UPDATE);
    declare(&site, (0..300).map(|number| format!("valve-{number}")));
    work(&mut site);
    started(&site, "rate: { per_minute: 12000 }\nmax_running: 20\ngroup_by: model\n");
    until_within(PATIENCE, "some are done", || {
        (shown(&site)["total"]["succeeded"].as_u64()? > 40).then_some(())
    });
    // Killed in the middle, whatever it was doing.
    site.children[0].kill().unwrap();
    site.children[0].wait().unwrap();
    site.restart(&store(site.dir.path()));
    site.start_worker();
    let done = until_status(&site, "completed");
    assert_eq!(
        (&done["total"]["started"], &done["total"]["succeeded"]),
        (&json!(300), &json!(300)),
        "{done}"
    );
    assert_eq!(devices_of_tasks(&site).len(), 300);
    let groups: Vec<_> = done["groups"].as_array().unwrap().iter().map(|group| &group["succeeded"]).collect();
    assert_eq!(groups, [&json!(0), &json!(90), &json!(210)], "the rest, p7 and p8: {done}");
    let again = start(&site, "rate: { per_minute: 12000 }\nmax_running: 20\ngroup_by: model\n");
    assert!(text(&again.stdout).contains("completed"), "{again:?}");
    let other = start(&site, "max_running: 21\n");
    assert_eq!(other.status.code(), Some(4), "{other:?}");
    assert_eq!(text(&site.run(&["rollout", "remove", "r"]).stdout), "removed r\n");
    assert_eq!(site.run(&["rollout", "show", "r"]).status.code(), Some(3));
}

#[test]
fn a_threshold_rolls_back_what_is_done_and_starts_nothing_more() {
    let mut site = Site::start();
    site.apply(UPDATE);
    let names = ["a-", "b-bad-", "c-"]
        .iter()
        .flat_map(|name| (0..20).map(move |number| format!("{name}{number:02}")));
    declare(&site, names);
    work(&mut site);
    started(
        &site,
        "rate: { per_minute: 60000 }\nmax_running: 4\non_abort: rollback\nabort: [{ of: failed, count: 2, at_least: 5 }]\n",
    );
    let aborted = until_status(&site, "aborted");
    let total = &aborted["total"];
    assert_eq!((&total["succeeded"], &total["rolled_back"]), (&json!(20), &json!(20)), "{aborted}");
    assert_eq!(aborted["aborted"]["threshold"]["count"], 2, "{aborted}");
    let devices = devices_of_tasks(&site);
    assert!(devices.iter().all(|device| !device.starts_with("c-")), "{devices:?}");
    let tasks = site.json(&["task", "list", "--label", "rollout=r", "--all"]);
    let is_left = |task: &&Value| !["rolled_back", "cancelled"].contains(&task["status"].as_str().unwrap());
    assert_eq!(tasks["items"].as_array().unwrap().iter().find(is_left), None);
    let alarms = site.json(&["alarm", "list"]);
    assert_eq!(alarms["items"][0]["kind"], "rollout_aborted", "{alarms}");
    // The entry is committed after the status.
    let history = until("the history has the end", || {
        Some(site.json(&["rollout", "history", "r"])).filter(|all| all["items"][0]["event"] == "ended")
    });
    let events: Vec<_> = history["items"].as_array().unwrap().iter().map(|entry| &entry["event"]).collect();
    assert_eq!(events, ["ended", "rolling_back", "aborted", "started"]);
}

#[test]
fn two_servers_start_each_device_once_while_one_of_them_dies() {
    let Some(server) = Postgres::start().unwrap() else { return };
    let database = server.database().unwrap();
    let open = || Site::open(tempfile::tempdir().unwrap(), &database.url(), &[]);
    let (mut first, mut second) = (open(), open());
    first.apply(UPDATE);
    declare(&first, (0..80).map(|number| format!("valve-{number}")));
    work(&mut second);
    started(&second, "rate: { per_minute: 3000 }\nmax_running: 10\n");
    until_within(PATIENCE, "some are done", || {
        (shown(&second)["total"]["succeeded"].as_u64()? > 10).then_some(())
    });
    // The first server was there first, and leads.
    first.children[0].kill().unwrap();
    first.children[0].wait().unwrap();
    let done = until_status(&second, "completed");
    assert_eq!((&done["total"]["started"], &done["total"]["succeeded"]), (&json!(80), &json!(80)), "{done}");
    assert_eq!(devices_of_tasks(&second).len(), 80);
}

#[test]
fn operators_pause_resume_and_abort_also_at_the_same_time() {
    let site = Site::start();
    site.apply(UPDATE);
    declare(&site, (0..30).map(|number| format!("valve-{number}")));
    started(&site, "rate: { per_minute: 60000 }\nmax_running: 5\n");
    until("five run", || (devices_of_tasks(&site).len() == 5).then_some(()));
    let paused = site.json(&["rollout", "pause", "r", "--reason", "lunch"]);
    assert_eq!((&paused["status"], &paused["paused"]["reason"]), (&json!("paused"), &json!("lunch")));
    assert_eq!(paused["paused"]["by"], "ops (claimed)");
    assert_eq!(site.run(&["rollout", "pause", "r"]).status.code(), Some(4), "it is paused already");
    assert_eq!(site.run(&["rollout", "remove", "r"]).status.code(), Some(4), "it has not ended");
    assert_eq!(site.json(&["rollout", "resume", "r"])["status"], "running");
    let (pause, abort) = std::thread::scope(|scope| {
        let pause = scope.spawn(|| site.run(&["rollout", "pause", "r"]));
        let abort = scope.spawn(|| site.run(&["rollout", "abort", "r", "--reason", "enough"]));
        (pause.join().unwrap(), abort.join().unwrap())
    });
    assert_eq!(abort.status.code(), Some(0), "{abort:?}");
    assert!([Some(0), Some(4)].contains(&pause.status.code()), "{pause:?}");
    let aborted = until_status(&site, "aborted");
    assert_eq!(
        (&aborted["total"]["cancelled"], &aborted["total"]["started"]),
        (&json!(5), &json!(5)),
        "{aborted}"
    );
    assert_eq!(aborted["aborted"]["reason"], "enough");
    assert_eq!(devices_of_tasks(&site).len(), 5, "nothing was started after the abort");
}

#[test]
fn what_cannot_work_is_refused_and_changes_nothing() {
    let site = Site::start();
    site.apply(UPDATE);
    site.apply("flow: fixed\nsteps: [{ name: a, device: valve-1, topic: t/run, timeout: 1m }]\n");
    declare(&site, (0..3).map(|number| format!("valve-{number}")));
    let refused = |start: std::process::Output, message: &str| {
        assert_ne!(start.status.code(), Some(0), "{start:?}");
        let stderr = text(&start.stderr);
        assert!(stderr.contains(message), "{message}: {stderr}");
    };
    refused(start(&site, "rate: { per_minute: 0 }\n"), "`per_minute` of the rate is 0: use 1 to 60000");
    refused(
        start(&site, "rate: { base: 5 }\n"),
        "`rate` has `per_minute` alone, or `base`, `per_minute_max` and `after`",
    );
    refused(
        start(&site, "abort: [{ percent: 101 }]\n"),
        "the abort threshold 1 has `percent: 101`: use 1 to 100",
    );
    refused(start(&site, "abort: [{ at_least: 1 }]\n"), "the abort threshold 1 needs `percent` or `count`");
    refused(start(&site, "max_running: 100000\n"), "`max_running` is 100000: use 1 to 1000");
    refused(start(&site, "speed: 3\n"), "rollout.yaml:4:1: unknown key \"speed\" in a rollout");
    let by_options =
        |flow: &str, label: &str| site.run(&["rollout", "start", "r", "--flow", flow, "--label", label]);
    refused(by_options("unknown", "site=nord"), "there is no flow unknown");
    refused(
        by_options("update", "site=west"),
        "no device has these labels: `windlass device list` lists the devices",
    );
    refused(by_options("fixed", "site=nord"), "no step of the flow fixed depends on the parameters `device`");
    assert_eq!(site.json(&["rollout", "list"])["items"], json!([]));
    assert_eq!(site.run(&["rollout", "abort", "r"]).status.code(), Some(3));
    assert!(devices_of_tasks(&site).is_empty());
}
