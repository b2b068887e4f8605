//! Handing out: which session gets which attempts, in which order, and the claims loaded afterwards.

use std::collections::BTreeSet;

use windlass_core::{ActState, Backoff, Command, Doer, Flow, Millis, Retry};
use windlass_store::{AttemptId, Change, Claim, ClaimRequest, Claimed, QueueChange, QueuePause, SessionId};

use crate::{
    World,
    history::{line, name},
    topic,
    world::{FIRST, claim_request, tasks_of, work},
};

topic![
    the_longest_waiting_goes_first,
    priority_counts_as_waiting_time,
    no_more_than_free_are_handed_out,
    modules_are_kept_apart,
    a_worker_that_lacks_commands_gets_others,
    several_requests_are_met_at_once,
    a_paused_queue_hands_out_nothing,
    what_is_handed_out_is_not_handed_out_again,
    claim_numbers_grow,
    a_released_attempt_is_ready_again_at_its_place,
    only_the_one_who_has_it_releases_it,
    what_is_withdrawn_is_not_handed_out,
    what_is_parked_is_handed_out_after_the_pause_at_its_place,
    a_new_attempt_ends_the_claim_on_the_old_one,
    claims_are_loaded_with_the_task,
    what_a_session_has_is_told,
    a_session_never_heard_of_gets_nothing,
    places_in_line_are_counted,
];

/// A flow with one step, run by `module.command`.
fn one_step(flow: &str, module: &str, command: &str) -> Flow {
    let mut flow = line(flow, 1);
    flow.steps[0].run.doer = Doer::Worker { module: name(module), command: name(command) };
    flow
}

async fn the_longest_waiting_goes_first(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let mut submitted = Vec::new();
    for _ in 0..5 {
        submitted.push(world.submit(&flow).await);
        world.pass(Millis(10));
    }
    let session = world.session(1).await;
    assert_eq!(tasks_of(&world.claim(session, 2).await), submitted[..2]);
    assert_eq!(tasks_of(&world.claim(session, 9).await), submitted[2..]);
    // Ready at the same time: the older task first.
    let twins = [world.submit(&flow).await, world.submit(&flow).await];
    assert_eq!(tasks_of(&world.claim(session, 9).await), twins);
}

async fn priority_counts_as_waiting_time(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let low = world.submit_with(&flow, |input| input.priority = -1).await;
    world.pass(Millis(1_000));
    let plain = world.submit(&flow).await;
    world.pass(Millis(59_000));
    let late = world.submit(&flow).await;
    world.pass(Millis(58_000));
    let high = world.submit_with(&flow, |input| input.priority = 2).await;
    // Ranks, in seconds: low 0 + 60, plain 1, late 60 (a younger task than low), high 118 - 120.
    let session = world.session(1).await;
    assert_eq!(tasks_of(&world.claim(session, 9).await), [high, plain, low, late]);
}

async fn no_more_than_free_are_handed_out(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..7 {
        world.submit(&flow).await;
    }
    let session = world.session(1).await;
    assert!(world.claim(session, 0).await.is_empty());
    assert!(world.claim_for(session, &[]).await.is_empty());
    assert_eq!(world.claim(session, 3).await.len(), 3);
    assert_eq!(world.claim(session, 100).await.len(), 4);
    assert!(world.claim(session, 100).await.is_empty());
}

async fn modules_are_kept_apart(mut world: World) {
    let disk = world.add_flow(one_step("on-disk", "disk", "do")).await;
    let net = world.add_flow(one_step("on-net", "net", "do")).await;
    let (on_disk, on_net) = (world.submit(&disk).await, world.submit(&net).await);
    let session = world.session(1).await;
    assert!(world.claim(session, 9).await.is_empty(), "nothing is for the module work");
    let claimed = world.claim_for(session, &[claim_request("net", 9)]).await;
    assert_eq!(tasks_of(&claimed), [on_net]);
    assert_eq!(claimed[0].module, name("net"));
    assert_eq!(tasks_of(&world.claim_for(session, &[claim_request("disk", 9)]).await), [on_disk]);
}

async fn a_worker_that_lacks_commands_gets_others(mut world: World) {
    let mut tasks = Vec::new();
    for command in ["make", "check", "pack"] {
        let flow = world.add_flow(one_step(command, "work", command)).await;
        tasks.push(world.submit(&flow).await);
        world.pass(Millis(10));
        tasks.push(world.submit(&flow).await);
        world.pass(Millis(10));
    }
    let session = world.session(1).await;
    let of = |commands: &[&str], free: u32| ClaimRequest {
        module: work(),
        commands: Some(commands.iter().map(|command| name(command)).collect()),
        free,
    };
    assert!(world.claim_for(session, &[of(&[], 9)]).await.is_empty());
    assert!(world.claim_for(session, &[of(&["other"], 9)]).await.is_empty());
    let claimed = world.claim_for(session, &[of(&["pack", "make"], 3)]).await;
    assert_eq!(tasks_of(&claimed), [tasks[0], tasks[1], tasks[4]]);
    assert_eq!(tasks_of(&world.claim_for(session, &[of(&["check"], 1)]).await), [tasks[2]]);
    assert_eq!(tasks_of(&world.claim(session, 9).await), [tasks[3], tasks[5]]);
}

async fn several_requests_are_met_at_once(mut world: World) {
    let disk = world.add_flow(one_step("on-disk", "disk", "do")).await;
    let net = world.add_flow(one_step("on-net", "net", "do")).await;
    for _ in 0..3 {
        world.submit(&disk).await;
        world.submit(&net).await;
    }
    let session = world.session(1).await;
    let claimed = world
        .claim_for(session, &[claim_request("disk", 2), claim_request("none", 5), claim_request("net", 1)])
        .await;
    let modules: Vec<&str> = claimed.iter().map(|claimed| claimed.module.as_str()).collect();
    assert_eq!(modules, ["disk", "disk", "net"]);
}

async fn a_paused_queue_hands_out_nothing(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let running = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    let waiting = world.submit(&flow).await;
    let paused = Some(QueuePause { at: world.now.wall, by: None });
    world.commit_one(Change::Queue(QueueChange { name: work(), paused })).await;
    assert!(world.claim(session, 9).await.is_empty());
    // Running attempts may end, and their successors wait.
    world.succeed(&claimed, None).await;
    assert!(world.claim(session, 9).await.is_empty());
    world.commit_one(Change::Queue(QueueChange { name: work(), paused: None })).await;
    let tasks: BTreeSet<_> = tasks_of(&world.claim(session, 9).await).into_iter().collect();
    assert_eq!(tasks, BTreeSet::from([running, waiting]));
}

async fn what_is_handed_out_is_not_handed_out_again(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let mut submitted = BTreeSet::new();
    for _ in 0..20 {
        submitted.insert(world.submit(&flow).await);
    }
    let (one, other) = (world.session(1).await, world.session(2).await);
    let mut claimed = Vec::new();
    for round in 0..20 {
        let session = if round % 2 == 0 { one } else { other };
        for claim in world.claim(session, 1 + round % 3).await {
            assert_eq!((claim.session, claim.at, claim.id.attempt), (session, world.now.wall, 1));
            claimed.push(claim.id.task);
        }
    }
    assert_eq!(claimed.len(), 20);
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), submitted);
}

async fn claim_numbers_grow(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..3 {
        world.submit(&flow).await;
    }
    let session = world.session(1).await;
    let mut last = 0;
    for _ in 0..4 {
        let claimed = world.claim(session, 9).await;
        assert_eq!(claimed.len(), 3);
        for claim in claimed {
            assert!(claim.id.claim > last, "{} after {last}", claim.id.claim);
            last = claim.id.claim;
            world.release(session, claim.id).await;
        }
    }
}

async fn a_released_attempt_is_ready_again_at_its_place(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let first = world.submit(&flow).await;
    world.pass(Millis(10));
    let second = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert_eq!(claimed.id.task, first);
    world.release(session, claimed.id).await;
    let loaded = world.load(first).await;
    assert!(loaded.claims.is_empty());
    assert!(loaded.handed_out.contains(&FIRST), "a worker may have had it");
    world.pass(Millis(10));
    let again = world.claim(session, 9).await;
    assert_eq!(tasks_of(&again), [first, second]);
    assert_eq!(again[0].id.attempt, 1);
    assert_eq!(again[0].at, world.now.wall);
}

async fn only_the_one_who_has_it_releases_it(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let (one, other) = (world.session(1).await, world.session(2).await);
    let early = world.claim_one(one).await;
    world.release(one, early.id).await;
    let claimed = world.claim_one(one).await;
    world.release(other, claimed.id).await;
    world.release(one, early.id).await;
    world.release(one, AttemptId { key: windlass_core::ActKey::rollback(0), ..claimed.id }).await;
    world.release(one, AttemptId { task: windlass_core::TaskId(7), ..claimed.id }).await;
    assert_eq!(world.load(id).await.claims.len(), 1);
    assert!(world.claim(other, 9).await.is_empty());
    // An ended attempt cannot be released.
    world.succeed(&claimed, None).await;
    world.release(one, claimed.id).await;
    assert!(world.claim(other, 9).await.is_empty());
}

async fn what_is_withdrawn_is_not_handed_out(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let ended = world.apply(id, Command::Cancel { by: None }).await;
    assert!(ended.is_ended() && !ended.state.steps[0].touched, "nobody had it");
    let session = world.session(1).await;
    assert!(world.claim(session, 9).await.is_empty());
}

async fn what_is_parked_is_handed_out_after_the_pause_at_its_place(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let held = world.submit(&flow).await;
    world.pass(Millis(10));
    let other = world.submit(&flow).await;
    world.apply(held, Command::Pause { by: None }).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert_eq!(claimed.id.task, other);
    assert!(world.claim(session, 9).await.is_empty());
    world.pass(Millis(10));
    let late = world.submit(&flow).await;
    world.apply(held, Command::Resume { by: None }).await;
    assert_eq!(tasks_of(&world.claim(session, 9).await), [held, late]);
}

async fn a_new_attempt_ends_the_claim_on_the_old_one(mut world: World) {
    let mut flow = line("flow", 1);
    flow.steps[0].run.retry = Retry { max: 3, backoff: Backoff::None, ..Retry::default() };
    let flow = world.add_flow(flow).await;
    let id = world.submit(&flow).await;
    let (one, other) = (world.session(1).await, world.session(2).await);
    let first = world.claim_one(one).await;
    world.fail(&first).await;
    let loaded = world.load(id).await;
    assert!(loaded.claims.is_empty());
    assert!(loaded.handed_out.is_empty(), "nobody had the second attempt");
    world.release(one, first.id).await;
    let second = world.claim_one(other).await;
    assert_eq!((second.id.attempt, second.session), (2, other));
    assert!(second.id.claim > first.id.claim);
}

async fn claims_are_loaded_with_the_task(mut world: World) {
    let mut flow = line("flow", 3);
    // Three steps that run side by side.
    for step in &mut flow.steps {
        step.after.clear();
    }
    let flow = world.add_flow(flow).await;
    let id = world.submit(&flow).await;
    let (one, other) = (world.session(1).await, world.session(2).await);
    let first = world.claim_one(one).await;
    world.pass(Millis(10));
    let second = world.claim_one(other).await;
    let expected = |claimed: &windlass_store::Claimed| Claim {
        key: claimed.id.key,
        attempt: 1,
        number: claimed.id.claim,
        session: claimed.session,
        at: claimed.at,
    };
    let mut loaded = world.load(id).await;
    loaded.claims.sort_by_key(|claim| claim.key);
    assert_eq!(loaded.claims, [expected(&first), expected(&second)]);
    assert_eq!(loaded.handed_out, BTreeSet::from([first.id.key, second.id.key]));
    world.succeed(&first, None).await;
    let loaded = world.load(id).await;
    assert_eq!(loaded.claims, [expected(&second)]);
    assert_eq!(loaded.handed_out, BTreeSet::from([second.id.key]));
    assert_eq!(loaded.task.state.steps[2].forward.state, ActState::Ready);
}

async fn what_a_session_has_is_told(mut world: World) {
    async fn held(world: &mut World, session: SessionId) -> Vec<Claimed> {
        let mut held = world.store().held(session).await.expect("asking what a session has succeeds");
        held.sort_by_key(|claimed| claimed.id.claim);
        held
    }
    let flow = world.add_flow(line("flow", 2)).await;
    for _ in 0..5 {
        world.submit(&flow).await;
    }
    let (one, other) = (world.session(1).await, world.session(2).await);
    assert_eq!(held(&mut world, one).await, [], "it took nothing yet");
    let claimed = world.claim(one, 4).await;
    world.pass(Millis(10));
    let others = world.claim(other, 1).await;
    assert_eq!((claimed.len(), others.len()), (4, 1));
    assert_eq!(held(&mut world, one).await, claimed);
    assert_eq!(held(&mut world, other).await, others);
    assert_eq!(held(&mut world, SessionId(77)).await, [], "nobody heard of it");
    world.release(one, claimed[0].id).await;
    world.succeed(&claimed[1], None).await;
    assert_eq!(held(&mut world, one).await, claimed[2..]);
    // It was reported as lost and made ready again, and another session has it now.
    let attempt = crate::world::attempt(&claimed[2]);
    world.apply(claimed[2].id.task, Command::Lose(attempt)).await;
    assert_eq!(held(&mut world, one).await, claimed[3..]);
    world.claim(other, 9).await;
    assert_eq!(held(&mut world, one).await, claimed[3..]);
    world.fail(&claimed[3]).await;
    assert_eq!(held(&mut world, one).await, []);
}

async fn a_session_never_heard_of_gets_nothing(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    assert!(world.claim(windlass_store::SessionId(77), 9).await.is_empty());
    let session = world.session(77).await;
    assert_eq!(world.claim(session, 9).await.len(), 1);
}

async fn places_in_line_are_counted(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let other = world.add_flow(one_step("other", "work", "other")).await;
    let mut tasks = Vec::new();
    for flow in [&flow, &other, &flow, &other] {
        tasks.push(world.submit(flow).await);
        world.pass(Millis(10));
    }
    for (before, task) in tasks.iter().enumerate() {
        let place = world.store().place(*task, FIRST).await.expect("asking for a place succeeds");
        assert_eq!(place, Some(before as u64));
    }
    let session = world.session(1).await;
    world.claim_one(session).await;
    world.apply(tasks[2], Command::Pause { by: None }).await;
    let mut places = Vec::new();
    for task in tasks {
        places.push(world.store().place(task, FIRST).await.expect("asking for a place succeeds"));
    }
    assert_eq!(places, [None, Some(0), None, Some(1)]);
    let unknown = windlass_core::TaskId(7);
    assert_eq!(world.store().place(unknown, FIRST).await.expect("asking for a place succeeds"), None);
}
