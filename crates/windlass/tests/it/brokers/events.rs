//! Events out: what happens to tasks is heard on the topic, all of it and in order.

use std::{collections::BTreeMap, path::Path, time::Duration};

use serde_json::{Value, json};
use windlass_brokers::{Announcement, ConsumerSettings, Message, Queue, Topic};
use windlass_testkit::{ElasticMq, Kafka, Postgres, RabbitMq, Redis};

use super::{PATIENCE, block_on};
use crate::site::{FLOWS, Site, store, until, until_within};

/// A server on a store, which announces on this topic.
fn open(store: &str, broker: &str, topic: &str) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("windlass.toml");
    let config = format!("[events]\nbroker = \"{broker}\"\ntopic = \"{topic}\"\nsource = \"/tests\"\n");
    std::fs::write(&file, config).unwrap();
    Site::open(dir, store, &[("WINDLASS_CONFIG", &file.display().to_string())])
}

/// The same with flows and a worker.
fn open_with_worker(folder: &Path, broker: &str, topic: &str) -> Site {
    let mut site = open(&store(folder), broker, topic);
    site.apply(FLOWS);
    site.start_worker();
    site
}

/// What is heard in a queue that gets what is announced, until these tasks have ended, by task.
fn hear(broker: &str, queue: &str, tasks: &[String]) -> BTreeMap<String, Vec<Value>> {
    let settings = ConsumerSettings {
        binding: None,
        group: "audit".to_owned(),
        name: "test".to_owned(),
        in_hands_max: 1000,
        silent_after: Duration::from_secs(30),
    };
    block_on(async {
        let broker = windlass_brokers::connect(broker).unwrap();
        let mut heard: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let begun = std::time::Instant::now();
        // A topic of Kafka that was just made may have no leader yet.
        let mut consumer = loop {
            match broker.consume(&Queue::new(queue), &settings).await {
                Ok(consumer) => break consumer,
                Err(error) => assert!(error.is_passing() && begun.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        loop {
            for delivery in consumer.receive(100, Duration::from_secs(1)).await.unwrap_or_default() {
                consumer.acknowledge(&[delivery.receipt]).await.unwrap();
                let event: Value = serde_json::from_slice(&delivery.message.body).unwrap();
                let task = event["subject"].as_str().unwrap().to_owned();
                heard.entry(task).or_default().push(event);
            }
            let has_ended = |task: &String| {
                let last = heard.get(task).and_then(|events| events.last());
                last.is_some_and(|event| event["type"] == "windlass.task.ended")
            };
            if tasks.iter().all(has_ended) {
                return heard;
            }
            assert!(begun.elapsed() < PATIENCE, "not all was heard: {heard:#?}");
        }
    })
}

/// What was heard of a task is its history, in order, perhaps with repetitions.
fn is_history(site: &Site, task: &str, heard: &[Value]) {
    let mut next = 1;
    for event in heard {
        let n = event["data"]["n"].as_u64().unwrap();
        assert!(n <= next, "event {n} came before event {next}: {heard:#?}");
        next = next.max(n + 1);
        assert_eq!(event["id"], format!("{task}/{n}"));
        assert_eq!(event["sequence"], format!("{n:020}"));
    }
    let history = site.json(&["task", "events", task]);
    let history: Vec<&Value> = history["items"].as_array().unwrap().iter().collect();
    assert_eq!(next, history.len() as u64 + 1, "{heard:#?}");
    let mut firsts: Vec<&Value> = heard.iter().map(|event| &event["data"]).collect();
    firsts.sort_by_key(|event| event["n"].as_u64());
    firsts.dedup_by_key(|event| event["n"].as_u64());
    for (heard, happened) in firsts.into_iter().zip(history) {
        for (key, value) in happened.as_object().unwrap() {
            assert_eq!(heard.get(key), Some(value), "{key} of {heard}");
        }
    }
}

/// Tasks that succeed and that are rolled back, as a consumer of the queue sees them.
fn what_happens_is_heard(broker: &str, topic: &str, queue: &str) {
    let folder = tempfile::tempdir().unwrap();
    let site = open_with_worker(folder.path(), broker, topic);
    let (good, bad) = (site.start_task("good"), site.start_task("bad"));
    let heard = hear(broker, queue, &[good.clone(), bad.clone()]);
    for task in [&good, &bad] {
        is_history(&site, task, &heard[task]);
    }
    let first = &heard[&good][0];
    assert_eq!(first["specversion"], "1.0");
    assert_eq!(first["type"], "windlass.task.accepted");
    assert_eq!(first["source"], "/tests");
    assert_eq!(first["datacontenttype"], "application/json");
    assert_eq!(first["partitionkey"], good.as_str());
    assert_eq!(first["time"], first["data"]["at"]);
    assert_eq!((&first["data"]["flow"], &first["data"]["version"]), (&json!("good"), &json!(1)));
    let kinds: Vec<&str> = heard[&bad].iter().filter_map(|event| event["data"]["kind"].as_str()).collect();
    for kind in ["step.failed", "task.rolling_back", "rollback.succeeded"] {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
}

#[test]
fn on_a_stream_of_redis() {
    let Some(server) = Redis::shared().unwrap() else { return };
    what_happens_is_heard(&server.url(), "happens", "happens");
}

#[test]
fn in_a_queue_that_is_bound_to_an_exchange_of_rabbitmq() {
    let Some(server) = RabbitMq::shared().unwrap() else { return };
    let url = server.url();
    block_on(async {
        let broker = windlass_brokers::connect(&url).unwrap();
        broker.declare(&Queue::new("happens-audit")).await.unwrap();
        // Makes the exchange; nobody hears it.
        let topic = Topic { name: "happens".to_owned(), kind: None, keep: 1 };
        let probe = Announcement { subject: "probe".to_owned(), message: Message::new("0", "", "") };
        broker.announce(&topic, &[probe]).await.remove(0).unwrap();
    });
    server
        .evaluate(
            "rabbit_binding:add({binding, rabbit_misc:r(<<\"/\">>, exchange, <<\"happens\">>), <<\"#\">>, \
             rabbit_misc:r(<<\"/\">>, queue, <<\"happens-audit\">>), []}, <<\"test\">>)",
        )
        .unwrap();
    what_happens_is_heard(&url, "happens", "happens-audit");
}

#[test]
fn on_a_topic_of_kafka() {
    let Some(server) = Kafka::shared().unwrap() else { return };
    what_happens_is_heard(&server.url(), "happens", "happens");
}

#[test]
fn in_a_queue_of_sqs_that_keeps_order() {
    let Some(server) = ElasticMq::shared().unwrap() else { return };
    what_happens_is_heard(&server.url(), "happens.fifo", "happens.fifo");
}

#[test]
fn a_broker_that_is_away_and_a_server_that_dies_cost_no_event() {
    // With less it may keep what it has confirmed to itself for a second or two.
    let Some(redis) = Redis::start_with(&["appendfsync=always"]).unwrap() else { return };
    let url = redis.url();
    let folder = tempfile::tempdir().unwrap();
    let mut site = open_with_worker(folder.path(), &url, "happens");
    let before = site.start_task_and_wait("good");
    redis.kill().unwrap();
    let away = site.start_task("bad");
    let ended = || site.json(&["task", "show", &away])["status"] == "rolled_back";
    until("tasks go on without the broker", || ended().then_some(()));
    let alarm = |site: &Site| site.json(&["alarm", "list"])["items"].get(0).cloned();
    let told = until("an alarm is raised", || alarm(&site));
    assert_eq!(told["kind"], "broker_away");
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("cannot be announced on the topic happens"), "{message}");
    // The server dies with what it could not say, and the next one says it.
    site.children[0].kill().unwrap();
    site.children[0].wait().unwrap();
    redis.restart().unwrap();
    let site = open(&store(folder.path()), &url, "happens");
    let heard = hear(&url, "happens", &[before.clone(), away.clone()]);
    for task in [&before, &away] {
        is_history(&site, task, &heard[task]);
    }
    // No alarm says any more that it is unavailable, though another server raised one.
    until("the alarm is over", || alarm(&site).is_none().then_some(()));
}

#[test]
fn what_happened_and_cannot_be_read_is_told() {
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let Some(redis) = Redis::shared().unwrap() else { return };
    let database = postgres.database().unwrap();
    // Where nobody listens nothing is announced.
    let before = open(&database.url(), "redis://127.0.0.1:1", "damaged");
    before.apply("{ flow: f, steps: [ { name: one, run: nobody.serves } ] }");
    let task = before.start_task("f");
    drop(before);
    database.ask("UPDATE windlass_history SET events = ''").unwrap();
    let site = open(&database.url(), &redis.url(), "damaged");
    let alarm = until_within(PATIENCE, "an alarm is raised", || {
        site.json(&["alarm", "list"])["items"].get(0).cloned()
    });
    let message = alarm["message"].as_str().unwrap();
    assert!(message.contains("announces no later event of this task"), "{message}");
    assert!(message.contains("the store is damaged") && message.contains(&task), "{message}");
    // Other tasks are announced as before.
    let other = site.start_task("f");
    until_within(PATIENCE, "another task is announced", || {
        let messages = redis.ask(&["XRANGE", "damaged", "-", "+"]).unwrap();
        messages.contains(&other).then_some(())
    });
}
