//! Changes decided without knowing that a session had claimed an attempt meanwhile. The rules depend on claims, so such
//! a change conflicts, and its result differs when it is decided again.

use windlass_core::{ActKey, ActState, Backoff, Command, DEADLINE_CODE, Millis, Pause, Retry, Wakeup};
use windlass_store::{Change, Outcome, SessionId};

use crate::{World, history::line, topic, world::FIRST};

topic![
    a_pause_does_not_park_what_was_taken_meanwhile,
    a_cancel_does_not_withdraw_what_was_taken_meanwhile,
    a_deadline_does_not_fail_what_was_taken_meanwhile,
    a_failure_beside_it_does_not_withdraw_what_was_taken_meanwhile,
    a_change_that_leaves_the_attempt_alone_is_no_conflict,
    a_report_of_what_was_taken_is_no_conflict,
    a_claim_stays_with_its_attempt_when_the_wait_is_replaced,
    a_report_by_whoever_had_it_before_is_a_conflict,
    a_cancel_does_not_withdraw_what_was_given_back_meanwhile,
];

async fn a_pause_does_not_park_what_was_taken_meanwhile(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let pause = world.decide(id, &Command::Pause { by: None }).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert_eq!(world.commit_one(pause).await, Outcome::Conflict);
    let paused = world.apply(id, Command::Pause { by: None }).await;
    assert_eq!(paused.state.steps[0].forward.state, ActState::Ready, "the worker may end it");
    let loaded = world.load(id).await;
    assert_eq!(loaded.claims.len(), 1);
    let task = world.succeed(&claimed, None).await;
    assert_eq!(task.state.steps[1].forward.state, ActState::Parked);
    assert_eq!(task.state.pause, Pause::Held);
}

async fn a_cancel_does_not_withdraw_what_was_taken_meanwhile(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let cancel = world.decide(id, &Command::Cancel { by: None }).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert_eq!(world.commit_one(cancel).await, Outcome::Conflict);
    let cancelled = world.apply(id, Command::Cancel { by: None }).await;
    assert!(!cancelled.is_ended(), "it waits for the worker");
    let task = world.succeed(&claimed, None).await;
    assert_eq!(task.state.steps[0].undo.state, ActState::Ready);
}

/// The worker that gave it back may have begun it.
async fn a_cancel_does_not_withdraw_what_was_given_back_meanwhile(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let cancel = world.decide(id, &Command::Cancel { by: None }).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.release(session, claimed.id).await;
    assert_eq!(world.commit_one(cancel).await, Outcome::Conflict);
    let cancelled = world.apply(id, Command::Cancel { by: None }).await;
    assert_eq!(cancelled.state.steps[0].undo.state, ActState::Ready, "it is rolled back");
}

/// Loses the first attempt with its worker: the deadline of the next attempt runs.
pub(crate) async fn lose_first(world: &mut World, session: SessionId) {
    let claimed = world.claim_one(session).await;
    world.apply(claimed.id.task, Command::Lose(crate::world::attempt(&claimed))).await;
}

async fn a_deadline_does_not_fail_what_was_taken_meanwhile(mut world: World) {
    let mut flow = line("flow", 1);
    flow.steps[0].run.deadline = Some(Millis::from_secs(5));
    let flow = world.add_flow(flow).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    lose_first(&mut world, session).await;
    world.pass(Millis::from_secs(6));
    let wake = Command::Wake(Wakeup::Act(FIRST));
    let late = world.decide(id, &wake).await;
    let session = world.session(1).await;
    world.claim_one(session).await;
    assert_eq!(world.commit_one(late).await, Outcome::Conflict);
    let task = world.apply(id, wake).await;
    let act = &task.state.steps[0].forward;
    assert!(act.overdue && act.state == ActState::Ready, "the worker must stop, its end is awaited");
    assert_eq!(act.failure.as_ref().map(|failure| failure.code), Some(DEADLINE_CODE));
}

async fn a_failure_beside_it_does_not_withdraw_what_was_taken_meanwhile(mut world: World) {
    let mut flow = line("flow", 2);
    flow.steps[1].after.clear();
    let flow = world.add_flow(flow).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let first = world.claim_one(session).await;
    let failure = world.decide(id, &crate::world::report(&first, crate::world::failed())).await;
    assert_eq!(failure.task.state.steps[1].forward.state, ActState::Idle);
    let second = world.claim_one(session).await;
    assert_eq!(world.commit_one(failure).await, Outcome::Conflict);
    let task = world.fail(&first).await;
    assert_eq!(task.state.steps[1].forward.state, ActState::Ready);
    let task = world.succeed(&second, None).await;
    assert_eq!(task.state.steps[1].undo.state, ActState::Ready);
}

async fn a_change_that_leaves_the_attempt_alone_is_no_conflict(mut world: World) {
    let mut flow = line("flow", 2);
    flow.steps[1].after.clear();
    flow.steps[0].run.retry = Retry { max: 1, backoff: Backoff::None, ..Retry::default() };
    let flow = world.add_flow(flow).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let first = world.claim_one(session).await;
    let retry = world.decide(id, &crate::world::report(&first, crate::world::failed())).await;
    let second = world.claim_one(session).await;
    assert_eq!(world.commit_one(retry).await, Outcome::Committed);
    let claims = world.load(id).await.claims;
    assert_eq!(claims.iter().map(|claim| claim.key).collect::<Vec<_>>(), [second.id.key]);
}

async fn a_report_of_what_was_taken_is_no_conflict(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    let change = world.decide(id, &crate::world::report(&claimed, crate::world::failed())).await;
    let lines = Change::Logs(Vec::new());
    assert_eq!(world.commit(vec![change.into(), lines]).await, vec![Outcome::Committed; 2]);
    assert_eq!(world.load(id).await.claims, []);
    let undo = world.claim_one(session).await;
    assert_eq!(undo.id.key, ActKey::rollback(0));
    let lost = world.apply(id, Command::Lose(crate::world::attempt(&undo))).await;
    assert_eq!(lost.state.steps[0].undo.attempt, 2);
}

async fn a_claim_stays_with_its_attempt_when_the_wait_is_replaced(mut world: World) {
    let mut flow = line("flow", 1);
    flow.steps[0].run.deadline = Some(Millis::from_secs(5));
    flow.on_failure = windlass_core::OnFailure::Hold;
    let flow = world.add_flow(flow).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    lose_first(&mut world, session).await;
    world.claim_one(session).await;
    world.pass(Millis::from_secs(6));
    assert_eq!(world.due().await.len(), 1);
    world.apply(id, Command::Wake(Wakeup::Act(FIRST))).await;
    assert!(world.due().await.is_empty(), "the deadline is over");
    assert_eq!(world.load(id).await.claims.len(), 1);
    assert!(world.claim(session, 9).await.is_empty(), "the session has it");
    let queues = world.store().queues().await.expect("reading queues succeeds");
    assert_eq!((queues[0].ready, queues[0].running), (0, 1));
}

async fn a_report_by_whoever_had_it_before_is_a_conflict(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let (one, other) = (world.session(1).await, world.session(2).await);
    let before = world.claim_one(one).await;
    let mut late = world.decide(id, &crate::world::report(&before, crate::world::failed())).await;
    late.reported.push((before.id.key, before.id.claim));
    world.release(one, before.id).await;
    let after = world.claim_one(other).await;
    assert_eq!(world.commit_one(late).await, Outcome::Conflict);
    let mut report = world.decide(id, &crate::world::report(&after, crate::world::failed())).await;
    report.reported.push((after.id.key, after.id.claim));
    assert_eq!(world.commit_one(report).await, Outcome::Committed);
}
