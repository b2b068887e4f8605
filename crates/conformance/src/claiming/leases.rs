//! Sessions: renewed, silent, forgiven. Their attempts are lost when the lease ends.

use windlass_core::{Command, Millis};
use windlass_store::{
    Claimed, EXTENSIONS_MAX, LostClaim, Outcome, PollState, SessionId, SessionRenewal, TaskChange,
    WorkerState,
};

use crate::{
    World,
    history::line,
    topic,
    world::{LEASE, attempt, work},
};

topic![
    what_a_silent_session_has_is_lost_once_its_lease_ends,
    what_is_lost_is_told_until_it_is_settled,
    a_session_that_is_heard_of_keeps_what_it_has,
    a_session_may_say_goodbye_early,
    everybody_is_forgiven,
    nobody_is_forgiven_too_often_in_a_row,
    no_more_is_told_lost_than_asked_for,
    sessions_are_listed_with_what_they_say_and_have,
    what_was_given_back_is_not_lost,
    a_claim_is_taken_from_a_live_session_that_still_has_it,
    a_loss_does_not_hold_when_the_session_was_heard_of_since,
    a_loss_does_not_hold_when_the_claim_is_not_the_sessions_any_more,
    the_end_of_an_earlier_poll_does_not_shorten_a_lease,
    what_is_heard_beside_an_open_poll_keeps_the_lease,
    an_opening_that_comes_after_the_end_does_not_count,
];

async fn what_a_silent_session_has_is_lost_once_its_lease_ends(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..3 {
        world.submit(&flow).await;
    }
    let silent = world.session(1).await;
    let mut claimed = world.claim(silent, 2).await;
    world.pass(Millis(LEASE.0 - 1));
    let alive = world.session(2).await;
    world.claim_one(alive).await;
    assert!(world.lost().await.is_empty());
    world.pass(Millis(1));
    let mut lost = world.lost().await;
    lost.sort_by_key(|claimed| claimed.id);
    claimed.sort_by_key(|claimed| claimed.id);
    assert_eq!(lost, claimed);
}

async fn what_is_lost_is_told_until_it_is_settled(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let silent = world.session(1).await;
    let claimed = world.claim_one(silent).await;
    world.pass(LEASE);
    let other = world.session(2).await;
    assert_eq!(world.lost().await, std::slice::from_ref(&claimed));
    assert!(world.claim(other, 9).await.is_empty(), "only the rules make it ready again");
    assert_eq!(world.lost().await, std::slice::from_ref(&claimed));
    world.apply(id, Command::Lose(attempt(&claimed))).await;
    assert!(world.lost().await.is_empty());
    let again = world.claim_one(other).await;
    assert_eq!(again.id.attempt, 2);
    assert_eq!(world.load(id).await.task.state.steps[0].forward.deaths, 1);
}

async fn a_session_that_is_heard_of_keeps_what_it_has(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    let session = world.session(1).await;
    world.claim_one(session).await;
    for _ in 0..4 {
        world.pass(Millis(LEASE.0 - 1));
        assert!(world.lost().await.is_empty());
        world.renew(session).await;
    }
    // Also when it is renewed late, but before the loss was decided.
    world.pass(Millis(LEASE.0 + 1));
    assert_eq!(world.lost().await.len(), 1);
    world.renew(session).await;
    assert!(world.lost().await.is_empty());
}

async fn a_session_may_say_goodbye_early(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    let session = world.session(1).await;
    world.claim_one(session).await;
    // A worker that keeps a poll open has one second after the poll is closed.
    world.renew_with(session, Millis(1_000), None).await;
    world.pass(Millis(999));
    assert!(world.lost().await.is_empty());
    world.pass(Millis(1));
    assert_eq!(world.lost().await.len(), 1);
}

async fn everybody_is_forgiven(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..2 {
        world.submit(&flow).await;
    }
    let (one, other) = (world.session(1).await, world.session(2).await);
    world.claim_one(one).await;
    world.claim_one(other).await;
    world.renew_with(other, Millis(2 * LEASE.0), None).await;
    world.pass(Millis(LEASE.0 + 5_000));
    let now = world.now;
    world.store().forgive(now).await.expect("forgiving succeeds");
    assert!(world.lost().await.is_empty());
    world.pass(Millis(LEASE.0 - 1));
    assert!(world.lost().await.is_empty(), "a full new lease, and never a shorter one than before");
    world.pass(Millis(1));
    assert_eq!(world.lost().await.len(), 2);
}

async fn nobody_is_forgiven_too_often_in_a_row(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..2 {
        world.submit(&flow).await;
    }
    let (silent, heard) = (world.session(1).await, world.session(2).await);
    world.claim_one(silent).await;
    world.claim_one(heard).await;
    for _ in 0..EXTENSIONS_MAX {
        world.pass(LEASE);
        let now = world.now;
        world.store().forgive(now).await.expect("forgiving succeeds");
        assert!(world.lost().await.is_empty());
    }
    world.session(2).await;
    world.pass(LEASE);
    let now = world.now;
    world.store().forgive(now).await.expect("forgiving succeeds");
    let lost: Vec<SessionId> = world.lost().await.into_iter().map(|claimed| claimed.session).collect();
    assert_eq!(lost, [silent], "a renewed session starts a new count");
}

async fn no_more_is_told_lost_than_asked_for(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..6 {
        world.submit(&flow).await;
    }
    for number in 1..=3 {
        let session = world.session(number).await;
        world.claim(session, 2).await;
    }
    world.pass(LEASE);
    let now = world.now;
    let lost = world.store().lost(now, 4).await.expect("asking what is lost succeeds");
    assert_eq!(lost.len(), 4);
    assert_eq!(world.lost().await.len(), 6);
}

async fn sessions_are_listed_with_what_they_say_and_have(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..3 {
        world.submit(&flow).await;
    }
    let worker = WorkerState {
        name: "north".into(),
        host: "host-1".into(),
        version: "1.2".into(),
        attached: true,
        modules: vec![work()],
    };
    let session = SessionId(5);
    world.renew_with(session, LEASE, Some(worker.clone())).await;
    let claimed: Vec<Claimed> = world.claim(session, 2).await;
    world.pass(Millis(1_000));
    // It sends no new worker state.
    world.renew_with(session, LEASE, None).await;
    let quiet = world.session(4).await;
    let mut states = sessions(&mut world).await;
    states.sort_by_key(|state| state.session);
    assert_eq!(states.iter().map(|state| state.session).collect::<Vec<_>>(), [quiet, session]);
    assert_eq!((states[0].running, states[1].running), (0, 2));
    assert_eq!(states[1].worker, worker);
    assert_eq!(states[1].last_seen_at, world.now.wall);
    world.succeed(&claimed[0], None).await;
    let running: u32 = sessions(&mut world).await.iter().map(|state| state.running).sum();
    assert_eq!(running, 1);
    world.pass(Millis(10));
    world.renew(quiet).await;
    world.pass(Millis(LEASE.0 - 10));
    let states = sessions(&mut world).await;
    assert_eq!(states.iter().map(|state| state.session).collect::<Vec<_>>(), [quiet]);
}

/// The change that makes a claimed attempt lost, as decided now.
async fn loss(world: &mut World, claimed: &Claimed) -> TaskChange {
    let mut change = world.decide(claimed.id.task, &Command::Lose(attempt(claimed))).await;
    let (key, claim, session) = (claimed.id.key, claimed.id.claim, claimed.session);
    change.lost.push(LostClaim { key, claim, session, over_at: Some(world.now.mono) });
    change
}

async fn a_claim_is_taken_from_a_live_session_that_still_has_it(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    let mut change = loss(&mut world, &claimed).await;
    change.lost[0].over_at = None;
    let mut of_another = change.clone();
    of_another.lost[0].session = SessionId(9_999);
    assert_eq!(world.commit_one(of_another).await, Outcome::Heard);
    assert_eq!(world.load(id).await.claims.len(), 1);
    assert_eq!(world.commit_one(change).await, Outcome::Committed);
    let loaded = world.load(id).await;
    assert_eq!((loaded.claims.len(), loaded.task.state.steps[0].forward.deaths), (0, 1));
}

async fn a_loss_does_not_hold_when_the_session_was_heard_of_since(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.pass(LEASE);
    assert_eq!(world.lost().await.len(), 1);
    let late = loss(&mut world, &claimed).await;
    // Another server renews the session before that is committed.
    world.pass(Millis(130));
    world.renew(session).await;
    assert_eq!(world.commit_one(late).await, Outcome::Heard);
    let loaded = world.load(id).await;
    assert_eq!((loaded.claims.len(), loaded.task.state.steps[0].forward.deaths), (1, 0));
    world.pass(LEASE);
    let change = loss(&mut world, &claimed).await;
    assert_eq!(world.commit_one(change).await, Outcome::Committed);
    assert_eq!(world.load(id).await.task.state.steps[0].forward.deaths, 1);
}

async fn a_loss_does_not_hold_when_the_claim_is_not_the_sessions_any_more(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.pass(LEASE);
    let late = loss(&mut world, &claimed).await;
    world.release(session, claimed.id).await;
    let other = world.session(2).await;
    let again = world.claim_one(other).await;
    assert_eq!(again.id.attempt, claimed.id.attempt);
    assert_eq!(world.commit_one(late).await, Outcome::Heard);
    assert_eq!(world.load(id).await.claims[0].session, other);
}

/// How long an attached session of these cases may have no open poll.
const UNPOLLED: Millis = Millis(1_000);

/// Renews an attached session with this state of its poll.
async fn tell_poll(world: &mut World, session: SessionId, poll: PollState) {
    let renewal = SessionRenewal { session, poll, lease: LEASE, lease_unpolled: UNPOLLED, worker: None };
    world.renew_as(renewal).await;
}

/// An attached session that has claimed an attempt and polls.
async fn polling(world: &mut World) -> SessionId {
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    let session = SessionId(1);
    tell_poll(world, session, PollState::Open(5)).await;
    world.claim_one(session).await;
    session
}

async fn the_end_of_an_earlier_poll_does_not_shorten_a_lease(mut world: World) {
    let session = polling(&mut world).await;
    // It continues with another server, and the first one only sees that its connection is closed.
    tell_poll(&mut world, session, PollState::Open(6)).await;
    world.pass(Millis(10));
    tell_poll(&mut world, session, PollState::Closed(5)).await;
    world.pass(Millis(LEASE.0 - 1));
    assert!(world.lost().await.is_empty());
    tell_poll(&mut world, session, PollState::Closed(6)).await;
    world.pass(UNPOLLED);
    assert_eq!(world.lost().await.len(), 1);
}

async fn what_is_heard_beside_an_open_poll_keeps_the_lease(mut world: World) {
    let session = polling(&mut world).await;
    // Reports go to a server that has no poll of the session.
    tell_poll(&mut world, session, PollState::Unknown).await;
    world.pass(Millis(LEASE.0 - 1));
    assert!(world.lost().await.is_empty());
    tell_poll(&mut world, session, PollState::Closed(5)).await;
    tell_poll(&mut world, session, PollState::Unknown).await;
    world.pass(UNPOLLED);
    assert_eq!(world.lost().await.len(), 1);
}

async fn an_opening_that_comes_after_the_end_does_not_count(mut world: World) {
    let session = polling(&mut world).await;
    tell_poll(&mut world, session, PollState::Closed(7)).await;
    for late in [6, 7] {
        tell_poll(&mut world, session, PollState::Open(late)).await;
    }
    assert_eq!(sessions(&mut world).await.iter().map(|state| state.poll).collect::<Vec<_>>(), [7]);
    world.pass(UNPOLLED);
    assert_eq!(world.lost().await.len(), 1);
}

async fn sessions(world: &mut World) -> Vec<windlass_store::SessionState> {
    let now = world.now;
    world.store().sessions(now).await.expect("listing sessions succeeds")
}

async fn what_was_given_back_is_not_lost(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.release(session, claimed.id).await;
    world.pass(LEASE);
    assert!(world.lost().await.is_empty());
}
