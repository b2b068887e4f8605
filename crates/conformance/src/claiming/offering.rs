//! Queue publishers: sessions that claim attempts only to offer them to workers.

use windlass_core::{ActState, Command, Millis, START_CODE, Wakeup};
use windlass_store::{
    ADOPTION_GRACE,
    Adoption::{self, Gone, Held},
    AttemptId, Change, Claimed, Due, Limit, LimitChange, Outcome, SessionId,
};

use crate::{
    World,
    history::{line, name},
    topic,
    world::{FIRST, LEASE, attempt},
};

topic![
    what_is_offered_does_not_time_out,
    what_is_offered_and_not_taken_in_time_has_failed,
    what_is_taken_meanwhile_was_taken_in_time,
    who_names_what_is_offered_has_it,
    what_is_offered_again_is_taken_under_the_token_that_went_out_first,
    what_a_worker_has_no_publisher_gets,
    what_is_offered_goes_back_without_having_begun,
    what_is_taken_from_a_publisher_is_lost_with_the_worker,
    a_publisher_goes_on_with_what_one_at_its_place_left_behind,
    what_is_offered_or_runs_afar_is_known_after_a_reopening,
    a_limited_queue_goes_on_after_a_reopening_with_nothing_but_offers,
];

const PUBLISHER: fn() -> SessionId = || SessionId::publisher("m", 7);

async fn adopt(world: &mut World, session: SessionId, id: AttemptId) -> Adoption {
    let now = world.now;
    world.store().adopt(session, &[id], now).await.expect("an adoption succeeds")[0]
}

/// An attempt that a queue publisher has claimed.
async fn offered(world: &mut World) -> Claimed {
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    world.renew(PUBLISHER()).await;
    world.claim_one(PUBLISHER()).await
}

async fn what_is_offered_does_not_time_out(mut world: World) {
    let offered = offered(&mut world).await;
    for _ in 0..100 {
        world.pass(Millis::from_secs(86_400));
        world.renew(PUBLISHER()).await;
    }
    assert_eq!(world.due().await, []);
    assert_eq!(world.load(offered.id.task).await.claims.len(), 1);
}

/// An attempt that a queue publisher has claimed, and that a worker must start within a minute.
async fn offered_for_a_minute(world: &mut World) -> Claimed {
    let mut flow = line("flow", 1);
    flow.steps[0].run.start_within = Some(Millis::from_secs(60));
    let flow = world.add_flow(flow).await;
    world.submit(&flow).await;
    world.renew(PUBLISHER()).await;
    let offered = world.claim_one(PUBLISHER()).await;
    world.pass(Millis::from_secs(60));
    world.renew(PUBLISHER()).await;
    offered
}

const WAKE: Command = Command::Wake(Wakeup::Act(FIRST));

async fn what_is_offered_and_not_taken_in_time_has_failed(mut world: World) {
    let offered = offered_for_a_minute(&mut world).await;
    assert_eq!(world.due().await, [Due::Wake { task: offered.id.task, wakeup: Wakeup::Act(FIRST) }]);
    let task = world.apply(offered.id.task, WAKE).await;
    let failure = task.state.steps[0].forward.failure.clone();
    assert_eq!(failure.map(|failure| failure.code), Some(START_CODE));
    assert_eq!(world.load(offered.id.task).await.claims, []);
    assert_eq!(world.store().held(PUBLISHER()).await.unwrap(), []);
    // Its message is still on the broker.
    let one = world.session(1).await;
    assert_eq!(adopt(&mut world, one, offered.id).await, Gone);
}

async fn what_is_taken_meanwhile_was_taken_in_time(mut world: World) {
    let offered = offered_for_a_minute(&mut world).await;
    let late = world.decide(offered.id.task, &WAKE).await;
    // It is offered again, which the earlier decision did not see.
    world.release(PUBLISHER(), offered.id).await;
    let again = world.claim_one(PUBLISHER()).await;
    assert_eq!(world.commit_one(late).await, Outcome::Conflict);
    let late = world.decide(offered.id.task, &WAKE).await;
    let one = world.session(1).await;
    assert_eq!(adopt(&mut world, one, again.id).await, Held);
    assert_eq!(world.commit_one(late).await, Outcome::Conflict);
    world.apply(offered.id.task, WAKE).await;
    let loaded = world.load(offered.id.task).await;
    assert_eq!(loaded.task.state.steps[0].forward.state, ActState::Ready, "the worker may end it");
    assert_eq!(loaded.claims.len(), 1);
    assert!(world.succeed(&Claimed { session: one, ..again }, None).await.is_ended());
}

async fn who_names_what_is_offered_has_it(mut world: World) {
    let offered = offered(&mut world).await;
    world.pass(Millis(600_000));
    world.renew(PUBLISHER()).await;
    let (one, other) = (world.session(1).await, world.session(2).await);
    assert_eq!(adopt(&mut world, one, offered.id).await, Held);
    assert_eq!(adopt(&mut world, other, offered.id).await, Gone, "a message that came twice");
    assert_eq!(adopt(&mut world, one, offered.id).await, Held, "a repeated adoption still has it");
    let claims = world.load(offered.id.task).await.claims;
    let taken = Claimed { session: one, at: world.now.wall, ..offered.clone() };
    assert_eq!((claims[0].session, claims[0].number, claims[0].at), (one, taken.id.claim, taken.at));
    assert_eq!(world.store().held(PUBLISHER()).await.unwrap(), []);
    assert_eq!(world.store().held(one).await.unwrap(), std::slice::from_ref(&taken));
    // Its timeout runs from its adoption.
    world.pass(Millis(59_999));
    assert_eq!(world.due().await, []);
    world.pass(Millis(1));
    assert_eq!(world.due().await, [Due::TimeOut(taken)]);
}

async fn what_is_offered_again_is_taken_under_the_token_that_went_out_first(mut world: World) {
    let first = offered(&mut world).await;
    world.release(PUBLISHER(), first.id).await;
    let again = world.claim_one(PUBLISHER()).await;
    assert!(again.id.claim > first.id.claim);
    let one = world.session(1).await;
    assert_eq!(adopt(&mut world, one, first.id).await, Held);
    let other = world.session(2).await;
    assert_eq!(adopt(&mut world, other, again.id).await, Gone);
    assert!(world.succeed(&Claimed { session: one, ..first }, None).await.is_ended());
}

async fn what_a_worker_has_no_publisher_gets(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    let session = world.session(1).await;
    world.renew(PUBLISHER()).await;
    let claimed = world.claim_one(session).await;
    assert_eq!(adopt(&mut world, PUBLISHER(), claimed.id).await, Gone);
    assert_eq!(world.claim(PUBLISHER(), 1).await, []);
}

async fn what_is_offered_goes_back_without_having_begun(mut world: World) {
    let offered = offered(&mut world).await;
    world.pass(LEASE);
    assert_eq!(world.lost().await, std::slice::from_ref(&offered), "a queue publisher that is gone");
    world.release(PUBLISHER(), offered.id).await;
    assert_eq!(world.lost().await, []);
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert_eq!((claimed.id.task, claimed.id.attempt), (offered.id.task, offered.id.attempt));
}

async fn what_is_taken_from_a_publisher_is_lost_with_the_worker(mut world: World) {
    let offered = offered(&mut world).await;
    let session = world.session(1).await;
    assert_eq!(adopt(&mut world, session, offered.id).await, Held);
    world.pass(LEASE);
    world.renew(PUBLISHER()).await;
    let lost = world.lost().await;
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].session, session);
    world.apply(offered.id.task, Command::Lose(attempt(&lost[0]))).await;
    let again = world.claim_one(PUBLISHER()).await;
    assert_eq!(again.id.attempt, offered.id.attempt + 1);
}

async fn a_publisher_goes_on_with_what_one_at_its_place_left_behind(mut world: World) {
    let offered = offered(&mut world).await;
    let (next, elsewhere) = (SessionId::publisher("m", 8), SessionId::publisher("n", 8));
    world.renew(next).await;
    world.renew(elsewhere).await;
    assert_eq!(adopt(&mut world, elsewhere, offered.id).await, Gone);
    assert_eq!(adopt(&mut world, next, offered.id).await, Held);
    assert_eq!(world.store().held(PUBLISHER()).await.unwrap(), []);
    let held = world.store().held(next).await.unwrap();
    assert_eq!(
        held.iter().map(|claimed| claimed.id).collect::<Vec<_>>(),
        [offered.id],
        "under the same claim"
    );
    let one = world.session(1).await;
    assert_eq!(adopt(&mut world, one, offered.id).await, Held);
}

async fn what_is_offered_or_runs_afar_is_known_after_a_reopening(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..4 {
        world.submit(&flow).await;
    }
    world.renew(PUBLISHER()).await;
    world.renew(SessionId::AFAR).await;
    let [offered, afar, ended, released] =
        <[Claimed; 4]>::try_from(world.claim(PUBLISHER(), 4).await).expect("there are four");
    assert_eq!(adopt(&mut world, SessionId::AFAR, afar.id).await, Held);
    world.release(PUBLISHER(), released.id).await;
    world.succeed(&ended, None).await;
    world.reopen().await;
    let mut claims = Vec::new();
    for claimed in [&offered, &afar, &ended, &released] {
        let of_task = world.load(claimed.id.task).await.claims;
        claims.push(of_task.iter().map(|claim| (claim.session, claim.number)).next());
    }
    let expected =
        [Some((PUBLISHER(), offered.id.claim)), Some((SessionId::AFAR, afar.id.claim)), None, None];
    assert_eq!(claims, expected, "sessions with the claims that were sent");
    let next = SessionId::publisher("m", 8);
    world.renew(next).await;
    assert_eq!(adopt(&mut world, next, offered.id).await, Held);
    assert_eq!(adopt(&mut world, next, afar.id).await, Gone, "it runs");
}

async fn a_limited_queue_goes_on_after_a_reopening_with_nothing_but_offers(mut world: World) {
    let (queue, command, per_key, starts) = (name("work"), None, false, None);
    let limit = Limit { name: name("a-limit"), queue, command, per_key, running: Some(9), starts };
    let change = LimitChange { name: limit.name.clone(), limit: Some(limit) };
    assert_eq!(world.commit_one(Change::Limit(change)).await, Outcome::Committed);
    let offered = offered(&mut world).await;
    world.reopen().await;
    world.pass(ADOPTION_GRACE);
    let flow = world.add_flow(line("other", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    assert_eq!(world.claim_one(session).await.id.task, id);
    assert_eq!(world.load(offered.id.task).await.claims.len(), 1, "it is still offered");
}
