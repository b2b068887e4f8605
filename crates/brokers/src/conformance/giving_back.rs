//! Cases for redelivery: another consumer gets the messages that one does not settle.

use std::time::{Duration, Instant};

use super::{
    bench::{Bench, PATIENCE, bodies, receipts, receive, receive_for},
    topic,
};
use crate::ConsumerSettings;

topic![
    comes_again_when_its_consumer_is_dropped,
    comes_again_when_it_is_given_back,
    comes_again_when_its_consumer_is_silent,
    stays_with_a_consumer_that_keeps_it,
];

/// How soon another consumer gets messages that were given back explicitly.
const SOON: Duration = Duration::from_secs(5);

async fn comes_again_when_its_consumer_is_dropped(bench: &Bench<'_>) {
    bench.publish(&Bench::messages(0..3)).await;
    let mut consumer = bench.consumer().await;
    let came = receive(&mut *consumer, 3).await;
    consumer.acknowledge(&receipts(&came[..1])).await.expect("it is acknowledged");
    drop(consumer);
    let mut other = bench.consumer().await;
    let again = receive(&mut *other, 2).await;
    let mut expected = bodies(&came[1..]);
    let mut again_bodies = bodies(&again);
    expected.sort();
    again_bodies.sort();
    assert_eq!(again_bodies, expected);
    if bench.promises.counts_deliveries {
        assert!(again.iter().all(|delivery| delivery.deliveries > Some(1)), "{:?}", again[0].deliveries);
    }
    other.acknowledge(&receipts(&again)).await.expect("they are acknowledged");
    bench.nothing_comes(&mut *other).await;
}

async fn comes_again_when_it_is_given_back(bench: &Bench<'_>) {
    bench.publish(&Bench::messages(0..2)).await;
    // So that a redelivery is not caused by silence.
    let settings = ConsumerSettings { silent_after: SOON * 4, ..bench.settings(10) };
    let mut consumer =
        bench.broker.consume(&bench.queue, &settings).await.expect("the broker lets us consume");
    let came = receive(&mut *consumer, 2).await;
    consumer.give_back(&receipts(&came)).await.expect("they are given back");
    let begun = Instant::now();
    let again = receive(&mut *consumer, 2).await;
    assert!(begun.elapsed() < SOON, "they come after {:?}", begun.elapsed());
    let (mut first, mut second) = (bodies(&came), bodies(&again));
    first.sort();
    second.sort();
    assert_eq!(first, second);
    if bench.promises.counts_deliveries {
        assert!(again.iter().all(|delivery| delivery.deliveries > Some(1)), "{:?}", again[0].deliveries);
    }
    consumer.acknowledge(&receipts(&again)).await.expect("they are acknowledged");
    bench.nothing_comes(&mut *consumer).await;
}

async fn comes_again_when_its_consumer_is_silent(bench: &Bench<'_>) {
    if !bench.promises.heeds_silence {
        return;
    }
    bench.publish(&Bench::messages(0..1)).await;
    let mut silent = bench.consumer().await;
    let came = receive(&mut *silent, 1).await;
    let begun = Instant::now();
    let mut other = bench.consumer().await;
    let again = receive(&mut *other, 1).await;
    assert!(
        begun.elapsed() + Duration::from_millis(100) >= bench.promises.silent_after,
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(bodies(&again), bodies(&came));
    // The silent consumer cannot take it back.
    let _ = silent.keep(&receipts(&came)).await;
    let _ = silent.give_back(&receipts(&came)).await;
    other.acknowledge(&receipts(&again)).await.expect("it is acknowledged");
    bench.nothing_comes(&mut *other).await;
}

async fn stays_with_a_consumer_that_keeps_it(bench: &Bench<'_>) {
    bench.publish(&Bench::messages(0..1)).await;
    // On a busy machine the shortest `silent_after` of the broker may pass between two calls.
    let silent_after = bench.promises.silent_after * 4;
    let settings = ConsumerSettings { silent_after, ..bench.settings(10_000) };
    let consume = || bench.broker.consume(&bench.queue, &settings);
    let mut consumer = consume().await.expect("the broker lets us consume");
    let came = receive(&mut *consumer, 1).await;
    let mut other = consume().await.expect("the broker lets us consume");
    let until = Instant::now() + silent_after * 2;
    assert!(until < Instant::now() + PATIENCE, "the suite is for shorter times than {silent_after:?}");
    while Instant::now() < until {
        consumer.keep(&receipts(&came)).await.expect("it is kept");
        // A consumer that keeps a message continues to receive, and does not get the same message again.
        let step = silent_after / 4;
        let (mine, others) =
            tokio::join!(receive_for(&mut *consumer, step / 2), receive_for(&mut *other, step));
        assert_eq!((bodies(&mine), bodies(&others)), (vec![], vec![]));
    }
    consumer.acknowledge(&receipts(&came)).await.expect("it is acknowledged");
    drop(consumer);
    // Longer than a redelivery takes.
    bench.nothing_comes_within(&mut *other, silent_after + Duration::from_secs(1)).await;
}
