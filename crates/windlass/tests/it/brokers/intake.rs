//! Tasks in by message.

use windlass_testkit::{ElasticMq, Kafka, RabbitMq, Redis};

use super::Far;
use crate::site::{Site, store, until};

/// A server that starts a task of `near` for each message.
fn site(broker: &str, queue: &str) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        "[[intake]]\nbroker = \"{broker}\"\nqueue = \"{queue}\"\nflow = \"ship\"\nparams = \"/data\"\nkey = \"/id\"\n"
    );
    let file = dir.path().join("windlass.toml");
    std::fs::write(&file, config).unwrap();
    let store = store(dir.path());
    let site = Site::open(dir, &store, &[("WINDLASS_CONFIG", &file.display().to_string())]);
    site.apply("{ flow: ship, steps: [ { name: one, run: nobody.serves } ] }");
    site
}

/// Messages come twice, and one cannot be used.
fn messages_start_tasks(broker: &str, queue: &str) {
    let site = site(broker, queue);
    Far::publish(
        broker,
        queue,
        &[
            r#"{"id":1,"data":{"disk":"a"}}"#,
            r#"{"id":2,"data":{"disk":"b"}}"#,
            "{",
            r#"{"id":1,"data":{"disk":"a"}}"#,
        ],
    );
    let tasks = until("both tasks are there", || {
        let tasks = site.json(&["task", "list"]);
        (tasks["items"].as_array()?.len() == 2).then_some(tasks)
    });
    let mut disks: Vec<_> =
        tasks["items"].as_array().unwrap().iter().map(|task| task["params"]["disk"].to_string()).collect();
    disks.sort();
    assert_eq!(disks, [r#""a""#, r#""b""#]);
    let alarm = until("what is no JSON is told", || site.json(&["alarm", "list"])["items"].get(0).cloned());
    assert_eq!(alarm["kind"], "message_refused");
    let message = alarm["message"].as_str().unwrap();
    assert!(message.contains("it is no JSON") && message.contains(queue), "{message}");
    let dead = Far::receive(broker, &windlass_brokers::Queue::new(queue).dead().name);
    assert_eq!(dead, "{");
    assert_eq!(site.json(&["task", "list"])["items"].as_array().unwrap().len(), 2);
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
