//! Cases for topics: all subscribers receive the messages, in spite of failures.

use std::{
    cell::Cell,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::{
    Audience, Running,
    bench::{PATIENCE, pause_after},
    block_on,
    stage::{Stage, announcements, hear, hear_until, numbers},
    tell,
};
use crate::{BrokerError, Topic};

/// One requirement of all topics.
struct Case {
    name: &'static str,
    run: for<'s> fn(&'s Stage<'s>) -> Running<'s>,
}

/// Cases named like their functions.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        &[$(Case { name: concat!("announcing::", stringify!($case)), run: |stage| Box::pin($case(stage)) }),+]
    };
}

const CASES: &[Case] = cases![
    is_heard_by_everybody,
    keeps_the_order_of_a_key,
    needs_nobody_who_listens,
    takes_many_at_once_and_nothing,
    refuses_too_large_ones_alone,
    refuses_kinds_that_there_are_not,
    makes_a_deleted_topic_again,
];

const DISTURBED_CASES: &[Case] = cases![goes_on_after_the_network_was_cut, goes_on_after_a_kill];

/// Runs every case of topics without disturbances.
///
/// # Panics
/// With the names of the failed cases, after all have run.
pub fn run_announcing(audience: &dyn Audience) {
    run(audience, CASES);
}

/// Runs every case of topics with disturbances.
///
/// # Panics
/// With the names of the failed cases, after all have run.
pub fn run_announcing_disturbed(audience: &dyn Audience) {
    run(audience, DISTURBED_CASES);
}

fn run(audience: &dyn Audience, cases: &[Case]) {
    let run = |case: &Case| block_on(async { (case.run)(&Stage::new(audience, case.name)).await });
    let failed: Vec<String> = cases.iter().filter_map(|case| tell(case.name, || run(case))).collect();
    assert!(failed.is_empty(), "{} cases failed: {}", failed.len(), failed.join(", "));
}

/// How long a call may take while the broker is unavailable.
const AWAY_MAX: Duration = Duration::from_secs(30);

async fn is_heard_by_everybody(stage: &Stage<'_>) {
    let mut listeners = vec![stage.listen().await];
    if stage.audience.has_everybody() {
        listeners.push(stage.listen().await);
    }
    stage.announce(&announcements(0..50)).await;
    for listener in &mut listeners {
        let heard = hear(&mut **listener, 50).await;
        for message in &heard {
            assert_eq!(message.header("ce-type"), Some("of a test"), "{message:?}");
            if stage.audience.promises().keeps_ids {
                assert_eq!(message.id, format!("id-{}", numbers(std::slice::from_ref(message))[0]));
            }
        }
        let mut heard = numbers(&heard);
        heard.sort_unstable();
        assert_eq!(heard, (0..50).collect::<Vec<_>>());
    }
}

/// As publishers must do it: they publish a message after the earlier ones are confirmed.
async fn keeps_the_order_of_a_key(stage: &Stage<'_>) {
    if !stage.audience.promises().keeps_order {
        return;
    }
    let mut listener = stage.listen().await;
    for round in 0..30 {
        stage.announce(&announcements(round * 5..(round + 1) * 5)).await;
    }
    let heard = numbers(&hear(&mut *listener, 150).await);
    for key in 0..5 {
        let of_key: Vec<u32> = heard.iter().copied().filter(|number| number % 5 == key).collect();
        assert!(of_key.len() == 30 && of_key.is_sorted(), "key {key}: {of_key:?}");
    }
}

async fn needs_nobody_who_listens(stage: &Stage<'_>) {
    stage.announce(&announcements(0..10)).await;
    let mut listener = stage.listen().await;
    stage.announce(&announcements(10..11)).await;
    hear_until(&mut *listener, |heard| numbers(heard).contains(&10)).await;
}

async fn takes_many_at_once_and_nothing(stage: &Stage<'_>) {
    let mut listener = stage.listen().await;
    stage.announce(&[]).await;
    let begun = Instant::now();
    stage.announce(&announcements(0..500)).await;
    println!("    500 announcements: confirmed in {:.2?}", begun.elapsed());
    let heard: BTreeSet<u32> = numbers(&hear(&mut *listener, 500).await).into_iter().collect();
    assert_eq!(heard, (0..500).collect());
}

async fn refuses_too_large_ones_alone(stage: &Stage<'_>) {
    let mut listener = stage.listen().await;
    let max = stage.broker.message_bytes_max();
    let mut three = announcements(0..3);
    three[1].message.body = vec![b'x'; max + 1].into();
    let outcomes = stage.broker.announce(&stage.topic, &three).await;
    let too_large =
        |error: &BrokerError| matches!(error, BrokerError::TooLarge { limit, .. } if *limit == max);
    assert!(outcomes[1].as_ref().is_err_and(too_large), "{:?}", outcomes[1]);
    assert_eq!((&outcomes[0], &outcomes[2]), (&Ok(()), &Ok(())));
    let mut heard = numbers(&hear(&mut *listener, 2).await);
    heard.sort_unstable();
    assert_eq!(heard, [0, 2]);
}

async fn refuses_kinds_that_there_are_not(stage: &Stage<'_>) {
    assert_eq!(stage.broker.check_topic(&stage.topic), Ok(()));
    let topic = Topic { kind: Some("pigeon".to_owned()), ..stage.topic.clone() };
    let refused = stage.broker.check_topic(&topic).expect_err("there is no such kind");
    for outcome in stage.broker.announce(&topic, &announcements(0..2)).await {
        let error = outcome.expect_err("there is no such kind");
        assert!(matches!(&error, BrokerError::Invalid(why) if why.contains("pigeon")), "{error}");
        assert_eq!(error, refused);
    }
}

/// While a publisher that has used it before continues by itself. Subscribers must subscribe again.
async fn makes_a_deleted_topic_again(stage: &Stage<'_>) {
    stage.announce(&announcements(0..1)).await;
    stage.audience.delete_topic(&stage.topic);
    let until = Instant::now() + PATIENCE;
    let mut listener = None;
    // While the topic is created again, a message may be refused, or lost if the old topic is deleted only
    // then.
    for number in 1.. {
        assert!(Instant::now() < until, "the topic comes back");
        if let Err(error) = stage.try_to_announce(number).await {
            pause_after(&error).await;
            continue;
        }
        let listener = match &mut listener {
            Some(listener) => listener,
            // The topic exists by now.
            none => none.insert(stage.listen().await),
        };
        if numbers(&listener.hear().await).iter().any(|heard| *heard > 0) {
            break;
        }
    }
}

/// Publishes one message after another until `stop` returns true, each again until it is confirmed. Returns
/// their number.
async fn announce_until(stage: &Stage<'_>, stop: impl Fn() -> bool) -> u32 {
    let mut count = 0;
    while !stop() {
        let until = Instant::now() + PATIENCE;
        while let Err(error) = stage.try_to_announce(count).await {
            assert!(Instant::now() < until, "the broker comes back: {error}");
            pause_after(&error).await;
        }
        count += 1;
    }
    count
}

/// Calls fail while the broker is unavailable, and fail soon.
async fn is_away(stage: &Stage<'_>) {
    let until = Instant::now() + PATIENCE;
    let (begun, outcomes) = loop {
        let begun = Instant::now();
        let outcomes = stage.broker.announce(&stage.topic, &announcements(1_000_000..1_000_003)).await;
        assert_eq!(outcomes.len(), 3);
        // A stopping server may finish calls in progress.
        if outcomes.iter().any(Result::is_err) {
            break (begun, outcomes);
        }
        assert!(Instant::now() < until, "the broker is unavailable");
    };
    assert!(
        outcomes.iter().flat_map(|outcome| outcome.as_ref().err()).all(BrokerError::is_passing),
        "{outcomes:?}"
    );
    assert!(begun.elapsed() < AWAY_MAX, "that takes {:?}", begun.elapsed());
}

/// Publishes around a disturbance. An earlier subscriber receives all confirmed messages at least once.
async fn disturb(stage: &Stage<'_>, begin: impl FnOnce(), end: impl FnOnce(), keeps_its_data: bool) {
    let mut listener = stage.listen().await;
    stage.announce(&announcements(2_000_000..2_000_001)).await;
    hear_until(&mut *listener, |heard| numbers(heard).contains(&2_000_000)).await;
    let is_over = Cell::new(false);
    let disturbing = async {
        sleep(Duration::from_millis(500)).await;
        begin();
        is_away(stage).await;
        end();
        let since = Instant::now();
        while let Err(error) = stage.try_to_announce(1_000_003).await {
            assert!(since.elapsed() < PATIENCE, "the broker comes back: {error}");
            pause_after(&error).await;
        }
        println!("    accepts announcements {:.2?} after its restart", since.elapsed());
        is_over.set(true);
    };
    let (count, ()) = tokio::join!(announce_until(stage, || is_over.get()), disturbing);
    assert!(count > 1, "something was said");
    stage.announce(&announcements(3_000_000..3_000_001)).await;
    let mut wanted: BTreeSet<u32> = if keeps_its_data { (0..count).collect() } else { BTreeSet::new() };
    wanted.insert(3_000_000);
    hear_until(&mut *listener, |heard| {
        for number in numbers(heard) {
            wanted.remove(&number);
        }
        wanted.is_empty()
    })
    .await;
    if keeps_its_data {
        println!("    {count} confirmed, 0 lost");
    }
}

async fn goes_on_after_the_network_was_cut(stage: &Stage<'_>) {
    disturb(stage, || stage.audience.cut(), || stage.audience.heal(), true).await;
}

async fn goes_on_after_a_kill(stage: &Stage<'_>) {
    let keeps_its_data = stage.audience.promises().survives_a_kill;
    disturb(stage, || stage.audience.kill(), || stage.audience.restart(), keeps_its_data).await;
}
