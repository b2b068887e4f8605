//! Cases for the observable state of a queue.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{
    bench::{Bench, PATIENCE, receipts, receive},
    topic,
};
use crate::{BrokerError, InFlight, Look, Progress};

topic![
    counts_what_is_there,
    knows_no_queue_that_is_not_there,
    sees_that_a_queue_was_made_anew,
    knows_what_was_settled,
];

/// Reads the state until it shows this number of messages, of which this number is in flight: some brokers
/// count with a delay. Some can count both only without consumers, and report that each time.
async fn look_until(bench: &Bench<'_>, messages: u64, in_hands: u64) -> Look {
    let until = Instant::now() + PATIENCE;
    loop {
        let look = bench.broker.look(&bench.queue).await.expect("the queue is there");
        let wanted = if look.in_flight == InFlight::NotCounted { messages - in_hands } else { messages };
        if look.messages.is_none_or(|seen| seen == wanted) {
            return look;
        }
        assert!(Instant::now() < until, "{look:?} becomes {messages} messages");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn counts_what_is_there(bench: &Bench<'_>) {
    bench.broker.declare(&bench.queue).await.expect("it is made");
    let before = look_until(bench, 0, 0).await;
    bench.publish(&Bench::messages(0..6)).await;
    let look = look_until(bench, 6, 0).await;
    assert_eq!(look.identity, before.identity, "it is the same queue");
    let mut consumer = bench.consumer_of(&bench.queue, 2).await;
    let came = receive(&mut *consumer, 2).await;
    look_until(bench, 6, 2).await;
    consumer.acknowledge(&receipts(&came)).await.expect("they are acknowledged");
    // It may have further messages in flight, without a call.
    drop(consumer);
    let after = look_until(bench, 4, 0).await;
    assert_eq!(after.identity, look.identity, "it is the same queue");
}

async fn knows_no_queue_that_is_not_there(bench: &Bench<'_>) {
    let error = bench.broker.look(&bench.queue).await.expect_err("there is none");
    assert!(matches!(error, BrokerError::NoQueue(_)), "{error}");
    bench.publish(&Bench::messages(0..1)).await;
    look_until(bench, 1, 0).await;
}

async fn sees_that_a_queue_was_made_anew(bench: &Bench<'_>) {
    bench.publish(&Bench::messages(0..2)).await;
    let before = look_until(bench, 2, 0).await;
    bench.subject.delete(&bench.queue);
    let until = Instant::now() + PATIENCE;
    // If the queue is deleted in the background, messages sent meanwhile are deleted with it.
    loop {
        assert!(Instant::now() < until, "the queue comes back");
        for outcome in bench.broker.publish(&bench.queue, &Bench::messages(2..3)).await {
            if let Err(error) = outcome {
                super::bench::pause_after(&error).await;
            }
        }
        match bench.broker.look(&bench.queue).await {
            Ok(after) if after.identity.is_none() || after.identity != before.identity => break,
            Ok(_) => sleep(Duration::from_millis(50)).await,
            Err(error) => super::bench::pause_after(&error).await,
        }
    }
}

async fn knows_what_was_settled(bench: &Bench<'_>) {
    let progress = async || bench.broker.progress(&bench.queue, bench.group()).await;
    let error = progress().await.expect_err("there is none");
    assert!(matches!(error, BrokerError::NoQueue(_)), "{error}");
    bench.publish(&Bench::messages(0..3)).await;
    look_until(bench, 3, 0).await;
    let mark = progress().await.expect("the queue is there");
    assert!(!mark.has_settled(&mark), "{mark:?}");
    let mut consumer = bench.consumer().await;
    let came = receive(&mut *consumer, 3).await;
    consumer.acknowledge(&receipts(&came[..2])).await.expect("they are acknowledged");
    if let now @ Progress::Positions(_) = progress().await.expect("the queue is there") {
        assert!(!now.has_settled(&mark), "one is in flight: {now:?} since {mark:?}");
        bench.publish(&Bench::messages(3..4)).await;
    }
    consumer.acknowledge(&receipts(&came[2..])).await.expect("it is acknowledged");
    let until = Instant::now() + PATIENCE;
    while !progress().await.expect("the queue is there").has_settled(&mark) {
        assert!(Instant::now() < until, "all that was there at {mark:?} is settled");
        sleep(Duration::from_millis(50)).await;
    }
}
