//! Cases of fences and of the leader's own clock: late effects are refused, and nobody leads too early.

use std::time::Instant;

use tokio::time::sleep;

use super::{
    Register, Rival, Subject,
    electing::on_thread,
    stage::{Stage, in_time, resign, until_answered},
    topic,
};
use crate::CoordinatorError;

topic!(
    dyn Subject:
    a_late_effect_of_a_paused_leader_is_refused,
    the_fence_grows_without_rivals,
    the_fence_grows_after_a_deletion,
    renewals_keep_the_leadership,
    who_does_not_renew_stops_before_the_next_leads,
);

/// The leader is paused in the middle of an effect.
async fn a_late_effect_of_a_paused_leader_is_refused(stage: &Stage<'_>, _: &dyn Subject) {
    let mut rival = Rival::start(stage.url, &stage.campaign("rival"));
    let (fence, mut rival) = on_thread(move || (rival.leads(), rival)).await;
    let register = Register::default();
    assert!(register.write(rival.acts().expect("it leads")));
    rival.pause();
    rival.begin_late_effect();
    let heir = stage.elect("heir").await;
    assert!(register.write(heir.fence()));
    rival.resume();
    let late = rival.late_effect();
    assert_eq!(late, fence);
    assert!(!register.write(late), "the late effect is refused");
    assert_eq!(rival.acts(), None, "it stops on its own clock, whether the coordinator answers or not");
    assert_eq!(register.written(), [fence, heir.fence()]);
    resign(&*heir).await;
}

/// Nothing is left in the coordinator between two of these terms.
async fn the_fence_grows_without_rivals(stage: &Stage<'_>, _: &dyn Subject) {
    let mut fences = Vec::new();
    for _ in 0..5 {
        let leadership = stage.elect("alone").await;
        fences.push(leadership.fence());
        resign(&*leadership).await;
    }
    assert!(fences.is_sorted_by(|earlier, later| earlier < later), "{fences:?}");
}

/// An operator deletes the keys under a leader.
async fn the_fence_grows_after_a_deletion(stage: &Stage<'_>, subject: &dyn Subject) {
    let first = stage.elect("first").await;
    subject.delete(&stage.name);
    in_time("the end is noticed", first.ended()).await;
    assert!(Instant::now() >= first.acts_until(), "who knows of the end does not act");
    let error = first.renew().await.expect_err("it has ended");
    assert!(matches!(error, CoordinatorError::Lost(_)), "{error}");
    let second = stage.elect("second").await;
    assert!(second.fence() > first.fence());
    subject.delete(&stage.name);
    let renewal = until_answered(|| second.renew());
    let error = in_time("a renewal notices the end", renewal).await.expect_err("it has ended");
    assert!(matches!(error, CoordinatorError::Lost(_)), "{error}");
    assert!(Instant::now() >= second.acts_until());
    let third = stage.elect("third").await;
    assert!(third.fence() > second.fence());
    resign(&*third).await;
}

async fn renewals_keep_the_leadership(stage: &Stage<'_>, _: &dyn Subject) {
    let first = stage.elect("first").await;
    let until = first.acts_until();
    let waiting = stage.elect("second");
    tokio::pin!(waiting);
    stage
        .renewing(&*first, async {
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("the second one leads beside the first one"),
                () = first.ended() => panic!("it goes on"),
                () = sleep(stage.lease * 2) => {}
            }
        })
        .await;
    assert!(first.acts_until() > until && first.acts_until() > Instant::now());
    resign(&*first).await;
    resign(&*waiting.await).await;
}

/// The leader's process lives and its connection is good: it only forgets to renew.
async fn who_does_not_renew_stops_before_the_next_leads(stage: &Stage<'_>, _: &dyn Subject) {
    let first = stage.elect("first").await;
    let (second, ()) = tokio::join!(
        async {
            let second = stage.elect("second").await;
            (second, Instant::now())
        },
        async {
            first.ended().await;
            assert!(Instant::now() >= first.acts_until());
        }
    );
    let margin = second.1.saturating_duration_since(first.acts_until());
    assert!(second.1 > first.acts_until(), "the first one may not act when the second one leads");
    stage.say(&format!("a leader stops {:.2} s before the next one leads", margin.as_secs_f64()));
    assert!(second.0.fence() > first.fence());
    resign(&*second.0).await;
}
