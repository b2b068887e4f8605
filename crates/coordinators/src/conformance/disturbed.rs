//! Cases with failing servers and networks.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{
    Disturbances,
    stage::{Stage, in_time, until_ok},
    topic,
};
use crate::{CoordinatorError, Leadership, connect};

topic!(
    dyn Disturbances:
    a_failed_renewal_does_not_end_the_leadership,
    the_bound_is_counted_from_before_a_renewal_was_sent,
    who_is_cut_off_stops_before_the_next_leads,
    a_server_that_is_killed_is_replaced_by_the_next_address,
    a_lost_quorum_elects_nobody_until_it_is_back,
    the_fence_grows_over_a_restart_of_all_servers,
);

async fn cannot_renew(leadership: &dyn Leadership) {
    let error = leadership.renew().await.expect_err("the coordinator is unavailable");
    assert!(matches!(error, CoordinatorError::Unavailable(_)), "{error}");
}

/// The network is gone for a moment.
async fn a_failed_renewal_does_not_end_the_leadership(stage: &Stage<'_>, disturbances: &dyn Disturbances) {
    let leadership = stage.elect("first").await;
    leadership.renew().await.expect("it goes on");
    let until = leadership.acts_until();
    disturbances.cut();
    cannot_renew(&*leadership).await;
    assert_eq!(leadership.acts_until(), until, "a failed renewal changes nothing");
    disturbances.heal();
    let renewed = until_ok(|| leadership.renew());
    tokio::select! {
        () = renewed => {}
        () = leadership.ended() => panic!("it goes on"),
    }
    // The first renewal after a break may only prove what the one before it began.
    sleep(stage.lease / 6).await;
    leadership.renew().await.expect("it goes on");
    assert!(leadership.acts_until() > until);
    leadership.resign().await.expect("it resigns");
}

/// The network is slow. The time that an answer takes is not added to the bound.
async fn the_bound_is_counted_from_before_a_renewal_was_sent(
    stage: &Stage<'_>,
    disturbances: &dyn Disturbances,
) {
    let delay = stage.lease / 40;
    let leadership = stage.elect("first").await;
    // From the call to the bound, at most: once each time, as some products count from an earlier renewal.
    let bounds = async || {
        let mut longest = Duration::ZERO;
        for _ in 0..6 {
            let begun = Instant::now();
            leadership.renew().await.expect("it goes on");
            longest = longest.max(leadership.acts_until().saturating_duration_since(begun));
            sleep(stage.lease / 12).await;
        }
        longest
    };
    let quick = bounds().await;
    disturbances.delay(delay);
    let slow = bounds().await;
    disturbances.heal();
    assert!(slow < quick + delay, "{slow:?} with a delay of {delay:?} in each direction, {quick:?} without");
    leadership.resign().await.expect("it resigns");
}

/// The network of the leader is gone for good; the other candidate has another one.
async fn who_is_cut_off_stops_before_the_next_leads(stage: &Stage<'_>, disturbances: &dyn Disturbances) {
    let first = stage.elect("first").await;
    let direct = connect(&disturbances.url()).expect("the URL is valid");
    let electing = async {
        let second = stage.elect_by(&*direct, "second").await;
        (second, Instant::now())
    };
    let cutting = async {
        stage.renewing(&*first, sleep(stage.lease)).await;
        disturbances.cut();
        let cut = Instant::now();
        in_time("its time is over", first.ended()).await;
        cannot_renew(&*first).await;
        cut
    };
    let ((second, elected), cut) = tokio::join!(electing, cutting);
    assert!(elected > first.acts_until(), "the first one may not act when the second one leads");
    assert!(second.fence() > first.fence());
    let took = (elected - cut).as_secs_f64();
    stage.say(&format!("TAKEOVER after a cut: {took:.2} s, with a lease of {:?}", stage.lease));
    disturbances.heal();
    until_ok(|| second.resign()).await;
    assert!(first.renew().await.is_err(), "it is not led back");
}

/// The server whose address is the first one.
async fn a_server_that_is_killed_is_replaced_by_the_next_address(
    stage: &Stage<'_>,
    disturbances: &dyn Disturbances,
) {
    let leadership = stage.elect("first").await;
    if !disturbances.kill_first() {
        stage.say("there is only one server: nothing to see");
        return leadership.resign().await.expect("it resigns");
    }
    let killed = Instant::now();
    let renewed = until_ok(|| leadership.renew());
    tokio::select! {
        () = renewed => {}
        () = leadership.ended() => panic!("it goes on"),
    }
    stage.took("a renewal by another server", killed);
    let leader = until_ok(|| stage.coordinator.leader(&stage.name)).await;
    assert_eq!(leader.map(|leader| leader.fence), Some(leadership.fence()));
    until_ok(|| leadership.resign()).await;
    let next = stage.elect("second").await;
    assert!(next.fence() > leadership.fence());
    next.resign().await.expect("it resigns");
    disturbances.restart();
}

async fn a_lost_quorum_elects_nobody_until_it_is_back(stage: &Stage<'_>, disturbances: &dyn Disturbances) {
    let first = stage.elect("first").await;
    disturbances.kill_most();
    cannot_renew(&*first).await;
    in_time("its time is over", first.ended()).await;
    let campaign = stage.campaign("second");
    let refused = in_time("a campaign fails", stage.coordinator.campaign(&campaign)).await.err();
    assert!(matches!(refused, Some(CoordinatorError::Unavailable(_))), "{refused:?}");
    disturbances.restart();
    let restarted = Instant::now();
    let second = stage.elect("second").await;
    stage.took("a leader is elected once the servers are back", restarted);
    assert!(second.fence() > first.fence());
    second.resign().await.expect("it resigns");
}

/// All servers are killed and started again with their data, under a leader.
async fn the_fence_grows_over_a_restart_of_all_servers(stage: &Stage<'_>, disturbances: &dyn Disturbances) {
    let first = stage.elect("first").await;
    disturbances.kill_all();
    disturbances.restart();
    // If that was quick, it still leads: both are fine. Nobody else leads before its time is over.
    let second = stage.elect("second").await;
    assert!(Instant::now() > first.acts_until(), "the first one may not act when the second one leads");
    assert!(second.fence() > first.fence());
    second.resign().await.expect("it resigns");
    let third = stage.elect("third").await;
    assert!(third.fence() > second.fence());
    third.resign().await.expect("it resigns");
}
