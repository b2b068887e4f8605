//! Claiming with a commit: a store may do that or leave it to a separate claim; the same attempts are handed out.

use windlass_core::{Millis, Outcome as Ended};
use windlass_store::{
    Ask, Change, Claimed, Leave, Limit, LimitChange, Outcome, QueueChange, QueuePause, SessionId,
};

use crate::{
    World,
    history::{line, name},
    topic,
    world::{claim_request, report, tasks_of, work},
};

topic![
    what_waits_and_what_is_made_ready_is_claimed,
    nothing_of_a_paused_queue_is_claimed,
    no_more_is_claimed_than_a_limit_allows,
    what_was_committed_stands_though_nobody_knows_the_session,
];

/// Commits, and claims up to `free` attempts for the session with the commit, or else separately.
async fn commit_and_claim(
    world: &mut World,
    changes: Vec<Change>,
    session: SessionId,
    free: u32,
) -> (Vec<Outcome>, Vec<Claimed>) {
    let (asks, now) = ([Ask { session, claim_request: claim_request("work", free) }], world.now);
    let answers = world.store().commit_and_claim(changes, &asks, &Leave::default(), None, now).await;
    let (outcomes, mut claimed) = answers.expect("a commit succeeds");
    assert_eq!(claimed.len(), 1, "each who was asked for has an answer");
    let claimed = match claimed.remove(0) {
        Some(claimed) => claimed,
        None => world.claim(session, free).await,
    };
    (outcomes, claimed)
}

async fn what_waits_and_what_is_made_ready_is_claimed(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let first = world.submit(&flow).await;
    world.pass(Millis(1));
    let session = world.session(1).await;
    let change = world.new_task(&flow, |_| {});
    let second = change.task.id;
    let (outcomes, claimed) = commit_and_claim(&mut world, vec![change.into()], session, 9).await;
    assert_eq!((outcomes, tasks_of(&claimed)), (vec![Outcome::Committed], vec![first, second]));
    assert!(world.claim(session, 9).await.is_empty());
    assert_eq!(world.load(second).await.claims.len(), 1);
    // A report is accepted, and the next step is claimed with it.
    let done = world.decide(second, &report(&claimed[1], Ended::Succeeded(None))).await;
    let (outcomes, claimed) = commit_and_claim(&mut world, vec![done.into()], session, 9).await;
    assert_eq!((outcomes, tasks_of(&claimed)), (vec![Outcome::Committed], vec![second]));
    assert_eq!(claimed[0].id.key.step, 1);
}

async fn nothing_of_a_paused_queue_is_claimed(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let session = world.session(1).await;
    let paused = Some(QueuePause { at: world.now.wall, by: None });
    world.commit_one(Change::Queue(QueueChange { name: work(), paused })).await;
    let change = world.new_task(&flow, |_| {});
    let (outcomes, claimed) = commit_and_claim(&mut world, vec![change.into()], session, 9).await;
    assert_eq!((outcomes, claimed), (vec![Outcome::Committed], Vec::new()));
}

async fn no_more_is_claimed_than_a_limit_allows(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let session = world.session(1).await;
    let (command, per_key, starts) = (None, false, None);
    let limit = Limit { name: name("a-limit"), queue: work(), command, per_key, running: Some(1), starts };
    let change = LimitChange { name: limit.name.clone(), limit: Some(limit) };
    world.commit_one(Change::Limit(change)).await;
    let changes = [world.new_task(&flow, |_| {}), world.new_task(&flow, |_| {})];
    let (outcomes, claimed) = commit_and_claim(&mut world, changes.map(Into::into).into(), session, 9).await;
    assert_eq!((outcomes, claimed.len()), (vec![Outcome::Committed; 2], 1));
}

async fn what_was_committed_stands_though_nobody_knows_the_session(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let change = world.new_task(&flow, |_| {});
    let id = change.task.id;
    let (outcomes, claimed) = commit_and_claim(&mut world, vec![change.into()], SessionId(99), 9).await;
    assert_eq!((outcomes, claimed), (vec![Outcome::Committed], Vec::new()));
    let session = world.session(1).await;
    assert_eq!(tasks_of(&world.claim(session, 9).await), [id]);
}
