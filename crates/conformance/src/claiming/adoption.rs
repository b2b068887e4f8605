//! Sessions that name their attempts, as after a restart of the server.

use windlass_core::{ActKey, Backoff, Command, Retry, TaskId};
use windlass_store::{
    Adoption::{self, Gone, Held},
    AttemptId, SessionId,
};

use crate::{
    World,
    history::line,
    topic,
    world::{LEASE, tasks_of},
};

topic![
    what_a_session_has_stays_its_own,
    what_another_session_has_is_gone,
    what_nobody_has_is_adopted,
    what_is_not_current_is_gone,
    what_was_adopted_is_lost_with_its_session,
    what_is_parked_or_delayed_is_gone,
];

pub(crate) async fn adopt(world: &mut World, session: SessionId, attempts: &[AttemptId]) -> Vec<Adoption> {
    let now = world.now;
    world.store().adopt(session, attempts, now).await.expect("an adoption succeeds")
}

async fn what_a_session_has_stays_its_own(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    let before = world.load(id).await.claims;
    assert_eq!(adopt(&mut world, session, &[claimed.id, claimed.id]).await, [Held, Held]);
    assert_eq!(world.load(id).await.claims, before);
    assert!(adopt(&mut world, session, &[]).await.is_empty());
}

async fn what_another_session_has_is_gone(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let (one, other) = (world.session(1).await, world.session(2).await);
    let early = world.claim_one(one).await;
    assert_eq!(adopt(&mut world, other, &[early.id]).await, [Gone]);
    world.release(one, early.id).await;
    let late = world.claim_one(other).await;
    assert_eq!(adopt(&mut world, one, &[early.id]).await, [Gone], "it was handed out again");
    assert_eq!(adopt(&mut world, one, &[late.id]).await, [Gone]);
    let claims = world.load(id).await.claims;
    assert_eq!(
        claims.iter().map(|claim| (claim.session, claim.number)).collect::<Vec<_>>(),
        [(other, late.id.claim)]
    );
}

async fn what_nobody_has_is_adopted(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let (id, next) = (world.submit(&flow).await, world.submit(&flow).await);
    let (one, other) = (world.session(1).await, world.session(2).await);
    let claimed = world.claim_one(one).await;
    assert_eq!(claimed.id.task, id);
    world.release(one, claimed.id).await;
    assert_eq!(adopt(&mut world, one, &[claimed.id]).await, [Held]);
    let claims = world.load(id).await.claims;
    assert_eq!(
        claims.iter().map(|claim| (claim.session, claim.number)).collect::<Vec<_>>(),
        [(one, claimed.id.claim)]
    );
    assert_eq!(tasks_of(&world.claim(other, 9).await), [next]);
    assert!(world.succeed(&claimed, None).await.is_ended());
}

async fn what_is_not_current_is_gone(mut world: World) {
    let mut flow = line("flow", 2);
    flow.steps[0].run.retry = Retry { max: 1, backoff: Backoff::None, ..Retry::default() };
    let flow = world.add_flow(flow).await;
    world.submit(&flow).await;
    let session = world.session(1).await;
    let first = world.claim_one(session).await;
    world.fail(&first).await;
    let coming = AttemptId { attempt: 3, ..first.id };
    let unknown = AttemptId { task: TaskId(7), ..first.id };
    let undo = AttemptId { key: ActKey::rollback(0), ..first.id };
    let beyond = AttemptId { key: ActKey::forward(9), ..first.id };
    assert_eq!(adopt(&mut world, session, &[first.id, coming, unknown, undo, beyond]).await, [Gone; 5]);
    let second = world.claim_one(session).await;
    assert_eq!(adopt(&mut world, session, &[first.id, second.id]).await, [Gone, Held]);
    world.succeed(&second, None).await;
    assert_eq!(adopt(&mut world, session, &[second.id]).await, [Gone]);
    let last = world.claim_one(session).await;
    assert!(world.succeed(&last, None).await.is_ended());
    assert_eq!(adopt(&mut world, session, &[last.id]).await, [Gone]);
}

async fn what_was_adopted_is_lost_with_its_session(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let (one, other) = (world.session(1).await, world.session(2).await);
    let claimed = world.claim_one(one).await;
    world.release(one, claimed.id).await;
    assert_eq!(adopt(&mut world, one, &[claimed.id]).await, [Held]);
    world.pass(LEASE);
    let lost = world.lost().await;
    assert_eq!(lost, std::slice::from_ref(&claimed));
    world.apply(id, Command::Lose(crate::world::attempt(&lost[0]))).await;
    world.renew(other).await;
    assert_eq!(world.claim_one(other).await.id.attempt, 2);
    world.renew(one).await;
    assert_eq!(adopt(&mut world, one, &[claimed.id]).await, [Gone]);
}

async fn what_is_parked_or_delayed_is_gone(mut world: World) {
    let mut flow = line("flow", 1);
    flow.steps[0].run.retry = Retry { max: 1, ..Retry::default() };
    let flow = world.add_flow(flow).await;
    let parked = world.submit(&flow).await;
    let delayed = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim(session, 9).await;
    assert_eq!(tasks_of(&claimed), [parked, delayed]);
    world.release(session, claimed[0].id).await;
    world.apply(parked, Command::Pause { by: None }).await;
    world.fail(&claimed[1]).await;
    assert_eq!(adopt(&mut world, session, &[claimed[0].id, claimed[1].id]).await, [Gone, Gone]);
}
