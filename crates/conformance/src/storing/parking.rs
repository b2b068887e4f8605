//! Attempts of a paused task: a session that has claimed one may end it, and no session can claim one before the
//! resume. An unclaimed attempt is due to be parked, so that the task comes to rest.

use windlass_core::{ActKey, ActState, Attempt, Command, Outcome, TaskStatus, task_status};
use windlass_store::{ADOPTION_GRACE, Adoption, Claimed, Due, Loaded, SessionId};

use crate::{
    World,
    history::{decide, line},
    topic,
    world::{FIRST, LEASE, attempt, report},
};

topic![
    what_runs_in_a_pause_stays_with_the_one_who_has_it,
    what_is_given_back_in_a_pause_is_parked_and_ready_again_on_resume,
    what_is_given_back_is_handed_out_again_when_the_task_was_resumed,
    what_is_given_back_before_the_pause_is_committed_is_parked,
    what_is_given_back_in_a_hold_of_the_engine_is_parked,
    what_is_to_stop_is_given_up_also_in_a_pause,
    what_is_taken_before_it_is_parked_stays_with_the_one_who_has_it,
    what_ran_in_a_pause_is_waited_for_after_a_reopening,
    what_ran_in_a_pause_is_waited_for_when_it_is_resumed_after_a_reopening,
    what_is_lost_in_a_pause_is_not_handed_out,
    what_becomes_ready_and_is_parked_in_one_change_is_not_handed_out,
];

/// Pauses a task while a session has claimed its first step.
pub(crate) async fn paused(world: &mut World) -> (SessionId, Claimed) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.apply(id, Command::Pause { by: None }).await;
    (session, claimed)
}

fn park(claimed: &Claimed) -> Due {
    Due::Park { task: claimed.id.task, key: claimed.id.key, attempt: claimed.id.attempt }
}

fn unstarted(claimed: &Claimed) -> Attempt {
    Attempt { key: claimed.id.key, number: claimed.id.attempt, started_at: None }
}

/// Parks a due attempt, as the engine does.
async fn settle(world: &mut World, claimed: &Claimed) {
    let task = world.apply(claimed.id.task, Command::Park(unstarted(claimed))).await;
    assert_eq!(task.act(claimed.id.key).map(|act| act.state), Some(ActState::Parked));
    assert_eq!(world.due().await, []);
}

async fn nobody_gets_it(world: &mut World, claimed: &Claimed) {
    let other = world.session(9).await;
    assert!(world.claim(other, 9).await.is_empty(), "nothing of a paused task is handed out");
    let place = world.store().place(claimed.id.task, claimed.id.key).await;
    assert_eq!(place.expect("asking for a place succeeds"), None);
    let queues = world.store().queues().await.expect("listing queues succeeds");
    assert_eq!(queues.iter().map(|queue| queue.ready).sum::<u64>(), 0);
}

async fn status(world: &mut World, claimed: &Claimed) -> TaskStatus {
    let loaded = world.load(claimed.id.task).await;
    task_status(&loaded.task, &loaded.held())
}

async fn what_runs_in_a_pause_stays_with_the_one_who_has_it(mut world: World) {
    let (session, claimed) = paused(&mut world).await;
    assert_eq!(world.load(claimed.id.task).await.claims.len(), 1);
    assert_eq!(world.due().await, []);
    let now = world.now;
    let adopted = world.store().adopt(session, &[claimed.id], now).await.expect("an adoption succeeds");
    assert_eq!(adopted, [Adoption::Held]);
    let task = world.succeed(&claimed, None).await;
    assert_eq!(task.state.steps[1].forward.state, ActState::Parked);
    assert!(world.claim(session, 9).await.is_empty());
}

async fn what_is_given_back_in_a_pause_is_parked_and_ready_again_on_resume(mut world: World) {
    let (session, claimed) = paused(&mut world).await;
    world.release(session, claimed.id).await;
    nobody_gets_it(&mut world, &claimed).await;
    assert_eq!(world.due().await, [park(&claimed)]);
    assert_eq!(world.due().await, [park(&claimed)], "it stays due until it is settled");
    assert_eq!(status(&mut world, &claimed).await, TaskStatus::Pausing);
    settle(&mut world, &claimed).await;
    assert_eq!(status(&mut world, &claimed).await, TaskStatus::Paused);
    nobody_gets_it(&mut world, &claimed).await;
    world.apply(claimed.id.task, Command::Resume { by: None }).await;
    let again = world.claim_one(session).await;
    assert_eq!((again.id.key, again.id.attempt), (claimed.id.key, claimed.id.attempt));
    assert!(again.id.claim > claimed.id.claim);
}

async fn what_is_given_back_is_handed_out_again_when_the_task_was_resumed(mut world: World) {
    let (session, claimed) = paused(&mut world).await;
    world.release(session, claimed.id).await;
    world.apply(claimed.id.task, Command::Resume { by: None }).await;
    assert_eq!(world.due().await, []);
    assert_eq!(world.claim_one(session).await.id.key, FIRST);
    world.apply(claimed.id.task, Command::Pause { by: None }).await;
    world.apply(claimed.id.task, Command::Resume { by: None }).await;
    assert!(world.claim(session, 9).await.is_empty(), "it is with the session");
}

async fn what_is_given_back_before_the_pause_is_committed_is_parked(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    let pause = world.decide(id, &Command::Pause { by: None }).await;
    world.release(session, claimed.id).await;
    world.commit_one(pause).await;
    nobody_gets_it(&mut world, &claimed).await;
    assert_eq!(world.due().await, [park(&claimed)]);
    settle(&mut world, &claimed).await;
}

async fn what_is_given_back_in_a_hold_of_the_engine_is_parked(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.apply(id, Command::Hold { message: "a count is off".into() }).await;
    world.release(session, claimed.id).await;
    nobody_gets_it(&mut world, &claimed).await;
    assert_eq!(world.due().await, [park(&claimed)]);
    settle(&mut world, &claimed).await;
    world.apply(id, Command::Resume { by: None }).await;
    world.claim_one(session).await;
}

async fn what_is_to_stop_is_given_up_also_in_a_pause(mut world: World) {
    let (session, claimed) = paused(&mut world).await;
    world.apply(claimed.id.task, Command::Cancel { by: None }).await;
    world.apply(claimed.id.task, Command::Pause { by: None }).await;
    world.release(session, claimed.id).await;
    let given_up = Due::GiveUp { task: claimed.id.task, key: FIRST, attempt: claimed.id.attempt };
    assert_eq!(world.due().await, [given_up]);
    nobody_gets_it(&mut world, &claimed).await;
    let task = world.apply(claimed.id.task, Command::Lose(unstarted(&claimed))).await;
    assert_eq!(task.state.steps[0].undo.state, ActState::Parked);
    assert_eq!(world.due().await, []);
    world.apply(claimed.id.task, Command::Resume { by: None }).await;
    assert_eq!(world.claim_one(session).await.id.key, ActKey::rollback(0));
}

async fn what_is_taken_before_it_is_parked_stays_with_the_one_who_has_it(mut world: World) {
    let (session, claimed) = paused(&mut world).await;
    world.release(session, claimed.id).await;
    let park = world.decide(claimed.id.task, &Command::Park(unstarted(&claimed))).await;
    // Its worker names it before that is committed.
    let now = world.now;
    let adopted = world.store().adopt(session, &[claimed.id], now).await.expect("an adoption succeeds");
    assert_eq!(adopted, [Adoption::Held]);
    assert_eq!(world.commit_one(park).await, windlass_store::Outcome::Conflict);
    assert_eq!(world.due().await, []);
    let task = world.succeed(&claimed, None).await;
    assert_eq!(task.state.steps[0].forward.state, ActState::Succeeded);
}

async fn what_ran_in_a_pause_is_waited_for_after_a_reopening(mut world: World) {
    let (session, named) = paused(&mut world).await;
    let flow = world.load(named.id.task).await.task.flow.clone();
    let id = world.submit(&flow).await;
    let unnamed = world.claim_one(session).await;
    world.apply(id, Command::Pause { by: None }).await;
    world.reopen().await;
    let session = world.session(1).await;
    let now = world.now;
    let adopted = world.store().adopt(session, &[named.id], now).await.expect("an adoption succeeds");
    assert_eq!(adopted, [Adoption::Held], "its end is still waited for");
    assert_eq!(world.due().await, []);
    world.pass(ADOPTION_GRACE);
    if world.keeps_claims() {
        assert_eq!(world.due().await, []);
    } else {
        assert_eq!(world.due().await, [park(&unnamed)]);
        nobody_gets_it(&mut world, &unnamed).await;
        settle(&mut world, &unnamed).await;
    }
    world.succeed(&named, None).await;
    assert!(world.claim(session, 9).await.is_empty());
}

async fn what_ran_in_a_pause_is_waited_for_when_it_is_resumed_after_a_reopening(mut world: World) {
    let (_, claimed) = paused(&mut world).await;
    world.reopen().await;
    let (session, other) = (world.session(1).await, world.session(2).await);
    world.apply(claimed.id.task, Command::Resume { by: None }).await;
    assert!(world.claim(other, 9).await.is_empty(), "its worker may come back and name it");
    let now = world.now;
    let adopted = world.store().adopt(session, &[claimed.id], now).await.expect("an adoption succeeds");
    assert_eq!(adopted, [Adoption::Held]);
    world.pass(ADOPTION_GRACE);
    assert_eq!(world.due().await, []);
    assert!(world.claim(other, 9).await.is_empty());
    world.succeed(&claimed, None).await;
    assert_eq!(world.claim_one(other).await.id.key, ActKey::forward(1));
}

async fn what_is_lost_in_a_pause_is_not_handed_out(mut world: World) {
    let (_, claimed) = paused(&mut world).await;
    world.pass(LEASE);
    assert_eq!(world.lost().await.len(), 1);
    let task = world.apply(claimed.id.task, Command::Lose(attempt(&claimed))).await;
    let act = &task.state.steps[0].forward;
    assert_eq!((act.state, act.attempt, act.deaths), (ActState::Parked, 2, 1));
    assert_eq!(world.due().await, []);
    nobody_gets_it(&mut world, &claimed).await;
}

async fn what_becomes_ready_and_is_parked_in_one_change_is_not_handed_out(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    let mut change = world.decide(id, &report(&claimed, Outcome::Succeeded(None))).await;
    let ready = Loaded::untouched(change.task.clone());
    let pause = decide(&ready, &Command::Pause { by: None }, world.now.wall).expect("the rules allow it");
    change.task = pause.task;
    change.events.extend(pause.events);
    change.waits.extend(pause.waits);
    assert_eq!(world.commit_one(change).await, windlass_store::Outcome::Committed);
    assert!(world.claim(session, 9).await.is_empty());
    assert_eq!(world.due().await, []);
    world.apply(id, Command::Resume { by: None }).await;
    assert_eq!(world.claim_one(session).await.id.key, ActKey::forward(1));
}
