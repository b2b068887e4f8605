//! Tasks in by message.

use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use windlass_brokers::Message;
use windlass_testkit::{ElasticMq, Kafka, Postgres, RabbitMq, Redis};

use super::{Far, PATIENCE};
use crate::site::{Site, store, text, until, until_within};

/// What the configuration says beside the queue: where parameters and keys are in a message.
const DATA_AND_ID: &str = "params = \"/data\"\nkey = \"/id\"\n";

/// A server that starts a task of `ship` for each message.
fn site(broker: &str, queue: &str) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    site_on(dir, &store, broker, queue, DATA_AND_ID)
}

fn site_on(dir: TempDir, store: &str, broker: &str, queue: &str, places: &str) -> Site {
    let config = format!("[[intake]]\nbroker = \"{broker}\"\nqueue = \"{queue}\"\nflow = \"ship\"\n{places}");
    let file = dir.path().join("windlass.toml");
    std::fs::write(&file, config).unwrap();
    let site = Site::open(dir, store, &[("WINDLASS_CONFIG", &file.display().to_string())]);
    site.apply("{ flow: ship, steps: [ { name: one, run: nobody.serves } ] }");
    site
}

/// The tasks, once there are this many.
fn tasks(site: &Site, count: usize) -> Vec<Value> {
    until("the tasks are there", || {
        let tasks = site.json(&["task", "list"])["items"].as_array()?.clone();
        (tasks.len() == count).then_some(tasks)
    })
}

/// Messages come twice, and one cannot be used.
fn messages_start_tasks(broker: &str, queue: &str) {
    let site = site(broker, queue);
    Far::publish(
        broker,
        queue,
        &[
            r#"{"id":1,"data":{"disk":"a","bytes":12345678901234567890123.10}}"#,
            r#"{"id":2,"data":{"disk":"b"}}"#,
            "{",
            r#"{"id":1,"data":{"disk":"a","bytes":12345678901234567890123.10}}"#,
        ],
    );
    let tasks = tasks(&site, 2);
    let mut disks: Vec<_> = tasks.iter().map(|task| task["params"]["disk"].to_string()).collect();
    disks.sort();
    assert_eq!(disks, [r#""a""#, r#""b""#]);
    let listed = text(&site.run(&["task", "list", "-o", "json"]).stdout);
    assert!(listed.contains("12345678901234567890123.10"), "digit for digit: {listed}");
    let alarm = until("a body that is not JSON is reported", || {
        site.json(&["alarm", "list"])["items"].get(0).cloned()
    });
    assert_eq!(alarm["kind"], "message_refused");
    let message = alarm["message"].as_str().unwrap();
    assert!(message.contains("it is not JSON") && message.contains(queue), "{message}");
    let dead = Far::receive(broker, &windlass_brokers::Queue::new(queue).dead().name);
    assert_eq!(dead, "{");
    assert_eq!(site.json(&["task", "list"])["items"].as_array().unwrap().len(), 2);
}

#[test]
fn of_messages_with_the_same_unique_key_one_starts_a_task() {
    let Some(server) = Redis::shared().unwrap() else { return };
    let (url, queue) = (server.url(), "unique-orders");
    let site = site(&url, queue);
    site.apply("{ flow: ship, unique: disk, steps: [ { name: one, run: nobody.serves } ] }");
    let message = |id: u8, disk: &str| format!(r#"{{"id":{id},"data":{{"disk":"{disk}"}}}}"#);
    let messages = [message(1, "a"), message(2, "a"), message(3, "a"), message(4, "b")];
    Far::publish(&url, queue, &messages.each_ref().map(String::as_str));
    until("all messages are read", || {
        site.get("/metrics").contains("windlass_tasks_repeated_total 2").then_some(())
    });
    let mut disks: Vec<_> = tasks(&site, 2).iter().map(|task| task["params"]["disk"].to_string()).collect();
    disks.sort();
    assert_eq!(disks, [r#""a""#, r#""b""#]);
    assert_eq!(site.json(&["alarm", "list"])["items"], serde_json::json!([]));
}

/// One task per flow, however often the message comes; what the trigger cannot use goes to the dead-letter queue.
#[test]
fn a_message_that_comes_twice_fires_a_trigger_once() {
    let Some(server) = Redis::shared().unwrap() else { return };
    let (url, queue) = (server.url(), "trigger-orders");
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let config =
        format!("[[intake]]\nbroker = \"{url}\"\nqueue = \"{queue}\"\ntrigger = \"order\"\nkey = \"/id\"\n");
    let file = dir.path().join("windlass.toml");
    std::fs::write(&file, config).unwrap();
    let site = Site::open(dir, &store, &[("WINDLASS_CONFIG", &file.display().to_string())]);
    site.apply("{ flow: ship, steps: [ { name: one, run: nobody.serves } ] }");
    site.apply("{ flow: bill, steps: [ { name: one, run: nobody.serves } ] }");
    let triggers = site.path("triggers.yaml");
    let flows = "[{ flow: ship, map: { disk: body.disk } }, { flow: bill, map: { of: trigger.id, disk: body.disk } }]";
    std::fs::write(&triggers, format!("trigger: order\nintake: true\nflows: {flows}\n")).unwrap();
    let applied = site.run(&["trigger", "apply", &triggers]);
    assert!(applied.status.success(), "{applied:?}");
    let order = r#"{"id":1,"disk":"a"}"#;
    Far::publish(&url, queue, &[order, r#"{"id":2}"#, order, r#"{"id":3,"disk":"b"}"#]);
    let tasks = tasks(&site, 4);
    let mut of: Vec<String> =
        tasks.iter().map(|task| format!("{} {}", task["flow"], task["params"]["disk"])).collect();
    of.sort();
    assert_eq!(of, [r#""bill" "a""#, r#""bill" "b""#, r#""ship" "a""#, r#""ship" "b""#]);
    assert!(tasks.iter().all(|task| task["labels"]["trigger"] == "order"));
    let alarm = until("the message without a disk raises an alarm", || {
        site.json(&["alarm", "list"])["items"].get(0).cloned()
    });
    assert_eq!(alarm["kind"], "message_refused");
    let dead = Far::receive(&url, &windlass_brokers::Queue::new(queue).dead().name);
    assert_eq!(dead, r#"{"id":2}"#);
    // An entry is committed after the tasks.
    let history = until("the history has two entries", || {
        let history = site.json(&["trigger", "history", "order"]);
        (history["items"].as_array()?.len() >= 2).then_some(history)
    });
    let causes: Vec<&Value> =
        history["items"].as_array().unwrap().iter().map(|entry| &entry["cause"]).collect();
    assert_eq!(causes, ["message", "message"], "{history}");
    // While the trigger is paused, messages wait.
    site.json(&["trigger", "pause", "order"]);
    Far::publish(&url, queue, &[r#"{"id":4,"disk":"c"}"#]);
    site.json(&["trigger", "resume", "order"]);
    self::tasks(&site, 6);
}

#[test]
fn messages_of_redis_start_tasks() {
    let Some(server) = Redis::shared().unwrap() else { return };
    messages_start_tasks(&server.url(), "orders");
}

#[test]
fn messages_of_rabbitmq_start_tasks() {
    let Some(server) = RabbitMq::shared().unwrap() else { return };
    messages_start_tasks(&server.url(), "orders");
}

#[test]
fn messages_of_kafka_start_tasks() {
    let Some(server) = Kafka::shared().unwrap() else { return };
    messages_start_tasks(&server.url(), "orders");
}

#[test]
fn messages_of_sqs_start_tasks() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    messages_start_tasks(&server.url(), "orders");
}

#[test]
fn messages_of_a_list_need_a_key() {
    let Some(server) = Redis::shared().unwrap() else { return };
    let site = {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        site_on(dir, &store, &server.url(), "nameless", "kind = \"list\"\n")
    };
    server.ask(&["RPUSH", "nameless", r#"{"disk":"a"}"#]).unwrap();
    let alarm = until("it is reported", || site.json(&["alarm", "list"])["items"].get(0).cloned());
    let message = alarm["message"].as_str().unwrap();
    assert!(message.contains("no id to recognize it by: set `key`"), "{message}");
    assert!(tasks(&site, 0).is_empty());
}

#[test]
fn a_message_of_a_topic_that_was_made_anew_is_another_one() {
    let Some(server) = Kafka::shared().unwrap() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path());
    let site = site_on(dir, &store, &server.url(), "again", "");
    let send = |disk: u32| {
        let message = Message::new("", "key", format!(r#"{{"disk":{disk}}}"#));
        Far::try_publish(&server.url(), "again", &[message])[0].is_ok()
    };
    // It was made just now, and may not be led by anybody yet.
    until("a message is sent", || send(0).then_some(()));
    tasks(&site, 1);
    server.delete("again").unwrap();
    // What is sent while the topic goes may go with it.
    let mut disk = 0;
    until_within(PATIENCE, "a second task is there", || {
        disk += 1;
        send(disk);
        std::thread::sleep(Duration::from_secs(1));
        (site.json(&["task", "list"])["items"].as_array()?.len() > 1).then_some(())
    });
    let alarms = site.json(&["alarm", "list"]);
    assert_eq!(alarms["items"].as_array().unwrap().len(), 0, "taken for the first one: {alarms}");
}

#[test]
fn while_the_store_is_away_messages_stay_in_hands() {
    let Some(redis) = Redis::shared().unwrap() else { return };
    let Some(postgres) = Postgres::start().unwrap() else { return };
    let database = postgres.database().unwrap();
    let site = site_on(tempfile::tempdir().unwrap(), &database.url(), &redis.url(), "kept", DATA_AND_ID);
    let pending =
        |range: &[&str]| redis.ask(&[&["XPENDING", "kept", "windlass-intake"], range].concat()).unwrap();
    postgres.kill().unwrap();
    Far::publish(
        &redis.url(),
        "kept",
        &[r#"{"id":1,"data":{"disk":"a"}}"#, "{", r#"{"id":2,"data":{"disk":"b"}}"#],
    );
    until("the server has them", || (pending(&[]).lines().next() == Some("3")).then_some(()));
    // Longer than the pause between two tries.
    std::thread::sleep(Duration::from_millis(1_500));
    let held = pending(&["-", "+", "10"]);
    let lines: Vec<&str> = held.lines().collect();
    let deliveries: Vec<&str> = lines.chunks_exact(4).map(|entry| entry[3]).collect();
    assert_eq!(deliveries, ["1"; 3], "none was given back and delivered once more: {held}");
    postgres.restart().unwrap();
    tasks(&site, 2);
    assert_eq!(Far::receive(&redis.url(), "kept-dead"), "{");
    until("all are settled", || (redis.ask(&["XLEN", "kept"]).unwrap() == "0").then_some(()));
}
