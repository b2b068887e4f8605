//! Producers and consumers that know nothing of Windlass, and what people see.

use std::time::Duration;

use windlass_brokers::{Broker as _, Redis};
use windlass_testkit::Redis as Server;

use super::{list, messages, settings, stream, take, until};

/// What a program adds with a library of its own arrives, by the name that Redis gave it.
#[tokio::test]
async fn a_stranger_adds_to_a_stream() {
    let Some(server) = Server::shared().unwrap() else { return };
    let (broker, queue) = (Redis::open(&server.url()).unwrap(), stream("stranger-adds"));
    let id = server.ask(&["XADD", &queue.name, "*", "windlass-token", "t", "body", "{}"]).unwrap();
    let taken = take(&mut *broker.consume(&queue, &settings()).await.unwrap(), 1).await;
    assert_eq!((taken[0].message.id.as_str(), &taken[0].message.body[..]), (id.as_str(), &b"{}"[..]));
    assert_eq!(taken[0].message.header("windlass-token"), Some("t"));
}

/// A consumer of ten lines in any language pops a body and needs to know nothing else.
#[tokio::test]
async fn a_stranger_pops_from_a_list() {
    let Some(server) = Server::shared().unwrap() else { return };
    let (broker, queue) = (Redis::open(&server.url()).unwrap(), list("stranger-pops"));
    assert!(!broker.has_headers(&queue) && broker.has_headers(&stream("stranger-pops")));
    for outcome in broker.publish(&queue, &messages(0..2)).await {
        outcome.unwrap();
    }
    assert_eq!(server.ask(&["BLPOP", &queue.name, "1"]).unwrap(), format!("{}\n0", queue.name));
    server.ask(&["RPUSH", &queue.name, "from elsewhere"]).unwrap();
    let taken = take(&mut *broker.consume(&queue, &settings()).await.unwrap(), 2).await;
    assert_eq!([&taken[0].message.body[..], &taken[1].message.body[..]], [&b"1"[..], &b"from elsewhere"[..]]);
}

/// What two consumers give back comes to the front in the order in which it was there.
#[tokio::test]
async fn a_list_keeps_its_order_when_something_is_given_back() {
    let Some(server) = Server::shared().unwrap() else { return };
    let (broker, queue) = (Redis::open(&server.url()).unwrap(), list("given-back-in-order"));
    for outcome in broker.publish(&queue, &messages(0..4)).await {
        outcome.unwrap();
    }
    let mut consumer = broker.consume(&queue, &settings()).await.unwrap();
    let taken = take(&mut *consumer, 3).await;
    let receipts: Vec<_> = taken.iter().map(|delivery| delivery.receipt.clone()).collect();
    consumer.give_back(&receipts).await.unwrap();
    assert_eq!(server.ask(&["LRANGE", &queue.name, "0", "-1"]).unwrap(), "0\n1\n2\n3");
}

/// Consumers that came and went leave no names behind, and what they had waits for others.
#[tokio::test]
async fn a_consumer_that_ends_leaves_its_group() {
    let Some(server) = Server::shared().unwrap() else { return };
    let (broker, queue) = (Redis::open(&server.url()).unwrap(), stream("leaves-its-group"));
    broker.publish(&queue, &messages(0..1)).await.remove(0).unwrap();
    let mut consumer = broker.consume(&queue, &settings()).await.unwrap();
    take(&mut *consumer, 1).await;
    let consumers = || server.ask(&["XINFO", "CONSUMERS", &queue.name, "workers"]).unwrap();
    assert!(consumers().contains("tests-"), "{}", consumers());
    drop(consumer);
    until("it is gone", || !consumers().contains("tests-")).await;
    assert!(consumers().contains("given-back"), "{}", consumers());
}

/// It waits for a message at the server, and does not ask again and again.
#[tokio::test]
async fn a_consumer_that_waits_asks_little() {
    let Some(server) = Server::start_with(&["appendfsync=no"]).unwrap() else { return };
    let broker = Redis::open(&server.url()).unwrap();
    let calls = || {
        let told = server.ask(&["INFO", "stats"]).unwrap();
        let line =
            told.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap().trim();
        line.parse::<u32>().unwrap()
    };
    for queue in [stream("asks-little"), list("asks-little-of-a-list")] {
        let mut consumer = broker.consume(&queue, &settings()).await.unwrap();
        consumer.receive(1, Duration::from_millis(1)).await.unwrap();
        let before = calls();
        assert!(consumer.receive(1, Duration::from_secs(3)).await.unwrap().is_empty());
        // A look around and a read every quarter of a second, and what counts them.
        assert!(calls() - before < 40, "{} calls in 3 s", calls() - before);
    }
}
