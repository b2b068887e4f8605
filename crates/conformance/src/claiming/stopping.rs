//! Attempts that must stop: a session that has claimed one may end it, and no session can claim it any more. An attempt
//! without a claim is given up, since no worker would ever report its end.

use windlass_core::{ActKey, ActState, Attempt, Command, Millis, Wakeup};
use windlass_store::{ADOPTION_GRACE, Adoption, Claimed, Due, SessionId};

use crate::{World, history::line, topic, world::FIRST};

topic![
    what_is_to_stop_is_told_by_its_session,
    what_is_to_stop_stays_with_the_one_who_has_it,
    what_is_to_stop_is_given_up_when_it_is_given_back,
    what_is_overdue_is_given_up_when_it_is_given_back,
    what_is_to_stop_is_waited_for_after_a_reopening,
    what_an_operator_stops_is_told_by_its_session_and_made_again_after_the_resume,
];

/// Cancels a task while a session has claimed its first step.
async fn cancelled(world: &mut World) -> (SessionId, Claimed) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.apply(id, Command::Cancel { by: None }).await;
    (session, claimed)
}

fn give_up(claimed: &Claimed) -> Due {
    Due::GiveUp { task: claimed.id.task, key: claimed.id.key, attempt: claimed.id.attempt }
}

async fn settle(world: &mut World, claimed: &Claimed) {
    let attempt = Attempt { key: claimed.id.key, number: claimed.id.attempt, started_at: None };
    world.apply(claimed.id.task, Command::Lose(attempt)).await;
}

async fn to_stop(world: &mut World, sessions: &[u128]) -> Vec<Claimed> {
    let sessions: Vec<SessionId> = sessions.iter().copied().map(SessionId).collect();
    world.store().to_stop(&sessions).await.expect("asking what is to stop succeeds")
}

async fn what_is_to_stop_is_told_by_its_session(mut world: World) {
    let (_, claimed) = cancelled(&mut world).await;
    let flow = world.load(claimed.id.task).await.task.flow.clone();
    world.submit(&flow).await;
    let other = world.session(2).await;
    world.claim_one(other).await;
    assert_eq!(to_stop(&mut world, &[2, 1, 3]).await, std::slice::from_ref(&claimed));
    assert_eq!(to_stop(&mut world, &[2]).await, [], "an active attempt need not stop");
    assert_eq!(to_stop(&mut world, &[]).await, []);
    world.succeed(&claimed, None).await;
    assert_eq!(to_stop(&mut world, &[1]).await, [], "it has ended");
}

async fn what_is_to_stop_stays_with_the_one_who_has_it(mut world: World) {
    let (session, claimed) = cancelled(&mut world).await;
    assert_eq!(world.load(claimed.id.task).await.claims.len(), 1);
    assert_eq!(world.due().await, []);
    let now = world.now;
    let adopted = world.store().adopt(session, &[claimed.id], now).await.expect("an adoption succeeds");
    assert_eq!(adopted, [Adoption::Held]);
    let task = world.succeed(&claimed, None).await;
    assert_eq!(task.state.steps[0].undo.state, ActState::Ready);
    assert_eq!(world.claim_one(session).await.id.key, ActKey::rollback(0));
}

async fn what_is_to_stop_is_given_up_when_it_is_given_back(mut world: World) {
    let (session, claimed) = cancelled(&mut world).await;
    world.release(session, claimed.id).await;
    assert!(world.claim(session, 9).await.is_empty(), "no session can claim it any more");
    assert_eq!(world.store().place(claimed.id.task, FIRST).await.expect("asking for a place succeeds"), None);
    assert_eq!(world.due().await, [give_up(&claimed)]);
    assert_eq!(world.due().await, [give_up(&claimed)], "it stays due until it is settled");
    settle(&mut world, &claimed).await;
    assert_eq!(world.due().await, []);
    assert_eq!(world.claim_one(session).await.id.key, ActKey::rollback(0));
}

async fn what_is_overdue_is_given_up_when_it_is_given_back(mut world: World) {
    let mut flow = line("flow", 1);
    flow.steps[0].run.deadline = Some(Millis::from_secs(5));
    let flow = world.add_flow(flow).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    crate::claiming::overlooked::lose_first(&mut world, session).await;
    let claimed = world.claim_one(session).await;
    world.pass(Millis::from_secs(5));
    world.apply(id, Command::Wake(Wakeup::Act(FIRST))).await;
    assert_eq!(world.due().await, []);
    world.release(session, claimed.id).await;
    assert_eq!(world.due().await, [give_up(&claimed)]);
    assert!(world.claim(session, 9).await.is_empty());
    settle(&mut world, &claimed).await;
    assert_eq!(world.load(id).await.task.state.steps[0].forward.state, ActState::Failed);
}

async fn what_is_to_stop_is_waited_for_after_a_reopening(mut world: World) {
    let (session, named) = cancelled(&mut world).await;
    let flow = world.load(named.id.task).await.task.flow.clone();
    let id = world.submit(&flow).await;
    let unnamed = world.claim_one(session).await;
    world.apply(id, Command::Cancel { by: None }).await;
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
        assert_eq!(world.due().await, [give_up(&unnamed)]);
    }
    assert!(world.claim(session, 9).await.is_empty());
    let task = world.succeed(&named, None).await;
    assert_eq!(task.state.steps[0].undo.state, ActState::Ready);
}

async fn what_an_operator_stops_is_told_by_its_session_and_made_again_after_the_resume(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let first = world.claim_one(session).await;
    world.apply(id, Command::Pause { by: None }).await;
    assert_eq!(to_stop(&mut world, &[1]).await, [], "a pause lets it end");
    world.apply(id, Command::Stop { by: None }).await;
    assert_eq!(to_stop(&mut world, &[1]).await, std::slice::from_ref(&first));
    assert_eq!(world.load(id).await.claims.len(), 1, "it stays with the session until it has ended");
    assert_eq!(world.claim(session, 9).await, []);
    world.fail(&first).await;
    assert_eq!(to_stop(&mut world, &[1]).await, []);
    assert_eq!(world.claim(session, 9).await, [], "the task is paused");
    world.apply(id, Command::Resume { by: None }).await;
    let second = world.claim_one(session).await;
    assert_eq!(second.id.attempt, 2);
    world.apply(id, Command::Stop { by: None }).await;
    world.release(session, second.id).await;
    assert_eq!(world.due().await, [give_up(&second)], "no worker would report its end");
    settle(&mut world, &second).await;
    let act = world.load(id).await.task.state.steps[0].forward.clone();
    assert_eq!((act.state, act.attempt, act.failures, act.deaths), (ActState::Parked, 3, 0, 0));
}
