//! Cases of elections: one leads, and the next one leads as soon as it may.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{
    Register, Rival, Subject,
    stage::{Stage, elect, in_some_round, in_time, renew, resign, until_ok},
    topic,
};
use crate::{Campaign, CoordinatorError, connect};

topic!(
    dyn Subject:
    one_leads_at_a_time,
    the_next_leads_after_a_resignation,
    the_next_leads_after_a_kill,
    two_may_have_the_same_id,
    names_are_independent,
    an_address_that_is_down_is_skipped,
    an_abandoned_campaign_ends,
    a_withdrawn_campaign_leaves_nothing_behind,
    what_is_invalid_is_refused,
);

/// Candidates compete, and each leads several times.
async fn one_leads_at_a_time(stage: &Stage<'_>, _: &dyn Subject) {
    const CANDIDATES: usize = 4;
    const TERMS: usize = 3;
    let (leading, register) = (AtomicUsize::new(0), Register::default());
    let compete = async |candidate: usize| {
        for _ in 0..TERMS {
            let leadership = stage.elect(&format!("candidate-{candidate}")).await;
            assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "one leads at a time");
            assert!(register.write(leadership.fence()), "fences grow from leader to leader");
            tokio::task::yield_now().await;
            assert!(Instant::now() < leadership.acts_until(), "a new leader has time to act");
            assert!(register.write(leadership.fence()), "nobody else has led meanwhile");
            leading.fetch_sub(1, Ordering::SeqCst);
            resign(&*leadership).await;
            assert!(Instant::now() >= leadership.acts_until(), "who resigned does not act");
        }
    };
    in_time("all have led", join_all((0..CANDIDATES).map(compete))).await;
    let mut written = register.written();
    assert_eq!(written.len(), CANDIDATES * TERMS * 2);
    written.dedup();
    assert_eq!(written.len(), CANDIDATES * TERMS, "each term has a fence of its own");
}

async fn the_next_leads_after_a_resignation(stage: &Stage<'_>, _: &dyn Subject) {
    let round = async || {
        let first = stage.elect("first").await;
        let resigning = async {
            // The other one waits by then; if not, it is elected just as well.
            stage.renewing(&*first, sleep(stage.lease / 2)).await;
            let (resigned, until) = (Instant::now(), first.acts_until());
            resign(&*first).await;
            (resigned, until)
        };
        let (second, (resigned, until)) = tokio::join!(
            async {
                let second = stage.elect("second").await;
                (second, Instant::now())
            },
            resigning
        );
        assert!(second.1 > resigned, "the second one leads after the first one");
        assert!(second.0.fence() > first.fence());
        let took = second.1 - resigned;
        stage.say(&format!("TAKEOVER after a resignation: {:.0} ms", took.as_secs_f64() * 1e3));
        resign(&*second.0).await;
        second.1 < until
    };
    in_some_round("the second candidate leads before the lease expires", round).await;
}

async fn the_next_leads_after_a_kill(stage: &Stage<'_>, _: &dyn Subject) {
    let round = async || {
        let mut rival = Rival::start(stage.url, &stage.campaign("rival"));
        let (fence, mut rival) = on_thread(move || (rival.leads(), rival)).await;
        let electing = async {
            let leadership = stage.elect("heir").await;
            (leadership, Instant::now())
        };
        let killing = async {
            // The rival has renewed by then. It still leads, unless a busy machine has delayed a renewal.
            sleep(stage.lease).await;
            let acts = rival.acts();
            rival.kill();
            (acts, Instant::now())
        };
        let ((heir, elected), (acts, killed)) = tokio::join!(electing, killing);
        assert!(heir.fence() > fence);
        if acts.is_some() {
            assert_eq!(acts, Some(fence));
            assert!(elected > killed, "nobody leads beside a living leader");
            let took = (elected - killed).as_secs_f64();
            stage.say(&format!("TAKEOVER after a kill: {took:.2} s, with a lease of {:?}", stage.lease));
        }
        resign(&*heir).await;
        acts.is_some()
    };
    in_some_round("the rival still leads after a lease", round).await;
}

async fn two_may_have_the_same_id(stage: &Stage<'_>, _: &dyn Subject) {
    let first = stage.elect("twin").await;
    let waiting = stage.elect("twin");
    tokio::pin!(waiting);
    let both = stage.renewing(&*first, async {
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("two lead with one id"),
            () = sleep(stage.lease) => {}
        }
    });
    both.await;
    let (second, ()) = tokio::join!(waiting, resign(&*first));
    assert!(second.fence() > first.fence());
    resign(&*second).await;
}

/// Also names that are folders of one another.
async fn names_are_independent(stage: &Stage<'_>, _: &dyn Subject) {
    let inner = Campaign { name: format!("{}/inner", stage.name), ..stage.campaign("inner") };
    let inner = elect(&*stage.coordinator, &inner).await;
    let outer = stage.elect("outer").await;
    let leader = stage.leader().await;
    assert_eq!(leader.map(|leader| leader.id).as_deref(), Some("outer"));
    renew(&*inner).await;
    resign(&*inner).await;
    resign(&*outer).await;
}

async fn an_address_that_is_down_is_skipped(stage: &Stage<'_>, _: &dyn Subject) {
    // Nobody listens on the first one.
    let url = stage.url.replacen("://", "://127.0.0.1:1,", 1);
    let coordinator = connect(&url).expect("the URL is valid");
    let leadership = stage.elect_by(&*coordinator, "first").await;
    renew(&*leadership).await;
    let leader = until_ok(|| coordinator.leader(&stage.name)).await;
    assert_eq!(leader.map(|leader| leader.fence), Some(leadership.fence()));
    resign(&*leadership).await;
    let nowhere = stage.url.split("://").next().unwrap_or_default();
    let coordinator = connect(&format!("{nowhere}://127.0.0.1:1,127.0.0.1:2")).expect("the URL is valid");
    let error = coordinator.leader(&stage.name).await.expect_err("nobody answers");
    assert!(matches!(error, CoordinatorError::Unavailable(_)), "{error}");
}

/// A candidate that stops waiting stands in nobody's way for longer than its lease.
async fn an_abandoned_campaign_ends(stage: &Stage<'_>, _: &dyn Subject) {
    let first = stage.elect("first").await;
    let campaign = stage.campaign("abandons");
    let campaigning = until_ok(|| stage.coordinator.campaign(&campaign));
    let abandoned = tokio::time::timeout(stage.lease / 4, campaigning).await;
    assert!(abandoned.is_err(), "the first one still leads");
    resign(&*first).await;
    let resigned = Instant::now();
    let third = stage.elect("third").await;
    stage.took("the candidate behind an abandoned one leads", resigned);
    assert!(third.fence() > first.fence());
    resign(&*third).await;
}

/// A candidate that is withdrawn stands in nobody's way at all.
async fn a_withdrawn_campaign_leaves_nothing_behind(stage: &Stage<'_>, _: &dyn Subject) {
    let round = async || {
        let first = stage.elect("first").await;
        let campaign = stage.campaign("withdraws");
        let withdrawn = async {
            let waits = || Box::pin(sleep(stage.lease / 4));
            let waiting = until_ok(|| stage.coordinator.campaign_until(&campaign, waits()));
            in_time("it withdraws", waiting).await
        };
        let (won, withdrew) = stage.renewing(&*first, async { (withdrawn.await, Instant::now()) }).await;
        assert!(won.is_none(), "the first one still leads");
        resign(&*first).await;
        let third = stage.elect("third").await;
        let took = withdrew.elapsed();
        assert!(third.fence() > first.fence());
        resign(&*third).await;
        // The withdrawn candidate renewed its entry at most lease / 6 earlier, and an entry lasts at least lease * 2 / 3.
        took < stage.lease / 2
    };
    in_some_round("the third candidate does not wait for the withdrawn candidate's entry", round).await;
}

async fn what_is_invalid_is_refused(stage: &Stage<'_>, _: &dyn Subject) {
    for campaign in [
        Campaign { name: "a//b".to_owned(), ..stage.campaign("a") },
        Campaign { lease: Duration::from_millis(500), ..stage.campaign("a") },
        stage.campaign(""),
    ] {
        assert!(matches!(stage.coordinator.check(&campaign), Err(CoordinatorError::Invalid(_))));
        let refused = stage.coordinator.campaign(&campaign).await.err();
        assert!(matches!(refused, Some(CoordinatorError::Invalid(_))), "{refused:?}");
    }
    assert_eq!(stage.coordinator.check(&stage.campaign("a")), Ok(()));
}

/// Runs what blocks beside this runtime.
pub(super) async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    in_time("a rival answers", tokio::task::spawn_blocking(work)).await.expect("it does not panic")
}
