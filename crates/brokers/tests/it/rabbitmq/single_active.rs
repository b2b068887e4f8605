//! Queues of which one consumer at a time gets messages.

use std::time::Duration;

use windlass_brokers::{Broker, Message, Queue, RabbitMq};
use windlass_testkit::RabbitMq as Server;

use super::{PATIENCE, message, receipts, settings, take};

fn queue(name: &str) -> Queue {
    Queue { name: name.to_owned(), kind: Some("single-active".to_owned()) }
}

/// The second consumer gets nothing while the first one is there, and then what was in flight before the rest.
#[tokio::test]
async fn no_message_overtakes_another_one() {
    let Some(server) = Server::shared().unwrap() else { return };
    let connect = || RabbitMq::new(&server.url()).unwrap();
    let (queue, first, second) = (queue("one-at-a-time"), connect(), connect());
    let sent: Vec<Message> = (0..5).map(message).collect();
    for message in &sent[..4] {
        first.publish(&queue, std::slice::from_ref(message)).await.remove(0).unwrap();
    }
    let mut consumer = first.consume(&queue, &settings(2)).await.unwrap();
    let taken = take(&mut *consumer, 2).await;
    consumer.acknowledge(&receipts(&taken[..1])).await.unwrap();
    let mut standby = second.consume(&queue, &settings(10)).await.unwrap();
    assert_eq!(standby.receive(10, Duration::from_millis(500)).await.unwrap(), []);
    second.publish(&queue, &sent[4..]).await.remove(0).unwrap();
    first.disconnect().await;
    assert!(consumer.acknowledge(&receipts(&taken[1..])).await.is_err(), "its connection is closed");
    let rest = take(&mut *standby, 4).await;
    let came: Vec<&Message> = rest.iter().map(|delivery| &delivery.message).collect();
    assert_eq!(came, sent[1..].iter().collect::<Vec<_>>());
    standby.acknowledge(&receipts(&rest)).await.unwrap();
    second.disconnect().await;
    first.publish(&queue, &sent[..1]).await.remove(0).unwrap();
    assert!(consumer.receive(1, PATIENCE).await.is_err(), "the connection was lost");
    // The next call connects again.
    assert_eq!(consumer.receive(1, PATIENCE).await.unwrap().len(), 1);
}

/// A queue that sends to all its consumers would break what the kind promises.
#[tokio::test]
async fn a_queue_without_the_argument_is_refused() {
    let Some(server) = Server::shared().unwrap() else { return };
    let broker = RabbitMq::new(&server.url()).unwrap();
    let (quorum, single) = (Queue::new("shared-by-all"), queue("shared-by-all"));
    broker.declare(&quorum).await.unwrap();
    let error = broker.declare(&single).await.unwrap_err();
    assert!(!error.is_passing() && error.to_string().contains("x-single-active-consumer"), "{error}");
    let (quorum, single) = (Queue::new("of-one"), queue("of-one"));
    broker.declare(&single).await.unwrap();
    broker.declare(&quorum).await.unwrap();
}
