//! Cases for publishing: messages arrive unchanged, and confirmed messages are stored.

use std::{collections::BTreeSet, time::Instant};

use bytes::Bytes;

use super::{
    bench::{Bench, bodies, drain, message, receipts, receive, text},
    topic,
};
use crate::{BrokerError, Consumer, Delivery, Message, Queue};

topic![
    arrives_as_it_was,
    keeps_the_order_of_a_key,
    outlasts_its_publisher,
    takes_many_at_once,
    takes_nothing_at_once,
    takes_the_largest,
    refuses_too_large_ones_alone,
    makes_a_deleted_queue_again,
    gives_no_two_messages_the_same_id,
    has_a_queue_for_the_dead,
    may_be_declared_again,
    refuses_what_cannot_be_a_queue,
];

/// Bodies that are difficult for some product.
fn difficult(binary: bool) -> Vec<Bytes> {
    let mut bodies = vec![
        Bytes::from("{\"TaskId\": \"\u{e4}\u{20ac}\u{1f600}\", \"quoted\": \"\\\"\\n\"}"),
        Bytes::from("line one\r\nline two\ttab <tag> & 'quotes' \"\u{2028}"),
        Bytes::from(" "),
        Bytes::from("x".repeat(200_000)),
    ];
    if binary {
        bodies.push(Bytes::new());
        bodies.push((0..=255).collect::<Vec<u8>>().into());
        bodies.push(Bytes::from_static(b"\0"));
        bodies.push(Bytes::from_static(b"\xff\xfe\x80"));
    }
    bodies
}

async fn arrives_as_it_was(bench: &Bench<'_>) {
    let mut consumer = bench.consumer().await;
    for (number, body) in difficult(bench.promises.binary).into_iter().enumerate() {
        let sent = Message::new(format!("id-{number}"), "key", body)
            .with_header("windlass-token", format!("t0k3n-{number}"))
            .with_header("windlass-word", "\u{dc}berraschung, 100 %");
        bench.publish(std::slice::from_ref(&sent)).await;
        let delivery = bench.take_one(&mut *consumer).await;
        let came = &delivery.message;
        assert!(came.body == sent.body, "body {number}");
        if bench.broker.has_headers(&bench.queue) {
            for (name, value) in &sent.headers {
                assert_eq!(came.header(name), Some(value.as_str()), "header {name}");
            }
        }
        if bench.promises.keeps_ids {
            assert_eq!(came.id, sent.id);
        }
        assert!(matches!(delivery.deliveries, None | Some(1)), "it is delivered for the first time");
    }
}

async fn keeps_the_order_of_a_key(bench: &Bench<'_>) {
    if !bench.promises.keeps_order {
        return;
    }
    let of = |number: u32| format!("key-{}", number % 3);
    let messages: Vec<Message> = (0..300).map(|number| message(&number.to_string(), &of(number))).collect();
    for batch in messages.chunks(70) {
        bench.publish(batch).await;
    }
    let mut consumer = bench.consumer().await;
    let mut came: Vec<u32> = Vec::new();
    while came.len() < 300 {
        let some = receive(&mut *consumer, 1).await;
        consumer.acknowledge(&receipts(&some)).await.expect("it is acknowledged");
        came.extend(bodies(&some).iter().map(|body| body.parse::<u32>().expect("a number")));
    }
    for key in 0..3 {
        let of_key: Vec<u32> = came.iter().copied().filter(|number| number % 3 == key).collect();
        assert!(of_key.is_sorted(), "key {key}: {of_key:?}");
    }
}

async fn outlasts_its_publisher(bench: &Bench<'_>) {
    let publisher = bench.subject.connect();
    let messages = Bench::messages(0..20);
    for outcome in publisher.publish(&bench.queue, &messages).await {
        outcome.expect("it is confirmed");
    }
    drop(publisher);
    let mut came = bodies(&receive(&mut *bench.consumer().await, 20).await);
    came.sort_by_key(|body| body.parse::<u32>().unwrap_or_default());
    assert_eq!(came, messages.iter().map(text).collect::<Vec<_>>());
}

async fn takes_many_at_once(bench: &Bench<'_>) {
    let messages = Bench::messages(0..5_000);
    let begun = Instant::now();
    bench.publish(&messages).await;
    let published = begun.elapsed();
    let wanted: Vec<String> = messages.iter().map(text).collect();
    let mut consumer = bench.consumer().await;
    let begun = Instant::now();
    let came = drain(&mut *consumer, &wanted).await;
    assert!(came.values().all(|times| *times == 1), "each came once");
    println!("    5,000 messages: published in {published:.2?}, consumed in {:.2?}", begun.elapsed());
}

async fn takes_nothing_at_once(bench: &Bench<'_>) {
    bench.publish(&[]).await;
    bench.publish(&Bench::messages(0..1)).await;
    assert_eq!(bodies(&receive(&mut *bench.consumer().await, 1).await), ["0"]);
}

/// Checks that the limit is true. Skipped for brokers that accept very large messages.
async fn takes_the_largest(bench: &Bench<'_>) {
    const AROUND_IT: usize = 1_024;
    let max = bench.broker.message_bytes_max();
    if max > 32 << 20 {
        return;
    }
    let largest = message(&"x".repeat(max - AROUND_IT), "key");
    let largest = Message { id: "largest".to_owned(), ..largest };
    bench.publish(std::slice::from_ref(&largest)).await;
    let came = bench.take_one(&mut *bench.consumer().await).await;
    assert!(came.message.body == largest.body);
}

async fn refuses_too_large_ones_alone(bench: &Bench<'_>) {
    let max = bench.broker.message_bytes_max();
    let mut messages = Bench::messages(0..3);
    messages[1].body = vec![b'x'; max + 1].into();
    let outcomes = bench.broker.publish(&bench.queue, &messages).await;
    let too_large =
        |error: &BrokerError| matches!(error, BrokerError::TooLarge { limit, .. } if *limit == max);
    assert!(outcomes[1].as_ref().is_err_and(too_large), "{:?}", outcomes[1]);
    assert!(!outcomes[1].as_ref().is_err_and(BrokerError::is_passing), "trying again does not help");
    assert_eq!((&outcomes[0], &outcomes[2]), (&Ok(()), &Ok(())));
    let mut consumer = bench.consumer().await;
    let mut came = bodies(&receive(&mut *consumer, 2).await);
    came.sort();
    assert_eq!(came, ["0", "2"]);
}

/// While a publisher and a consumer that have used it before continue by themselves.
async fn makes_a_deleted_queue_again(bench: &Bench<'_>) {
    let mut consumer = bench.consumer().await;
    bench.publish(&Bench::messages(0..1)).await;
    bench.take_one(&mut *consumer).await;
    bench.subject.delete(&bench.queue);
    take_after_deletion(bench, &mut *consumer, |number| message(&number.to_string(), "key")).await;
}

/// Sends numbered messages to a deleted queue until some arrive.
async fn take_after_deletion(
    bench: &Bench<'_>,
    consumer: &mut dyn Consumer,
    message: impl Fn(u32) -> Message,
) -> Vec<Delivery> {
    // While the queue is created again, a message may be refused, or lost if the old queue is deleted only
    // then.
    let until = Instant::now() + super::bench::PATIENCE;
    let mut number = 0;
    loop {
        number += 1;
        assert!(Instant::now() < until, "the queue comes back");
        let outcomes = bench.broker.publish(&bench.queue, &[message(number)]).await;
        if let Err(error) = &outcomes[0] {
            super::bench::pause_after(error).await;
            continue;
        }
        match consumer.receive(10, std::time::Duration::from_secs(2)).await {
            Ok(came) if came.is_empty() => {}
            Ok(came) => {
                consumer.acknowledge(&receipts(&came)).await.expect("it is acknowledged");
                return came;
            }
            Err(error) => super::bench::pause_after(&error).await,
        }
    }
}

/// A message sent without an id arrives without one, or with a unique one, even if the queue was deleted and
/// created again under the same name.
async fn gives_no_two_messages_the_same_id(bench: &Bench<'_>) {
    if bench.queue.name.ends_with(".fifo") {
        // A FIFO queue of SQS requires an id.
        return;
    }
    let nameless = || Message::new("", "key", "the same");
    // Enough messages that those of the new queue get positions already used in the old one.
    bench.publish(&vec![nameless(); 100]).await;
    let mut consumer = bench.consumer().await;
    let mut came = receive(&mut *consumer, 100).await;
    consumer.acknowledge(&receipts(&came)).await.expect("it is acknowledged");
    bench.subject.delete(&bench.queue);
    came.extend(take_after_deletion(bench, &mut *consumer, |_| nameless()).await);
    let ids: Vec<&str> =
        came.iter().map(|delivery| delivery.message.id.as_str()).filter(|id| !id.is_empty()).collect();
    let different: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(different.len(), ids.len(), "{ids:?}");
}

async fn has_a_queue_for_the_dead(bench: &Bench<'_>) {
    let dead = bench.queue.dead();
    bench.broker.declare(&dead).await.expect("it is made");
    let body = message("of no use", "key").with_header("windlass-reason", "it does not parse");
    let outcomes = bench.broker.publish(&dead, &[body]).await;
    assert_eq!(outcomes, [Ok(())]);
    bench.publish(&Bench::messages(0..1)).await;
    assert_eq!(bodies(&receive(&mut *bench.consumer().await, 1).await), ["0"]);
    let buried = receive(&mut *bench.consumer_of(&dead, 10).await, 1).await;
    assert_eq!(bodies(&buried), ["of no use"]);
    if bench.broker.has_headers(&dead) {
        assert_eq!(buried[0].message.header("windlass-reason"), Some("it does not parse"));
    }
}

async fn may_be_declared_again(bench: &Bench<'_>) {
    bench.broker.declare(&bench.queue).await.expect("it is made");
    bench.publish(&Bench::messages(0..1)).await;
    bench.broker.declare(&bench.queue).await.expect("it is there");
    bench.subject.connect().declare(&bench.queue).await.expect("it is there for others");
    assert_eq!(bodies(&receive(&mut *bench.consumer().await, 1).await), ["0"]);
}

/// Without connecting to the server, and with the same error as the calls that would connect.
async fn refuses_what_cannot_be_a_queue(bench: &Bench<'_>) {
    let (broker, good) = (&bench.broker, &bench.queue);
    for queue in [good.clone(), good.dead()] {
        assert_eq!(broker.check(&queue), Ok(()), "{queue}");
    }
    let pigeon = Queue { kind: Some("pigeon".to_owned()), ..good.clone() };
    let nameless = Queue { name: String::new(), ..good.clone() };
    for queue in [pigeon, nameless] {
        let error = broker.check(&queue).expect_err("there can be no such queue");
        let names_it = |why: &str| queue.kind == good.kind || why.contains("pigeon");
        assert!(matches!(&error, BrokerError::Invalid(why) if names_it(why)), "{error}");
        assert_eq!(broker.declare(&queue).await, Err(error.clone()));
        assert_eq!(broker.publish(&queue, &Bench::messages(0..2)).await, [Err(error.clone()), Err(error)]);
    }
}
