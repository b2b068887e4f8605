//! Cases with failing servers and networks: confirmed messages survive, and everything continues by itself.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::{
    Disturbances, DisturbedCase,
    bench::{Bench, PATIENCE, drain, pause_after, text},
};
use crate::Consumer;

/// The cases of this topic.
pub(super) fn cases() -> Vec<DisturbedCase> {
    vec![
        DisturbedCase {
            name: "disturbed::goes_on_after_the_network_was_cut".to_owned(),
            run: |bench, disturbances| Box::pin(goes_on_after_the_network_was_cut(bench, disturbances)),
        },
        DisturbedCase {
            name: "disturbed::goes_on_after_a_kill".to_owned(),
            run: |bench, disturbances| Box::pin(goes_on_after_a_kill(bench, disturbances)),
        },
    ]
}

/// How long a call may take while the broker is unavailable.
const AWAY_MAX: Duration = Duration::from_secs(30);

/// The state of the disturbance, for concurrent publishers.
struct Course {
    /// The time since which nothing disturbs the broker; none during the disturbance, however long a busy
    /// machine takes to start and end it.
    undisturbed_since: Cell<Option<Instant>>,
    is_over: Cell<bool>,
}

/// Publishes small batches until the disturbance is over, each again until it is confirmed. Returns all
/// bodies.
async fn publish_beside(bench: &Bench<'_>, course: &Course) -> Vec<String> {
    let mut confirmed = Vec::new();
    let mut next = 0;
    while !course.is_over.get() {
        let mut batch = Bench::messages(next..next + 20);
        next += 20;
        let begun = Instant::now();
        let mut last_error = None;
        while !batch.is_empty() {
            let waited = course.undisturbed_since.get().map(|since| since.max(begun).elapsed());
            assert!(waited.is_none_or(|waited| waited < PATIENCE), "the broker comes back: {last_error:?}");
            let outcomes = bench.broker.publish(&bench.queue, &batch).await;
            let mut failed = Vec::new();
            for (message, outcome) in batch.into_iter().zip(outcomes) {
                match outcome {
                    Ok(()) => confirmed.push(text(&message)),
                    Err(error) => failed.push((message, error)),
                }
            }
            if let Some((_, error)) = failed.first() {
                pause_after(error).await;
                last_error = Some(error.clone());
            }
            batch = failed.into_iter().map(|(message, _)| message).collect();
        }
    }
    confirmed
}

/// Calls fail while the broker is unavailable, and fail soon.
async fn is_away(bench: &Bench<'_>, consumer: &mut dyn Consumer) {
    let begun = Instant::now();
    bench.broker.look(&bench.queue).await.expect_err("the broker is unavailable");
    let outcomes = bench.broker.publish(&bench.queue, &Bench::messages(0..3)).await;
    assert_eq!(outcomes.len(), 3);
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(crate::BrokerError::is_passing)));
    // A library that connects in the background may report nothing.
    let received = consumer.receive(10, Duration::from_secs(1)).await;
    assert!(received.is_err() || received.is_ok_and(|came| came.is_empty()));
    assert!(begun.elapsed() < AWAY_MAX, "that takes {:?}", begun.elapsed());
}

/// Publishes around a disturbance. An earlier consumer receives all confirmed messages without further
/// action.
async fn disturb(bench: &Bench<'_>, begin: impl FnOnce(), end: impl FnOnce(), keeps_its_data: bool) {
    let mut consumer = bench.consumer().await;
    bench.publish(&Bench::messages(1_000_000..1_000_001)).await;
    bench.take_one(&mut *consumer).await;
    let course = Course { undisturbed_since: Cell::new(Some(Instant::now())), is_over: Cell::new(false) };
    let disturbing = async {
        sleep(Duration::from_millis(500)).await;
        course.undisturbed_since.set(None);
        begin();
        is_away(bench, &mut *consumer).await;
        let since = Instant::now();
        end();
        course.undisturbed_since.set(Some(Instant::now()));
        bench.broker_answers().await;
        println!("    answers {:.2?} after its restart", since.elapsed());
        sleep(Duration::from_millis(500)).await;
        course.is_over.set(true);
    };
    let (confirmed, ()) = tokio::join!(publish_beside(bench, &course), disturbing);
    // Each batch is sent again until it is confirmed, and the first one starts before the disturbance.
    assert!(confirmed.len() >= 20, "something was published: {}", confirmed.len());
    if keeps_its_data {
        let came = drain(&mut *consumer, &confirmed).await;
        let again: u32 = came.values().map(|times| times - 1).sum();
        println!("    {} confirmed, 0 lost, {again} came again", confirmed.len());
    }
    let last = Bench::messages(2_000_000..2_000_001);
    bench.publish(&last).await;
    drain(&mut *consumer, &[text(&last[0])]).await;
}

async fn goes_on_after_the_network_was_cut(bench: &Bench<'_>, disturbances: &dyn Disturbances) {
    disturb(bench, || disturbances.cut(), || disturbances.heal(), true).await;
}

async fn goes_on_after_a_kill(bench: &Bench<'_>, disturbances: &dyn Disturbances) {
    let keeps_its_data = bench.promises.survives_a_kill;
    disturb(bench, || disturbances.kill(), || disturbances.restart(), keeps_its_data).await;
}
