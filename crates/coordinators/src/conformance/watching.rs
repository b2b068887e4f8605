//! Cases of observers: who leads, and when that changes.

use std::time::Duration;

use super::{
    Subject,
    stage::{PATIENCE, Stage, elect, in_time, resign, until_ok},
    topic,
};
use crate::{Campaign, Leader};

topic!(
    dyn Subject:
    shows_who_leads,
    wakes_when_the_leader_changes,
);

async fn shows_who_leads(stage: &Stage<'_>, _: &dyn Subject) {
    assert_eq!(stage.leader().await, None);
    let campaign = Campaign { value: "http://127.0.0.1:7700\nä".to_owned(), ..stage.campaign("server-1") };
    let leadership = elect(&*stage.coordinator, &campaign).await;
    let leader = stage.leader().await;
    let (id, value) = (campaign.id, campaign.value);
    assert_eq!(leader, Some(Leader { id, value, fence: leadership.fence() }));
    // Nothing changes.
    let seen = Some(leadership.fence());
    let waited = until_ok(|| stage.coordinator.watch(&stage.name, seen, Duration::from_millis(300))).await;
    assert_eq!(waited, leader);
    resign(&*leadership).await;
    assert_eq!(stage.leader().await, None);
}

async fn wakes_when_the_leader_changes(stage: &Stage<'_>, _: &dyn Subject) {
    let watch = async |seen: Option<u64>| {
        let watching = until_ok(|| stage.coordinator.watch(&stage.name, seen, PATIENCE * 2));
        in_time("the change is seen", watching).await
    };
    let (seen, first) = tokio::join!(watch(None), stage.elect("first"));
    assert_eq!(seen.map(|leader| leader.fence), Some(first.fence()));
    let (seen, ()) = tokio::join!(watch(Some(first.fence())), resign(&*first));
    assert_eq!(seen, None);
    let second = stage.elect("second").await;
    let seen = watch(Some(first.fence())).await;
    assert_eq!(seen.map(|leader| leader.fence), Some(second.fence()));
    resign(&*second).await;
}
