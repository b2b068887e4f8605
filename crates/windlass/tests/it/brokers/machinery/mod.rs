//! The Go library machinery: its own clients, and signatures as they write them.

mod mysql;
mod rabbitmq;
mod sqs;

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use windlass_testkit::{Redis, machinery};

use super::PATIENCE;
use crate::site::{PROGRAM, Site, store, text, until_within};

/// A server for clients of machinery, with the modules of the example.
struct Shop {
    site: Site,
    redis: Redis,
}

impl Shop {
    /// `more` is added to the section. `None` where Redis is missing.
    fn open(more: &str) -> Option<Self> {
        let redis = Redis::start().unwrap()?;
        Some(Self { site: configured(&section(&redis.url(), more)), redis })
    }

    /// The same over another broker, with Redis for results.
    fn over(broker: &str) -> Option<Self> {
        let redis = Redis::start().unwrap()?;
        let site = configured(&section(broker, &format!("backend = \"{}\"\n", redis.url())));
        Some(Self { site, redis })
    }

    fn send(&self, signature: &Value) {
        self.redis.ask(&["RPUSH", "machinery_tasks", &signature.to_string()]).unwrap();
    }

    fn document(&self, uuid: &str) -> Option<Value> {
        serde_json::from_str(&self.redis.ask(&["GET", uuid]).unwrap()).ok()
    }

    /// The state of a task, once it has ended.
    fn ended(&self, uuid: &str) -> Value {
        until_within(PATIENCE, "a task gets its last state", || {
            self.document(uuid).filter(|state| state["State"] == "SUCCESS" || state["State"] == "FAILURE")
        })
    }

    fn results(&self, uuid: &str) -> Value {
        let state = self.ended(uuid);
        assert_eq!(state["State"], "SUCCESS", "{state}");
        state["Results"].clone()
    }

    fn fails(&self, uuid: &str, why: &str) {
        let state = self.ended(uuid);
        assert!(state["State"] == "FAILURE" && state["Error"].as_str().unwrap().contains(why), "{state}");
    }

    fn ttl(&self, key: &str) -> i64 {
        self.redis.ask(&["TTL", key]).unwrap().trim().parse().unwrap()
    }
}

/// The section `[machinery]` for a broker.
fn section(url: &str, more: &str) -> String {
    format!("[machinery]\nbroker = \"{url}\"\n{more}")
}

/// A server with this configuration.
fn configured(config: &str) -> Site {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("windlass.toml"), config).unwrap();
    let (place, file) = (store(dir.path()), dir.path().join("windlass.toml").display().to_string());
    Site::open(dir, &place, &[("WINDLASS_CONFIG", &file)])
}

fn restart_server(site: &mut Site) {
    let (place, file) = (store(site.dir.path()), site.path("windlass.toml"));
    site.restart_with(&place, &[("WINDLASS_CONFIG", &file)]);
}

/// Starts a worker with the modules of the example.
fn start_example_worker(site: &mut Site) {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/machinery/modules");
    let worker = Command::new(PROGRAM)
        .args(["worker", "--server", &site.url, "--modules", &modules.display().to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    site.children.push(worker);
}

fn kill_all(site: &mut Site) {
    for mut child in site.children.drain(..) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// A signature as the library writes it, with these fields in place of its own.
fn signature(uuid: &str, name: &str, fields: Value) -> Value {
    let mut signature = json!({
        "UUID": uuid, "Name": name, "RoutingKey": "machinery_tasks", "ETA": null, "GroupUUID": "",
        "GroupTaskCount": 0, "Args": [], "Headers": {}, "Priority": 0, "Immutable": false, "RetryCount": 0,
        "RetryTimeout": 0, "OnSuccess": null, "OnError": null, "ChordCallback": null,
        "BrokerMessageGroupId": "", "SQSReceiptHandle": "", "StopTaskDeletionOnError": false,
        "IgnoreWhenTaskNotRegistered": false
    });
    for (name, value) in fields.as_object().unwrap() {
        signature[name] = value.clone();
    }
    signature
}

/// The signature `task_a` of an addition with the result 42, and what follows its success.
fn addition_before(follows: &[Value]) -> Value {
    signature("task_a", "add", json!({ "Args": [whole(40), whole(2)], "OnSuccess": follows }))
}

fn whole(value: i64) -> Value {
    json!({ "Type": "int64", "Value": value })
}

/// Two additions in a group, and a multiplication of their results.
fn chord() -> [Value; 2] {
    let callback = signature("chord_c", "multiply", json!({ "Args": [whole(10)] }));
    [1, 2].map(|n| {
        let fields = json!({
            "Args": [whole(n), whole(n)], "GroupUUID": "group_g", "GroupTaskCount": 2, "ChordCallback": callback
        });
        signature(&format!("task_{n}"), "add", fields)
    })
}

/// What a client of the library prints. `None` where it is missing.
fn client(command: &str, url: &str) -> Option<Vec<String>> {
    let mut client = machinery().unwrap()?;
    let output = client.args([command, url]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let is_log = |line: &str| line.contains("INFO") || line.contains("DEBUG");
    Some(text(&output.stdout).lines().filter(|line| !is_log(line)).map(str::to_owned).collect())
}

/// Sends what the library's own example sends, with both versions of the library.
fn send_the_example(url: &str) {
    let Some(first) = client("send1", url) else { return };
    let expected = [
        "single 2",
        "split [a < b]",
        "chain 24",
        "group 2",
        "group 4",
        "group 11",
        "chord 88",
        "delayed 14",
        "error oops",
    ];
    assert_eq!(first, expected);
    assert_eq!(client("send2", url).unwrap(), ["chain 24", "chord 88"]);
    let failed = client("fail", url).unwrap().join("\n");
    assert!(failed.starts_with("callback FAILURE the chord cannot run: the task task_"), "{failed}");
    assert!(failed.ends_with("failed: oops"), "{failed}");
}

#[test]
fn clients_of_the_library_get_their_results() {
    let Some(mut shop) = Shop::open("") else { return };
    start_example_worker(&mut shop.site);
    send_the_example(&shop.redis.url());
}

#[test]
fn no_signature_is_lost_when_the_server_the_worker_and_redis_are_killed() {
    const TASKS: usize = 400;
    let Some(mut shop) = Shop::open("module = \"m\"\n") else { return };
    shop.site.start_worker();
    for n in 0..TASKS {
        // The last quarter cannot end before the kill.
        let command = if n < TASKS * 3 / 4 { "echo" } else { "gate" };
        shop.send(&signature(&format!("task_{n}"), command, json!({})));
    }
    let succeeded = |shop: &Shop| {
        let mut words = vec!["MGET".to_owned()];
        words.extend((0..TASKS).map(|n| format!("task_{n}")));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        shop.redis.ask(&words).map_or(0, |states| states.matches(r#""State":"SUCCESS""#).count())
    };
    until_within(PATIENCE, "half of the tasks have run", || (succeeded(&shop) >= TASKS / 2).then_some(()));
    kill_all(&mut shop.site);
    shop.redis.kill().unwrap();
    assert!(shop.redis.restart().is_ok());
    let before = succeeded(&shop);
    assert!(before < TASKS, "the kill came in the middle");
    restart_server(&mut shop.site);
    shop.site.open_gate();
    shop.site.start_worker();
    until_within(PATIENCE, "all tasks have run", || (succeeded(&shop) == TASKS).then_some(()));
    let counted = shop.site.json(&["task", "list", "--status", "succeeded", "--limit", "1000"]);
    assert_eq!(counted["items"].as_array().unwrap().len(), TASKS, "each has started one task");
    until_within(PATIENCE, "no message stays with a consumer", || {
        let left = shop.redis.ask(&["KEYS", "machinery_tasks:windlass-taken:*"]).unwrap();
        left.trim().is_empty().then_some(())
    });
}

#[test]
fn what_cannot_be_run_is_put_aside_and_its_client_hears_why() {
    let Some(shop) = Shop::open("") else { return };
    let bad = [
        (
            "task_type",
            signature(
                "task_type",
                "add",
                json!({
                    "Args": [{ "Type": "map", "Value": {} }],
                    "OnError": [signature("task_told", "report", json!({ "RoutingKey": "reports" }))]
                }),
            ),
            "not supported",
        ),
        (
            "task_value",
            signature("task_value", "add", json!({ "Args": [{ "Type": "int8", "Value": 300 }] })),
            "300 is not a value of the type int8",
        ),
        ("task_name", signature("task_name", "two words", json!({})), "`Name`: "),
        ("task_eta", signature("task_eta", "add", json!({ "ETA": "soon" })), "`ETA` is \"soon\""),
        (
            "task_next",
            signature("task_next", "add", json!({ "OnSuccess": [{ "UUID": "task_x", "Args": "bad" }] })),
            "`OnSuccess`: `Args`: ",
        ),
        (
            "task_large",
            signature("task_large", "add", json!({ "Headers": { "a": "x".repeat(2 << 20) } })),
            "MiB",
        ),
    ];
    for (_, signature, _) in &bad {
        shop.redis.ask(&["RPUSH", "machinery_tasks", "not JSON"]).unwrap();
        // A command line has a limit.
        let text = signature.to_string();
        match text.len() {
            0..=100_000 => shop.send(signature),
            _ => send_large(&shop, &text),
        }
    }
    for (uuid, _, why) in &bad {
        let state = shop.ended(uuid);
        assert!(state["Error"].as_str().unwrap().contains(why), "{uuid}: {state}");
        assert!(shop.ttl(uuid) > 3_000);
    }
    until_within(PATIENCE, "all are in the dead-letter queue", || {
        let count = shop.redis.ask(&["LLEN", "machinery_tasks-dead"]).unwrap();
        (count.trim() == "12").then_some(())
    });
    let told = shop.redis.ask(&["LPOP", "reports"]).unwrap();
    assert!(
        told.contains("task_told") && told.contains("not supported"),
        "what follows a failure is sent: {told}"
    );
    let alarms = shop.site.json(&["alarm", "list"]).to_string();
    assert!(alarms.contains("is not a signature that can be run"), "{alarms}");
    assert_eq!(shop.site.json(&["task", "list"])["items"], json!([]));
}

fn send_large(shop: &Shop, text: &str) {
    let file = shop.site.path("large");
    std::fs::write(&file, text).unwrap();
    let port = shop.redis.port().to_string();
    let sent = Command::new("sh")
        .args(["-c", "redis-cli -p \"$1\" -x RPUSH machinery_tasks < \"$2\"", "sh", &port, &file])
        .output()
        .unwrap();
    assert!(sent.status.success(), "{sent:?}");
}

#[test]
fn a_chord_fails_if_one_of_its_signatures_cannot_run() {
    let Some(mut shop) = Shop::open("") else { return };
    start_example_worker(&mut shop.site);
    let group = json!({ "GroupUUID": "group_g", "TaskUUIDs": ["task_1", "task_2"], "ChordTriggered": false });
    shop.redis.ask(&["SET", "group_g", &group.to_string()]).unwrap();
    let [first, mut second] = chord();
    second["Name"] = json!("two words");
    second["ChordCallback"]["OnError"] =
        json!([signature("task_e", "report", json!({ "RoutingKey": "reports" }))]);
    shop.send(&first);
    shop.results("task_1");
    shop.send(&second);
    for uuid in ["task_2", "chord_c"] {
        let state = shop.ended(uuid);
        let (state, error) = (&state["State"], state["Error"].as_str().unwrap());
        assert!(state == "FAILURE" && error.contains("`Name`: "), "{uuid}: {state} {error}");
    }
    let report: Value = serde_json::from_str(&shop.redis.ask(&["LPOP", "reports"]).unwrap()).unwrap();
    assert_eq!(report["UUID"], "task_e");
    assert!(shop.ttl("task_1") > 0 && shop.ttl("group_g") > 0, "nothing is kept for ever");
}

#[test]
fn what_follows_goes_to_its_queue_with_results_and_errors() {
    let Some(mut shop) = Shop::open("") else { return };
    let elsewhere = |uuid: &str, eta: Value| {
        signature(uuid, "report", json!({ "RoutingKey": "reports", "ETA": eta, "Args": [whole(7)] }))
    };
    shop.send(&signature("task_a", "add", json!({
        "Args": [whole(9_007_199_254_740_993), whole(1)],
        "OnSuccess": [elsewhere("task_b", Value::Null), elsewhere("task_late", json!("2099-01-01T00:00:00Z"))]
    })));
    let immutable = signature(
        "task_own",
        "add",
        json!({
            "Args": [whole(1)], "Immutable": true, "OnSuccess": [signature("task_same", "add", json!({ "Args": [whole(5)] }))]
        }),
    );
    shop.send(&immutable);
    shop.send(&signature(
        "task_fails",
        "panic_task",
        json!({ "OnError": [elsewhere("task_e", Value::Null)] }),
    ));
    start_example_worker(&mut shop.site);
    assert_eq!(shop.results("task_a"), json!([whole(9_007_199_254_740_994)]));
    assert_eq!(
        shop.results("task_same"),
        json!([whole(5)]),
        "results of an immutable signature are not passed on"
    );
    assert_eq!(shop.ended("task_fails")["Error"], "oops");
    let reports = until_within(PATIENCE, "both reports are sent", || {
        let reports = shop.redis.ask(&["LRANGE", "reports", "0", "-1"]).unwrap();
        let reports: Vec<Value> =
            reports.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (reports.len() == 2).then_some(reports)
    });
    let args = |uuid: &str| reports.iter().find(|report| report["UUID"] == uuid).unwrap()["Args"].clone();
    assert_eq!(args("task_b"), json!([whole(7), whole(9_007_199_254_740_994)]));
    assert_eq!(args("task_e"), json!([{ "Type": "string", "Value": "oops" }, whole(7)]));
    assert_eq!(shop.document("task_b").unwrap()["State"], "PENDING");
    let delayed = shop.redis.ask(&["ZRANGE", "delayed_tasks", "0", "-1", "WITHSCORES"]).unwrap();
    assert!(delayed.contains("task_late") && delayed.contains("4.0709088e+18"), "{delayed}");
}

#[test]
fn a_follow_up_that_is_refused_holds_up_and_repeats_nothing() {
    let Some(mut shop) = Shop::open("") else { return };
    start_example_worker(&mut shop.site);
    // Not a list.
    shop.redis.ask(&["SET", "refusing", "x"]).unwrap();
    let follows = |uuid: &str, queue: &str| signature(uuid, "report", json!({ "RoutingKey": queue }));
    let next = [follows("task_b", "before"), follows("task_c", "refusing"), follows("task_d", "behind")];
    let args = [whole(40), whole(2)];
    shop.send(&signature("task_a", "add", json!({ "Args": args, "OnSuccess": next })));
    for uuid in ["task_f", "task_g"] {
        let fields = json!({
            "Args": args, "GroupUUID": "group_r", "GroupTaskCount": 2,
            "OnSuccess": [follows(&format!("{uuid}_next"), "beside")],
            "ChordCallback": follows("chord_r", "refusing")
        });
        shop.send(&signature(uuid, "add", fields));
    }
    until_within(PATIENCE, "there is an alarm", || {
        let alarms = shop.site.json(&["alarm", "list"]).to_string();
        (alarms.contains("broker_away") && alarms.contains("the key refusing has something else in it"))
            .then_some(())
    });
    shop.send(&signature("task_e", "add", json!({ "Args": args })));
    assert_eq!(shop.results("task_e"), json!([whole(42)]));
    let length = |queue: &str| shop.redis.ask(&["LLEN", queue]).unwrap().trim().to_owned();
    let lengths = || ["before", "behind", "beside"].map(length);
    assert_eq!(lengths(), ["1", "1", "2"], "each is sent once, whatever is tried again");
    shop.redis.ask(&["DEL", "refusing"]).unwrap();
    assert_eq!(shop.results("task_a"), json!([whole(42)]));
    until_within(PATIENCE, "what was refused is sent", || (length("refusing") == "2").then_some(()));
    assert_eq!(lengths(), ["1", "1", "2"]);
}

#[test]
fn a_delayed_signature_waits_for_its_time_and_a_failed_one_is_tried_again() {
    let Some(mut shop) = Shop::open("") else { return };
    start_example_worker(&mut shop.site);
    let due = signature("task_due", "add", json!({ "Args": [whole(1)], "ETA": "2020-01-01T00:00:00.5Z" }));
    let later = signature("task_later", "add", json!({ "Args": [whole(1)], "ETA": "2099-01-01T00:00:00Z" }));
    shop.redis.ask(&["ZADD", "delayed_tasks", "1577836800500000000", &due.to_string()]).unwrap();
    shop.redis.ask(&["ZADD", "delayed_tasks", "4070908800000000000", &later.to_string()]).unwrap();
    shop.redis.ask(&["ZADD", "delayed_tasks", "1", "not JSON"]).unwrap();
    assert_eq!(shop.results("task_due"), json!([whole(1)]));
    until_within(PATIENCE, "only one waits for its time", || {
        (shop.redis.ask(&["ZCARD", "delayed_tasks"]).unwrap().trim() == "1").then_some(())
    });
    // A client that sends a signature again sets its state first.
    let pending = json!({ "TaskUUID": "task_due", "TaskName": "add", "State": "PENDING", "CreatedAt": "2026-01-01T00:00:00Z" });
    shop.redis.ask(&["SET", "task_due", &pending.to_string()]).unwrap();
    shop.send(&due);
    assert_eq!(shop.results("task_due"), json!([whole(1)]), "it gets the result of the first time");
    // RETRY is a passing state: the next attempt comes after 4 s at the earliest.
    shop.send(&signature("task_retried", "panic_task", json!({ "RetryCount": 1, "RetryTimeout": 5 })));
    until_within(PATIENCE, "the client sees that it is tried again", || {
        shop.document("task_retried").filter(|state| state["State"] == "RETRY")
    });
    assert_eq!(shop.ended("task_retried")["State"], "FAILURE");
    let task = shop.site.json(&["task", "list", "--label", "machinery=task_retried"])["items"][0].clone();
    let task = shop.site.json(&["task", "show", task["id"].as_str().unwrap()]);
    assert_eq!(task["steps"][0]["attempts"], 2, "{task}");
}

#[test]
fn a_signature_that_an_earlier_version_has_accepted_starts_no_second_task() {
    let Some(mut shop) = Shop::open("") else { return };
    let sent = signature("task_before", "add", json!({ "Args": [whole(40), whole(2)] }));
    // Earlier versions kept the text of every signature.
    let accepted = json!({
        "steps": [{ "name": "run", "run": "machinery.add", "timeout": "1h" }],
        "params": { "args": [40, 2], "uuid": "task_before", "headers": {}, "signature": sent.to_string() },
        // SHA-256 of `machinery/task_before`
        "key": "2c8d18caff6a02728441f797e69e59a92394b56f3df4ce586c63301cacb0bbb1",
        "labels": { "machinery": "task_before" },
    });
    let answer = shop.site.post("/v1/tasks", &accepted.to_string());
    let accepted: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    shop.send(&sent);
    start_example_worker(&mut shop.site);
    assert_eq!(shop.results("task_before"), json!([whole(42)]));
    // A client that sends it again sets its state first.
    let pending = json!({ "TaskUUID": "task_before", "TaskName": "add", "State": "PENDING", "CreatedAt": "2026-01-01T00:00:00Z" });
    shop.redis.ask(&["SET", "task_before", &pending.to_string()]).unwrap();
    shop.send(&sent);
    assert_eq!(shop.results("task_before"), json!([whole(42)]));
    let tasks = shop.site.json(&["task", "list", "--label", "machinery=task_before"]);
    assert_eq!((tasks["items"].as_array().unwrap().len(), &tasks["items"][0]["id"]), (1, &accepted["id"]));
    assert_eq!(shop.redis.ask(&["EXISTS", "machinery_tasks-dead"]).unwrap().trim(), "0");
}

#[test]
fn a_chord_runs_once_with_results_in_order_even_if_redis_loses_all_data() {
    let Some(mut shop) = Shop::open("results_expire_in = \"10m\"\n") else { return };
    let [first, second] = chord();
    let group = json!({
        "GroupUUID": "group_g", "TaskUUIDs": ["task_2", "task_1"], "ChordTriggered": false, "Lock": false,
        "CreatedAt": "2026-01-01T00:00:00Z", "TTL": 0
    });
    shop.redis.ask(&["SET", "group_g", &group.to_string(), "EX", "5"]).unwrap();
    start_example_worker(&mut shop.site);
    shop.send(&first);
    shop.results("task_1");
    assert_eq!((shop.ttl("group_g"), shop.ttl("task_1")), (-1, -1), "nothing of an open chord expires");
    shop.send(&second);
    assert_eq!(shop.results("chord_c"), json!([whole(10 * 4 * 2)]));
    until_within(PATIENCE, "documents expire after the chord", || {
        let keys = ["group_g", "task_1", "task_2", "chord_c"];
        keys.iter().all(|key| (1..=600).contains(&shop.ttl(key))).then_some(())
    });
    assert_eq!(shop.document("group_g").unwrap()["ChordTriggered"], true);
    shop.redis.ask(&["DEL", "task_1"]).unwrap();
    shop.send(&first);
    shop.results("task_1");
    until_within(PATIENCE, "the group expires although one of its tasks was sent again", || {
        (1..=600).contains(&shop.ttl("group_g")).then_some(())
    });
    let callback =
        shop.site.json(&["task", "list", "--label", "machinery=chord_c"])["items"][0]["id"].clone();
    let callback = shop.site.json(&["task", "show", callback.as_str().unwrap()]);
    assert_eq!(callback["params"]["args"], json!([10, 4, 2]), "in the order of the group");
    // Another one, whose first task has run when Redis loses everything.
    let again = |signature: &Value| {
        let text = signature
            .to_string()
            .replace("task_", "task_x")
            .replace("group_g", "group_x")
            .replace("chord_c", "chord_x");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    shop.send(&again(&first));
    shop.results("task_x1");
    shop.redis.ask(&["FLUSHALL"]).unwrap();
    shop.send(&again(&second));
    assert_eq!(shop.results("chord_x"), json!([whole(10 * 2 * 4)]));
}

/// A worker that uses the library, which is killed when this is dropped.
struct GoWorker(Child);

impl GoWorker {
    fn start(url: &str) -> Option<Self> {
        let mut worker = machinery().unwrap()?;
        Some(Self(worker.args(["work", url, "600"]).stdout(Stdio::null()).spawn().unwrap()))
    }
}

impl Drop for GoWorker {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn workers_that_use_the_library_run_steps_and_none_is_lost_when_one_is_killed() {
    let Some(redis) = Redis::start().unwrap() else { return };
    workers_of_the_library_run_steps(&redis.url(), &redis.url());
}

/// `of_library`: what workers of the library have as the URL.
fn workers_of_the_library_run_steps(url: &str, of_library: &str) {
    const TASKS: usize = 400;
    const FLOWS: &str = r"
flow: sum
steps:
  - { name: add, run: golang.add, timeout: 5s, retry: 5 }
---
flow: undo
steps:
  - { name: add, run: golang.add, rollback: golang.multiply }
  - { name: fail, run: golang.panic_task }
";
    // A periodic task of the library, translated as in docs/guides/machinery.md.
    const PERIODIC: &str = r#"
trigger: nightly-sum
cron: 0 3 * * *
catch_up: one
flows:
  - { flow: sum, params: { args: [{ Type: int64, Value: 40 }, { Type: int64, Value: 2 }] }, labels: { periodic: "yes" } }
"#;
    let Some(worker) = GoWorker::start(of_library) else { return };
    let queue = "queue = \"machinery_tasks\"\nmessage = \"machinery\"\n";
    let site = configured(&format!("[queues.golang]\nbroker = \"{url}\"\n{queue}"));
    site.apply(FLOWS);
    std::fs::write(site.path("periodic.yaml"), PERIODIC).unwrap();
    site.json(&["trigger", "apply", &site.path("periodic.yaml")]);
    site.json(&["trigger", "fire", "nightly-sum"]);
    let periodic = || {
        site.json(&["task", "list", "--label", "periodic=yes", "--status", "succeeded"])["items"][0].clone()
    };
    let done =
        until_within(PATIENCE, "a periodic task has run", || periodic()["id"].as_str().map(str::to_owned));
    assert_eq!(site.json(&["task", "show", &done])["result"]["result"], json!(42));
    let start = |flow: &str, args: Value| {
        let body = json!({ "flow": flow, "params": { "args": args } });
        let answer = site.post("/v1/tasks", &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    };
    start("undo", json!([]));
    let undone = until_within(PATIENCE, "a task is rolled back", || {
        let listed = site.json(&["task", "list", "--flow", "undo"])["items"][0].clone();
        (listed["status"] == "rolled_back").then_some(listed)
    });
    let undone = site.json(&["task", "show", undone["id"].as_str().unwrap()]);
    assert_eq!(undone["steps"][1]["message"], json!("oops"), "{undone}");
    assert_eq!(undone["steps"][0]["status"], "rolled_back", "{undone}");
    (0..TASKS).for_each(|n| start("sum", json!([n, 1])));
    let count = |status: &str| {
        let tasks = site.json(&["task", "list", "--flow", "sum", "--status", status, "--limit", "1000"]);
        let tasks = tasks["items"].as_array().unwrap();
        tasks.iter().filter(|task| task["labels"]["periodic"] != "yes").count()
    };
    until_within(PATIENCE, "half of the tasks have run", || (count("succeeded") >= TASKS / 2).then_some(()));
    drop(worker);
    let Some(_worker) = GoWorker::start(of_library) else { return };
    until_within(PATIENCE, "all tasks have run", || (count("succeeded") == TASKS).then_some(()));
    let tasks = site.json(&["task", "list", "--flow", "sum", "--limit", "1"]);
    let last = site.json(&["task", "show", tasks["items"][0]["id"].as_str().unwrap()]);
    assert_eq!(last["result"]["result"], json!(TASKS), "{last}");
}

#[test]
fn a_configuration_that_cannot_work_is_refused() {
    for (config, says) in [
        (
            "[machinery]\nbroker = \"kafka://h\"\n",
            "in the section [machinery]: `broker`: the broker of machinery must be Redis or RabbitMQ or SQS",
        ),
        (
            "[machinery]\nbroker = \"sqs://eu-west-1\"\n",
            "in the section [machinery]: `backend` is missing: SQS keeps no results",
        ),
        (
            "[machinery]\nbroker = \"redis://h\"\n[[intake]]\nbroker = \"redis://h\"\nqueue = \"machinery_tasks\"\n",
            "is configured for messages that start tasks and for signatures",
        ),
        (
            "[queues.m]\nbroker = \"kafka://h\"\nmessage = \"machinery\"\n",
            "in the section [queues.m]: `broker`: the broker of machinery must be Redis or RabbitMQ or SQS",
        ),
        (
            "[queues.m]\nbroker = \"sqs://h\"\nkind = \"standard\"\nmessage = \"machinery\"\n",
            "in SQS the name of the queue decides the kind, so leave it out",
        ),
        (
            "[queues.m]\nbroker = \"sqs://h\"\nresults = \"r.fifo\"\nmessage = \"machinery\"\n",
            "so name a standard queue",
        ),
        (
            "[queues.m]\nbroker = \"redis://h\"\nkind = \"stream\"\nmessage = \"machinery\"\n",
            "so leave it out",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("windlass.toml");
        std::fs::write(&file, config).unwrap();
        let output = Command::new(PROGRAM)
            .args(["server", "--listen", "127.0.0.1:0", "--store", "memory:", "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{error}");
    }
}

#[test]
fn in_strict_mode_nobody_hears_of_a_failed_chord_and_its_documents_expire() {
    let Some(mut shop) = Shop::open("mode = \"strict\"\n") else { return };
    start_example_worker(&mut shop.site);
    let [first, mut second] = chord();
    second["Name"] = json!("panic_task");
    shop.send(&first);
    shop.results("task_1");
    assert!(
        (1..=3600).contains(&shop.ttl("task_1")),
        "as in the library, it expires before the chord has ended"
    );
    shop.send(&second);
    assert_eq!(shop.ended("task_2")["State"], "FAILURE");
    // What follows an end is done before a later task has its last state.
    shop.send(&signature("task_later", "add", json!({ "Args": [whole(1)] })));
    shop.results("task_later");
    assert_eq!(shop.document("chord_c"), None);
    let again = |signature: Value| {
        let text = signature.to_string().replace("task_", "task_s").replace("group_g", "group_s");
        serde_json::from_str::<Value>(&text.replace("chord_c", "chord_s")).unwrap()
    };
    chord().map(again).iter().for_each(|signature| shop.send(signature));
    assert_eq!(shop.results("chord_s"), json!([whole(10 * 2 * 4)]));
}

#[test]
fn the_doctor_finds_what_workers_of_the_library_have_left() {
    let Some(redis) = Redis::start().unwrap() else { return };
    let ask = |words: &[&str]| redis.ask(words).unwrap();
    let state = |uuid: &str, state: &str| {
        let document = json!({
            "TaskUUID": uuid, "TaskName": "add", "State": state, "Results": null, "Error": "no disk",
            "CreatedAt": "2026-01-01T00:00:00Z", "TTL": 0
        });
        ask(&["SET", uuid, &document.to_string()]);
    };
    let doctor = || {
        let command = ["-o", "json", "doctor", "machinery", "--broker", &redis.url()];
        let output = Command::new(PROGRAM).args(command).output().unwrap();
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    ask(&["SET", "something", "else"]);
    ask(&["RPUSH", "numbers", "1", "2"]);
    state("task_ended", "SUCCESS");
    let (code, report) = doctor();
    assert_eq!((code, &report["problems"]), (Some(0), &json!([])), "{report}");
    state("task_lost", "STARTED");
    state("task_waits", "PENDING");
    state("task_failed", "FAILURE");
    let group = json!({ "GroupUUID": "group_g", "TaskUUIDs": ["task_ended", "task_failed"], "ChordTriggered": false });
    ask(&["SET", "group_g", &group.to_string()]);
    ask(&["RPUSH", "machinery_tasks", &signature("task_waits", "add", json!({})).to_string()]);
    ask(&["ZADD", "delayed_tasks", "1", &signature("task_late", "add", json!({})).to_string()]);
    let (code, report) = doctor();
    let problems = report["problems"].as_array().unwrap();
    let found: Vec<_> = problems.iter().map(|problem| (&problem["kind"], &problem["id"])).collect();
    let expected = json!([
        ["stuck_chord", "group_g"],
        ["orphan_queue", "machinery_tasks"],
        ["overdue_delay", "delayed_tasks"],
        ["lost_task", "task_lost"]
    ]);
    let expected: Vec<_> = expected.as_array().unwrap().iter().map(|pair| (&pair[0], &pair[1])).collect();
    assert_eq!((code, found), (Some(1), expected), "{report}");
    assert_eq!((&report["queues"]["machinery_tasks"], &report["groups"]), (&json!(1), &json!(1)), "{report}");
    let refused =
        Command::new(PROGRAM).args(["doctor", "machinery", "--broker", "amqp://h"]).output().unwrap();
    let error = text(&refused.stderr);
    assert!(!refused.status.success() && error.contains("what is looked at must be Redis"), "{error}");
}
