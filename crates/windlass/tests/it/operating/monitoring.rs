//! The metrics, the alert rules and the dashboard of `docs/operate/monitoring.md`, with a real Prometheus.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use windlass_testkit::{Postgres, Prometheus};

use crate::site::{Site, text, until, until_within};

/// How long Prometheus may take to see something.
const PATIENCE: Duration = Duration::from_secs(60);

const FLOWS: &str = "
flow: good
steps: [ { name: one, run: m.echo } ]
---
flow: bad
steps: [ { name: one, run: m.fail } ]
---
flow: held
on_failure: hold
steps: [ { name: one, run: m.fail } ]
";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/monitoring").join(name)
}

/// The queries of the dashboard, as Grafana sends them.
fn queries() -> Vec<String> {
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(file("dashboard.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().replace("$__rate_interval", "1m")).collect()
}

/// The names of our metrics in an expression or a scrape.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("windlass_"));
    words.map(str::to_owned).collect()
}

/// Runs promtool; gives what it complains about.
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool comes with Prometheus");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    match output.status.success() {
        true => String::new(),
        false => text(&output.stdout) + &text(&output.stderr),
    }
}

/// The metrics of a server, without the head of the answer.
fn scrape(site: &Site) -> String {
    let answer = site.get("/metrics");
    answer.split_once("\r\n\r\n").expect("a body").1.to_owned()
}

fn percent_encoded(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn prometheus_understands_the_metrics_the_rules_and_the_dashboard() {
    if !Prometheus::is_installed().unwrap() {
        return;
    }
    let site = Site::with_worker();
    site.apply(FLOWS);
    let port = site.url.rsplit_once(':').unwrap().1.parse().unwrap();
    let Some(prometheus) = Prometheus::watching(port, &file("alerts.yaml")).unwrap() else { return };
    for (flow, status) in [("good", "succeeded"), ("good", "succeeded"), ("bad", "failed"), ("held", "stuck")]
    {
        let id = site.start_task(flow);
        until("the task is there", || (site.json(&["task", "show", &id])["status"] == status).then_some(()));
    }

    until("the alarm is raised", || scrape(&site).contains("\nwindlass_alarms_open 1\n").then_some(()));
    let scraped = scrape(&site);
    assert_eq!(promtool(&["check", "metrics"], &scraped), "");
    assert_eq!(promtool(&["check", "rules", file("alerts.yaml").to_str().unwrap()], ""), "");
    for line in [
        "windlass_tasks_ended_total{flow=\"good\",outcome=\"succeeded\"} 2",
        "windlass_tasks_ended_total{flow=\"bad\",outcome=\"failed\"} 1",
        "windlass_task_duration_seconds_count{flow=\"good\"} 2",
        "windlass_attempts_ended_total{queue=\"m\",outcome=\"succeeded\"} 2",
        "windlass_attempts_ended_total{queue=\"m\",outcome=\"failed\"} 2",
        "windlass_attempt_run_seconds_count{queue=\"m\"} 4",
        "windlass_attempt_wait_seconds_count{queue=\"m\"} 4",
        "windlass_alarms_open 1",
        "windlass_store_up 1",
        "windlass_service_leader{service=\"timekeeping\"} 1",
    ] {
        assert!(scraped.lines().any(|found| found == line), "{line} is not in\n{scraped}");
    }

    // What rules and dashboard ask for exists, except for what only servers with brokers or with TLS have.
    let rules = fs::read_to_string(file("alerts.yaml")).unwrap();
    let known = names(&scraped);
    let asked = queries().iter().flat_map(|query| names(query)).chain(names(&rules)).collect::<BTreeSet<_>>();
    let elsewhere = ["windlass_broker_up", "windlass_certificate_expiry_time_seconds"];
    let unknown: Vec<_> =
        asked.difference(&known).filter(|name| !elsewhere.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?} are no metrics");

    let get = |path: &str| -> Value { serde_json::from_str(&prometheus.get(path).unwrap()).unwrap() };
    let firing = || {
        let alerts = get("alerts");
        let alerts = alerts["data"]["alerts"].as_array().unwrap().iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    until_within(PATIENCE, "the alert fires", || {
        firing().contains(&"WindlassAlarmOpen".to_owned()).then_some(())
    });
    assert_eq!(firing(), ["WindlassAlarmOpen"]);
    let groups = get("rules");
    let all = groups["data"]["groups"][0]["rules"].as_array().unwrap();
    assert!(all.len() >= 10 && all.iter().all(|rule| rule["health"] == "ok"), "{groups}");
    for query in queries() {
        // A rate needs two scrapes.
        until_within(PATIENCE, &query, || {
            let answer = get(&format!("query?query={}", percent_encoded(&query)));
            assert_eq!(answer["status"], "success", "{query}: {answer}");
            let is_empty = answer["data"]["result"].as_array().unwrap().is_empty();
            (!is_empty || query.ends_with("> 0")).then_some(())
        });
    }
}

#[test]
fn what_the_store_has_comes_from_one_of_its_servers_and_a_scrape_is_answered_without_the_store() {
    let Some(postgres) = Postgres::start().unwrap() else { return };
    let database = postgres.database().unwrap();
    let open = || Site::open(tempfile::tempdir().unwrap(), &database.url(), &[]);
    let sites = [open(), open()];
    sites[0].apply(FLOWS);
    sites[0].start_task("good");
    let count = |line: &str| {
        let scraped = sites.each_ref().map(scrape);
        scraped.iter().filter(|scraped| scraped.lines().any(|found| found == line)).count()
    };
    until("a server keeps time", || {
        (count("windlass_service_leader{service=\"timekeeping\"} 1") == 1).then_some(())
    });
    assert_eq!(count("windlass_queue_ready{queue=\"m\"} 1"), 1);
    assert_eq!(count("windlass_store_up 1"), 2);
    postgres.kill().unwrap();
    until("the scrapes say so", || (count("windlass_store_up 0") == 2).then_some(()));
    for site in &sites {
        let scraped = scrape(site);
        assert!(
            scraped.contains("windlass_commits_total") && !scraped.contains("windlass_queue_ready"),
            "{scraped}"
        );
    }
}
