//! Cases for consuming: which consumer receives which message, and when.

use std::{
    collections::BTreeMap,
    pin::pin,
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};

use super::{
    bench::{Bench, PATIENCE, bodies, receipts, receive, receive_for, text},
    topic,
};

topic![
    waits_as_long_as_it_is_told,
    hears_of_a_message_at_once,
    gives_no_more_than_is_wanted,
    has_no_more_in_hands_than_it_may,
    shares_a_queue_among_consumers,
    loses_nothing_when_a_call_is_dropped,
    loses_nothing_that_came_while_nobody_looked,
    acknowledges_for_good,
    acknowledges_some_of_many,
];

/// The limit of a delay. Some brokers wait in whole seconds. It is below 5 s, after which a consumer of Redis asks again without a
/// message.
const LATE: Duration = Duration::from_secs(4);

async fn waits_as_long_as_it_is_told(bench: &Bench<'_>) {
    let mut consumer = bench.consumer().await;
    // The first call may join a group, which takes a while.
    receive_for(&mut *consumer, Duration::from_millis(10)).await;
    for wait in [Duration::ZERO, Duration::from_millis(1_200)] {
        let begun = Instant::now();
        let came = consumer.receive(10, wait).await.expect("the broker answers");
        let took = begun.elapsed();
        assert_eq!(bodies(&came), [""; 0]);
        assert!(took + Duration::from_millis(50) >= wait && took < wait + LATE, "{took:?} for {wait:?}");
    }
}

async fn hears_of_a_message_at_once(bench: &Bench<'_>) {
    let mut consumer = bench.consumer().await;
    bench.publish(&Bench::messages(0..1)).await;
    bench.take_one(&mut *consumer).await;
    let messages = Bench::messages(1..2);
    let sent = async {
        sleep(Duration::from_millis(300)).await;
        bench.publish(&messages).await;
        Instant::now()
    };
    let heard = async {
        let came = receive(&mut *consumer, 1).await;
        (came, Instant::now())
    };
    let (sent, (came, heard)) = tokio::join!(sent, heard);
    assert_eq!(bodies(&came), ["1"]);
    let took = heard.saturating_duration_since(sent);
    assert!(took < LATE, "{took:?}");
    println!("    heard of a message {took:.2?} after it was confirmed");
}

async fn gives_no_more_than_is_wanted(bench: &Bench<'_>) {
    bench.publish(&Bench::messages(0..30)).await;
    let mut consumer = bench.consumer().await;
    let mut came = Vec::new();
    let until = Instant::now() + PATIENCE;
    while came.len() < 30 {
        assert!(Instant::now() < until, "all come: {came:?}");
        // A message fetched for a call with a higher limit must not be lost on one with a lower limit.
        for max in [7, 1, 2] {
            let some = consumer.receive(max, Duration::from_millis(500)).await.expect("the broker answers");
            assert!(some.len() <= max);
            came.extend(bodies(&some));
            consumer.acknowledge(&receipts(&some)).await.expect("it is acknowledged");
        }
    }
    came.sort_by_key(|body| body.parse::<u32>().unwrap_or_default());
    assert_eq!(came, Bench::messages(0..30).iter().map(text).collect::<Vec<_>>());
}

async fn has_no_more_in_hands_than_it_may(bench: &Bench<'_>) {
    bench.publish(&Bench::messages(0..15)).await;
    let mut consumer = bench.consumer_of(&bench.queue, 5).await;
    let first = receive(&mut *consumer, 5).await;
    let more = consumer.receive(10, Duration::from_millis(300)).await.expect("the broker answers");
    assert_eq!(bodies(&more), [""; 0], "five are in flight");
    consumer.acknowledge(&receipts(&first[..2])).await.expect("they are acknowledged");
    let second = receive(&mut *consumer, 2).await;
    let more = consumer.receive(10, Duration::from_millis(300)).await.expect("the broker answers");
    assert_eq!(bodies(&more), [""; 0], "five are in flight again");
    consumer.acknowledge(&receipts(&first[2..])).await.expect("they are acknowledged");
    consumer.acknowledge(&receipts(&second)).await.expect("they are acknowledged");
    let mut left = 8;
    while left > 0 {
        let some = receive(&mut *consumer, left.min(5)).await;
        left -= some.len();
        consumer.acknowledge(&receipts(&some)).await.expect("they are acknowledged");
    }
}

async fn shares_a_queue_among_consumers(bench: &Bench<'_>) {
    let mut consumers = Vec::new();
    for _ in 0..3 {
        let mut consumer = bench.consumer_of(&bench.queue, 10).await;
        // A group rebalances when its members ask for messages.
        receive_for(&mut *consumer, Duration::from_millis(10)).await;
        consumers.push(consumer);
    }
    bench.publish(&Bench::messages(0..300)).await;
    let mut came = BTreeMap::<String, u32>::new();
    let mut who = [0; 3];
    let until = Instant::now() + PATIENCE;
    while came.len() < 300 {
        assert!(Instant::now() < until, "{} of 300 came", came.len());
        for (number, consumer) in consumers.iter_mut().enumerate() {
            let some = consumer.receive(10, Duration::from_millis(50)).await.expect("the broker answers");
            consumer.acknowledge(&receipts(&some)).await.expect("they are acknowledged");
            who[number] += some.len();
            bodies(&some).into_iter().for_each(|body| *came.entry(body).or_default() += 1);
        }
    }
    // A group that rebalances may redeliver messages in flight.
    let again: u32 = came.values().map(|times| times - 1).sum();
    if bench.promises.shares {
        assert_eq!(again, 0, "each came once");
        assert!(who.iter().all(|count| *count < 300), "nobody got all: {who:?}");
    }
}

/// A caller may drop the call at any moment.
async fn loses_nothing_when_a_call_is_dropped(bench: &Bench<'_>) {
    const MESSAGES: u32 = 200;
    let mut consumer = bench.consumer().await;
    let sending = async {
        for number in 0..MESSAGES {
            bench.publish(&Bench::messages(number..number + 1)).await;
        }
    };
    let mut came = BTreeMap::<String, u32>::new();
    let receiving = async {
        let until = Instant::now() + PATIENCE;
        while came.len() < MESSAGES as usize {
            assert!(Instant::now() < until, "{} of {MESSAGES} came", came.len());
            let patience = Duration::from_micros(fastrand::u64(0..5_000));
            let call = consumer.receive(3, Duration::from_secs(1));
            let Ok(some) = timeout(patience, call).await else { continue };
            let some = some.expect("the broker answers");
            consumer.acknowledge(&receipts(&some)).await.expect("they are acknowledged");
            bodies(&some).into_iter().for_each(|body| *came.entry(body).or_default() += 1);
        }
    };
    tokio::join!(sending, receiving);
    assert!(came.values().all(|times| *times == 1), "each came once: {came:?}");
}

/// The call is dropped after its answer has arrived, and before it was polled.
async fn loses_nothing_that_came_while_nobody_looked(bench: &Bench<'_>) {
    let mut consumer = bench.consumer().await;
    receive_for(&mut *consumer, Duration::from_millis(10)).await;
    for number in 0..10 {
        {
            let mut call = pin!(consumer.receive(3, Duration::from_secs(5)));
            let early = timeout(Duration::from_millis(50), &mut call).await;
            assert!(early.is_err(), "there is nothing yet");
            bench.publish(&Bench::messages(number..number + 1)).await;
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(text(&bench.take_one(&mut *consumer).await.message), number.to_string());
    }
}

async fn acknowledges_for_good(bench: &Bench<'_>) {
    bench.publish(&Bench::messages(0..3)).await;
    let mut consumer = bench.consumer().await;
    for _ in 0..3 {
        bench.take_one(&mut *consumer).await;
    }
    bench.nothing_comes(&mut *consumer).await;
    drop(consumer);
    bench.nothing_comes(&mut *bench.consumer().await).await;
}

/// In another order than they arrived, with gaps: the other messages are delivered again.
async fn acknowledges_some_of_many(bench: &Bench<'_>) {
    bench.publish(&Bench::messages(0..9)).await;
    let mut consumer = bench.consumer().await;
    let came = receive(&mut *consumer, 9).await;
    let done: Vec<_> = came.iter().rev().step_by(2).cloned().collect();
    consumer.acknowledge(&receipts(&done)).await.expect("they are acknowledged");
    drop(consumer);
    let mut left: Vec<String> =
        bodies(&came).into_iter().filter(|body| !bodies(&done).contains(body)).collect();
    let mut again = Vec::new();
    let mut consumer = bench.consumer().await;
    let until = Instant::now() + PATIENCE;
    while !left.iter().all(|body| again.contains(body)) {
        assert!(Instant::now() < until, "{left:?} come again, not only {again:?}");
        let some = consumer.receive(10, Duration::from_secs(1)).await.expect("the broker answers");
        consumer.acknowledge(&receipts(&some)).await.expect("they are acknowledged");
        again.extend(bodies(&some));
    }
    if bench.promises.acknowledges_each {
        left.sort();
        again.sort();
        assert_eq!(again, left);
    }
}
