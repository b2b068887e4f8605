//! Cases with failing servers and networks.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use super::{
    Disturbances,
    stage::{Stage, in_some_round, in_time, renew, resign, until_ok},
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

/// The stage with a longer lease. On a busy machine a client may take longer than the usual lease to reconnect, and the servers
/// may take longer to elect their own leader.
fn patient<'s>(stage: &Stage<'s>) -> Stage<'s> {
    stage.with_lease(stage.lease * 4)
}

async fn cannot_renew(leadership: &dyn Leadership) {
    let error = leadership.renew().await.expect_err("the coordinator is unavailable");
    assert!(matches!(error, CoordinatorError::Unavailable(_)), "{error}");
}

/// The network is gone for a moment.
async fn a_failed_renewal_does_not_end_the_leadership(stage: &Stage<'_>, disturbances: &dyn Disturbances) {
    let stage = &patient(stage);
    let leadership = stage.elect("first").await;
    renew(&*leadership).await;
    let until = leadership.acts_until();
    disturbances.cut();
    cannot_renew(&*leadership).await;
    assert_eq!(leadership.acts_until(), until, "a failed renewal changes nothing");
    disturbances.heal();
    let renewed = renew(&*leadership);
    tokio::select! {
        () = renewed => {}
        () = leadership.ended() => panic!("it goes on"),
    }
    // The first renewal after a break may only prove what the one before it began.
    sleep(stage.lease / 6).await;
    renew(&*leadership).await;
    assert!(leadership.acts_until() > until);
    resign(&*leadership).await;
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
            let begun = Cell::new(Instant::now());
            let renewed = until_ok(|| {
                begun.set(Instant::now());
                leadership.renew()
            });
            renewed.await;
            longest = longest.max(leadership.acts_until().saturating_duration_since(begun.get()));
            sleep(stage.lease / 12).await;
        }
        longest
    };
    let quick = bounds().await;
    disturbances.delay(delay);
    let round = async || {
        let slow = bounds().await;
        stage
            .say(&format!("bounds: {slow:?} with a delay of {delay:?} in each direction, {quick:?} without"));
        slow < quick + delay
    };
    in_some_round("the bound excludes the response time", round).await;
    disturbances.heal();
    resign(&*leadership).await;
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
    resign(&*second).await;
    assert!(first.renew().await.is_err(), "it is not led back");
}

/// The server whose address is the first one.
async fn a_server_that_is_killed_is_replaced_by_the_next_address(
    stage: &Stage<'_>,
    disturbances: &dyn Disturbances,
) {
    let stage = &patient(stage);
    let leadership = stage.elect("first").await;
    if !disturbances.kill_first() {
        stage.say("there is only one server: nothing to see");
        return resign(&*leadership).await;
    }
    let killed = Instant::now();
    let renewed = renew(&*leadership);
    tokio::select! {
        () = renewed => {}
        () = leadership.ended() => panic!("it goes on"),
    }
    stage.took("a renewal by another server", killed);
    let leader = stage.leader().await;
    assert_eq!(leader.map(|leader| leader.fence), Some(leadership.fence()));
    resign(&*leadership).await;
    let next = stage.elect("second").await;
    assert!(next.fence() > leadership.fence());
    resign(&*next).await;
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
    resign(&*second).await;
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
    resign(&*second).await;
    let third = stage.elect("third").await;
    assert!(third.fence() > second.fence());
    resign(&*third).await;
}
