//! Triggers, with real servers: schedules, requests, operators, and what happens when servers die.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use serde_json::Value;
use sha2::Sha256;
use windlass_testkit::Postgres;

use super::site::{Site, store, text, until};

const FLOWS: &str = "
flow: lonely
steps: [{ name: one, run: nobody.serves }]
---
flow: other
steps: [{ name: one, run: nobody.serves }]
";

const TICKS: &str = "
trigger: ticks
cron: '* * * * * *'
flows: [{ flow: lonely, params: { a: 1 }, map: { at: trigger.instant } }]
";

const KEY: [u8; 24] = *b"twenty-four bytes of key";

/// Applies triggers written in YAML.
fn apply(site: &Site, yaml: &str) -> std::process::Output {
    let file = site.path("triggers.yaml");
    std::fs::write(&file, yaml).unwrap();
    site.run(&["trigger", "apply", &file])
}

fn applied(site: &Site, yaml: &str) {
    let output = apply(site, yaml);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// The instants of all tasks of a trigger, oldest first, as their labels name them.
fn instants(site: &Site, trigger: &str) -> Vec<Timestamp> {
    let tasks = site.json(&["task", "list", "--label", &format!("trigger={trigger}"), "--all"]);
    let instant = |task: &Value| task["labels"]["instant"].as_str().unwrap().parse().unwrap();
    let mut instants: Vec<Timestamp> = tasks["items"].as_array().unwrap().iter().map(instant).collect();
    instants.sort();
    instants
}

/// Each second from the first to the last one is there exactly once.
fn assert_each_second_once(instants: &[Timestamp]) {
    for pair in instants.windows(2) {
        assert_eq!(pair[1].as_second() - pair[0].as_second(), 1, "{instants:?}");
    }
}

#[test]
fn a_schedule_fires_each_instant_once_is_paused_and_resumed_and_survives_a_killed_server() {
    let mut site = Site::start();
    applied(&site, TICKS);
    until("it fires", || (instants(&site, "ticks").len() >= 3).then_some(()));
    let task = &site.json(&["task", "list", "--label", "trigger=ticks"])["items"][0];
    assert_eq!(task["params"]["at"], task["labels"]["instant"]);
    assert_eq!(task["params"]["a"], 1);

    // Killed in the middle, whatever it was doing.
    site.children[0].kill().unwrap();
    site.children[0].wait().unwrap();
    site.restart(&store(site.dir.path()));
    let before = instants(&site, "ticks").len();
    until("it goes on", || (instants(&site, "ticks").len() >= before + 3).then_some(()));

    let paused = site.json(&["trigger", "pause", "ticks"]);
    assert_eq!(paused["paused"], true);
    assert_eq!(paused["paused_by"], "ops (claimed)");
    // An instant may have been decided before the pause, and its task submitted after it: not more than one.
    let at_pause = instants(&site, "ticks");
    assert_each_second_once(&at_pause);
    assert_eq!(site.run(&["trigger", "pause", "ticks"]).status.code(), Some(4), "it is paused already");
    let paused_at: Timestamp = paused["paused_at"].as_str().unwrap().parse().unwrap();
    // Somebody who is there at the next instants sees that nothing fires: the clock of the test goes on meanwhile.
    until("two seconds pass", || (Timestamp::now().as_second() >= paused_at.as_second() + 2).then_some(()));
    let resumed = site.json(&["trigger", "resume", "ticks"]);
    assert_eq!(resumed["paused"], false);
    let resumed_at = Timestamp::now();
    let all = until("it fires again", || {
        let all = instants(&site, "ticks");
        (all.len() > at_pause.len() + 2).then_some(all)
    });
    let in_pause = |instant: &&Timestamp| {
        instant.as_second() > paused_at.as_second() && instant.as_second() < resumed_at.as_second() - 1
    };
    assert_eq!(all.iter().find(in_pause), None, "{paused_at} {resumed_at} {all:?}");
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "{all:?}");

    let history = site.json(&["trigger", "history", "ticks", "--limit", "2"]);
    let entry = &history["items"][0];
    assert_eq!((&entry["cause"], &entry["outcome"]), (&Value::from("schedule"), &Value::from("fired")));
    assert!(entry["tasks"][0]["task"].is_string(), "{entry}");
    let removed = site.run(&["trigger", "remove", "ticks"]);
    assert_eq!(text(&removed.stdout), "removed ticks\n");
    assert_eq!(site.run(&["trigger", "show", "ticks"]).status.code(), Some(3));
}

#[test]
fn three_servers_fire_each_instant_once_while_one_of_them_dies() {
    let Some(server) = Postgres::start().unwrap() else { return };
    let database = server.database().unwrap();
    let open = || Site::open(tempfile::tempdir().unwrap(), &database.url(), &[]);
    let (mut first, second, third) = (open(), open(), open());
    first.apply(FLOWS);
    applied(&third, TICKS);
    until("it fires", || (instants(&second, "ticks").len() >= 2).then_some(()));
    // The first server was there first, and leads.
    first.children[0].kill().unwrap();
    first.children[0].wait().unwrap();
    let killed = instants(&second, "ticks").len();
    let all = until("another one fires", || {
        let all = instants(&third, "ticks");
        (all.len() >= killed + 3).then_some(all)
    });
    assert_each_second_once(&all);
}

#[test]
fn what_cannot_be_started_is_an_alarm_and_the_trigger_goes_on() {
    let site = Site::start();
    let output = apply(
        &site,
        "trigger: both\nevery: 1s\nflows: [{ flow: later }, { flow: lonely, labels: { team: a } }]\n",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("there is no flow later yet"), "{output:?}");
    let alarm = until("an alarm is raised", || {
        let alarms = site.json(&["alarm", "list"]);
        let is_it = |alarm: &&Value| alarm["kind"] == "trigger_failed";
        alarms["items"].as_array().unwrap().iter().find(is_it).cloned()
    });
    let message = alarm["message"].as_str().unwrap();
    assert!(message.starts_with("trigger both did not start flow later at 20"), "{message}");
    assert!(message.ends_with("there is no flow later"), "{message}");
    until("the other flow is started", || {
        let started = site.json(&["task", "list", "--label", "team=a"]);
        (!started["items"].as_array().unwrap().is_empty()).then_some(())
    });
    site.apply("flow: later\nsteps: [{ name: one, run: nobody.serves }]\n");
    until("the alarm is resolved", || {
        let alarms = site.json(&["alarm", "list"]);
        alarms["items"].as_array().unwrap().is_empty().then_some(())
    });
    let history = site.json(&["trigger", "history", "both"]);
    let first = history["items"].as_array().unwrap().last().unwrap();
    assert_eq!(first["tasks"][0]["problem"], "there is no flow later", "{first}");
}

#[test]
fn instants_are_skipped_while_earlier_tasks_run() {
    let site = Site::start();
    applied(&site, "trigger: alone\nevery: 1s\noverlap: skip\nflows: [{ flow: lonely }]\n");
    let outcomes = until("some are skipped", || {
        let history = site.json(&["trigger", "history", "alone"]);
        let outcomes: Vec<String> = history["items"]
            .as_array()?
            .iter()
            .map(|entry| entry["outcome"].as_str().unwrap().to_owned())
            .collect();
        (outcomes.len() >= 3).then_some(outcomes)
    });
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "fired").count(), 1, "{outcomes:?}");
    assert_eq!(instants(&site, "alone").len(), 1);
    // An operator fires it although a task runs. The operator's parameters count.
    let fired = site.json(&["trigger", "fire", "alone", "-p", "n=7"]);
    let task = fired["tasks"][0]["task"].as_str().unwrap();
    assert_eq!(site.json(&["task", "show", task])["params"]["n"], 7);
    let history = site.json(&["trigger", "history", "alone"]);
    let by_operator = |entry: &&Value| entry["cause"] == "operator";
    let entry = history["items"].as_array().unwrap().iter().find(by_operator).unwrap().clone();
    assert_eq!(entry["by"], "ops (claimed)");
}

#[test]
fn tasks_of_an_earlier_instant_are_cancelled() {
    let site = Site::start();
    applied(&site, "trigger: last\nevery: 1s\noverlap: cancel_other\nflows: [{ flow: lonely }]\n");
    until("two are cancelled", || {
        let cancelled = site.json(&["task", "list", "--label", "trigger=last", "--status", "cancelled"]);
        (cancelled["items"].as_array().unwrap().len() >= 2).then_some(())
    });
}

/// A request to a trigger, and what is answered: the status and the document.
fn send(site: &Site, path: &str, headers: &[(&str, String)], body: &str) -> (u16, Value) {
    let address = site.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    // A body that is too large is refused by its length, and nobody reads it.
    let body = if length > 1 << 20 { "" } else { body };
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, document) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The headers of Standard Webhooks.
fn signed(id: &str, at: u64, body: &str) -> Vec<(&'static str, String)> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&KEY).unwrap();
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", at.to_string()),
        ("webhook-signature", signature),
    ]
}

#[test]
fn a_signed_request_starts_its_flows_once() {
    let site = Site::start();
    site.apply(FLOWS);
    let secret = format!("whsec_{}", STANDARD.encode(KEY));
    applied(
        &site,
        &format!(
            "trigger: order
http: {{ secret: {secret} }}
flows:
  - {{ flow: lonely, params: {{ a: 1, n: 0 }} }}
  - {{ flow: other, map: {{ items: 'body.items.map(item, item.id)', source: trigger.id }} }}
"
        ),
    );
    let path = "/v1/triggers/order";
    let body = r#"{"n": 5, "items": [{"id": "x"}, {"id": "y"}]}"#;
    let at = now();
    let (status, fired) = send(&site, path, &signed("msg_1", at, body), body);
    assert_eq!(status, 202, "{fired}");
    let task = |index: usize| {
        let id = fired["tasks"][index]["task"].as_str().unwrap();
        site.json(&["task", "show", id])
    };
    assert_eq!(task(0)["params"], serde_json::json!({"a": 1, "n": 5, "items": [{"id": "x"}, {"id": "y"}]}));
    assert_eq!(task(1)["params"], serde_json::json!({"items": ["x", "y"], "source": "msg_1"}));

    // A sender that has not heard the answer sends it again.
    let (status, again) = send(&site, path, &signed("msg_1", now(), body), body);
    assert_eq!(status, 200, "{again}");
    assert_eq!(again["tasks"][0]["task"], fired["tasks"][0]["task"]);
    assert_eq!(again["tasks"][0]["existing"], "idempotency_key");

    let refused = |headers: Vec<(&'static str, String)>, body: &str, status: u16, problem: &str| {
        let (got, document) = send(&site, path, &headers, body);
        assert_eq!(got, status, "{document}");
        let name = document["type"].as_str().unwrap();
        assert!(name.ends_with(problem), "{document}");
        assert!(document["detail"].is_string());
    };
    refused(Vec::new(), body, 401, "/invalid-signature");
    refused(signed("msg_2", at, "{}"), body, 401, "/invalid-signature");
    refused(signed("msg_2", at - 301, body), body, 400, "/outdated-request");
    refused(signed("msg_2", at + 400, body), body, 400, "/outdated-request");
    refused(signed("msg_1", at, "{}"), "{}", 422, "/unusable-params");
    let other = r#"{"n": 6, "items": []}"#;
    refused(signed("msg_1", at, other), other, 422, "/idempotency-key-reused");
    refused(signed("msg_2", at, "[1]"), "[1]", 422, "/unusable-params");
    refused(signed("msg_2", at, "{"), "{", 400, "/malformed");
    let large = format!("{{\"a\": \"{}\"}}", "a".repeat(1 << 20));
    refused(signed("msg_2", at, &large), &large, 413, "/too-large");
    let tasks = site.json(&["task", "list", "--label", "trigger=order"]);
    assert_eq!(tasks["items"].as_array().unwrap().len(), 2, "nothing else was started: {tasks}");

    // Its secret is nowhere.
    for shown in [
        site.run(&["trigger", "show", "order"]),
        site.run(&["trigger", "list", "-o", "json"]),
        site.run(&["trigger", "history", "order", "-o", "json"]),
    ] {
        assert!(!text(&shown.stdout).contains(&secret[6..]), "{shown:?}");
    }
    site.run(&["trigger", "pause", "order"]);
    refused(signed("msg_3", now(), body), body, 409, "/conflict");
}

#[test]
fn a_classic_caller_gets_the_classic_answer() {
    let site = Site::start();
    applied(
        &site,
        "trigger: job\nhttp: { unsigned: true }\nclassic: true\nflows: [{ flow: lonely, map: { job: body.jobId } }]\n",
    );
    let (status, answer) = send(&site, "/v1/triggers/job", &[], r#"{"jobId": "j1"}"#);
    let expected =
        serde_json::json!({"code": 200, "error": 0, "msg": "job started successfully", "data": {}});
    assert_eq!((status, answer), (200, expected));
    // Without a signature and an id, each request is another one.
    send(&site, "/v1/triggers/job", &[], r#"{"jobId": "j1"}"#);
    let tasks = site.json(&["task", "list", "--label", "trigger=job"]);
    let tasks = tasks["items"].as_array().unwrap();
    assert_eq!(tasks.len(), 2);
    assert_eq!(tasks[0]["params"]["job"], "j1");
    let (status, answer) = send(&site, "/v1/triggers/nothing", &[], "{}");
    assert_eq!(status, 404, "{answer}");
}

#[test]
fn a_body_signed_by_a_plain_hmac_starts_one_task() {
    let site = Site::start();
    let secret = "twenty-four characters at least";
    applied(
        &site,
        &format!(
            "trigger: push\nhttp: {{ secret: {secret}, header: X-Signature }}\nflows: [{{ flow: lonely }}]\n"
        ),
    );
    let body = r#"{"ref": "main"}"#;
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let good = [("X-Signature", format!("sha256={hex}"))];
    assert_eq!(send(&site, "/v1/triggers/push", &good, body).0, 202);
    assert_eq!(send(&site, "/v1/triggers/push", &good, body).0, 200, "nothing but the body is certain");
    assert_eq!(send(&site, "/v1/triggers/push", &good, "{}").0, 401);
}

#[test]
fn triggers_that_cannot_work_are_refused_with_the_reason() {
    let site = Site::start();
    let refused = |yaml: &str| {
        let output = apply(&site, yaml);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stderr).to_owned()
    };
    let flows = "flows: [{ flow: lonely }]\n";
    let never = refused(&format!("trigger: t\ncron: 0 0 31 2 *\n{flows}"));
    assert!(never.contains("\"0 0 31 2 *\" never fires"), "{never}");
    let zone = refused(&format!("trigger: t\ncron: 0 0 * * *\ntimezone: Europe/Berlim\n{flows}"));
    assert!(zone.contains("unknown time zone \"Europe/Berlim\""), "{zone}");
    let bad = refused(&format!("trigger: t\ncron: 0 25 * * *\n{flows}"));
    assert!(bad.contains("invalid cron expression"), "{bad}");
    let key = refused(&format!("trigger: t\nevry: 1h\n{flows}"));
    assert!(
        key.contains("triggers.yaml:2:1: unknown key \"evry\" in a trigger: did you mean `every`?"),
        "{key}"
    );
    let short = refused(&format!("trigger: t\nhttp: {{ secret: short }}\n{flows}"));
    assert!(short.contains("the secret has 5 bytes"), "{short}");
    assert_eq!(text(&site.run(&["trigger", "list"]).stdout), "no triggers\n");
}
