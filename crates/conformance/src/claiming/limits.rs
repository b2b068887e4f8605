//! Limits, and turns between concurrency keys.

use std::sync::Arc;

use windlass_core::{Expression, Flow, Millis, TaskId, Wakeup, waiting};
use windlass_store::{
    ADOPTION_GRACE, Adoption, Change, ClaimRequest, Claimed, Limit, LimitChange, LimitState, Outcome,
    SessionId, Starts,
};

use super::adoption::adopt;
use crate::{
    World,
    history::{json, line, name},
    topic,
    world::{claim_request, tasks_of},
};

topic![
    keys_take_turns,
    attempts_without_a_key_take_turns_as_one,
    keys_that_keep_coming_hold_up_nobody,
    no_more_are_in_hands_than_a_limit_allows,
    a_limit_is_changed_and_removed_while_attempts_are_in_hands,
    a_limit_of_a_command_lets_the_others_go_before,
    a_limit_by_key_counts_each_key_for_itself,
    no_more_begin_in_a_span_than_a_limit_allows,
    what_was_given_back_did_not_begin,
    only_a_start_that_was_counted_is_taken_back,
    an_adopted_attempt_that_is_given_back_takes_no_other_start_with_it,
    what_keeps_an_attempt_back_is_told,
    limits_and_holders_are_there_after_a_reopening,
];

fn limit(running: Option<u32>) -> Limit {
    let (command, per_key, starts) = (None, false, None);
    Limit { name: name("a-limit"), queue: name("work"), command, per_key, running, starts }
}

async fn set(world: &mut World, limit: &Limit) {
    let change = LimitChange { name: limit.name.clone(), limit: Some(limit.clone()) };
    assert_eq!(world.commit_one(Change::Limit(change)).await, Outcome::Committed);
}

async fn states(world: &mut World) -> Vec<LimitState> {
    let now = world.now;
    world.store().limits(now).await.expect("listing limits succeeds")
}

/// Running and started attempts under the only limit.
async fn counts(world: &mut World) -> (u64, u64) {
    let states = states(world).await;
    assert_eq!(states.len(), 1);
    (states[0].running, states[0].started)
}

/// A flow of one step whose concurrency key is the parameter `tenant`.
async fn keyed_flow(world: &mut World) -> Arc<Flow> {
    let mut flow = line("keyed", 1);
    flow.steps[0].key = Some(Expression::compile("tenant").expect("an expression"));
    world.add_flow(flow).await
}

/// Submits tasks of these tenants, one letter each, in this order.
async fn submit_of(world: &mut World, flow: &Arc<Flow>, tenants: &str) -> Vec<(char, TaskId)> {
    let mut tasks = Vec::new();
    for tenant in tenants.chars() {
        world.pass(Millis(1));
        let params = json(&format!(r#"{{"tenant":"{tenant}"}}"#));
        tasks.push((tenant, world.submit_with(flow, |input| input.params = params).await));
    }
    tasks
}

/// The tenants of the claimed attempts, in their order.
async fn claim_of(
    world: &mut World,
    session: SessionId,
    tasks: &[(char, TaskId)],
    free: u32,
) -> (String, Vec<Claimed>) {
    let mut claimed = Vec::new();
    for _ in 0..free {
        claimed.extend(world.claim(session, 1).await);
    }
    let tenant = |id: TaskId| tasks.iter().find(|(_, task)| *task == id).map_or('?', |(tenant, _)| *tenant);
    (tasks_of(&claimed).into_iter().map(tenant).collect(), claimed)
}

async fn keys_take_turns(mut world: World) {
    let flow = keyed_flow(&mut world).await;
    let mut tasks = submit_of(&mut world, &flow, "aaaaabbc").await;
    let session = world.session(1).await;
    let last = tasks[7].1;
    let key = windlass_core::ActKey::forward(0);
    assert_eq!(world.store().place(last, key).await, Ok(Some(2)), "the first of each key go before it");
    assert_eq!(world.store().place(tasks[4].1, key).await, Ok(Some(7)), "and all before the last one");
    assert_eq!(claim_of(&mut world, session, &tasks, 4).await.0, "abca");
    tasks.extend(submit_of(&mut world, &flow, "d").await);
    let (rest, _) = claim_of(&mut world, session, &tasks, 9).await;
    assert_eq!(rest, "badaa", "a new attempt waits for the next round, which has one turn of each key");
}

async fn attempts_without_a_key_take_turns_as_one(mut world: World) {
    let (keyed, plain) = (keyed_flow(&mut world).await, world.add_flow(line("plain", 1)).await);
    let mut tasks = Vec::new();
    for _ in 0..4 {
        world.pass(Millis(1));
        tasks.push(('-', world.submit(&plain).await));
    }
    tasks.extend(submit_of(&mut world, &keyed, "aa").await);
    let session = world.session(1).await;
    assert_eq!(claim_of(&mut world, session, &tasks, 9).await.0, "-a-a--");
}

/// New concurrency keys arrive as fast as attempts are handed out, each greater than all before. Waiting attempts still
/// get their turns: those without a key, those of the smallest key, and those of an old one.
async fn keys_that_keep_coming_hold_up_nobody(mut world: World) {
    let (keyed, plain) = (keyed_flow(&mut world).await, world.add_flow(line("plain", 1)).await);
    let of = |key: &str| json(&format!(r#"{{"tenant":"{key}"}}"#));
    let session = world.session(1).await;
    let mut waiting = Vec::new();
    for round in 0..3 {
        world.pass(Millis(1));
        waiting.push(world.submit(&plain).await);
        for key in ["a", "order-000000"] {
            waiting.push(world.submit_with(&keyed, |input| input.params = of(key)).await);
        }
        world.submit_with(&keyed, |input| input.params = of(&format!("order-{:06}", round + 1))).await;
    }
    let mut started = Vec::new();
    for number in 10..70 {
        world.pass(Millis(1));
        let key = format!("order-{number:06}");
        world.submit_with(&keyed, |input| input.params = of(&key)).await;
        started.extend(tasks_of(&world.claim(session, 1).await));
    }
    assert_eq!(started.len(), 60, "there is always something to hand out");
    let places: Vec<_> =
        waiting.iter().map(|task| started.iter().position(|started| started == task)).collect();
    assert!(places.iter().all(Option::is_some), "{places:?}");
}

async fn no_more_are_in_hands_than_a_limit_allows(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..5 {
        world.submit(&flow).await;
    }
    set(&mut world, &limit(Some(2))).await;
    let session = world.session(1).await;
    let claimed = world.claim(session, 9).await;
    assert_eq!(claimed.len(), 2);
    assert!(world.claim(session, 9).await.is_empty());
    let held: Vec<_> = states(&mut world).await.remove(0).holders.into_iter().map(|h| h.claimed).collect();
    assert_eq!(held, claimed, "the holders are listed");
    world.succeed(&claimed[0], None).await;
    let next = world.claim(session, 9).await;
    assert_eq!(next.len(), 1, "an end makes room");
    world.release(session, next[0].id).await;
    assert_eq!(world.claim(session, 9).await.len(), 1, "and so does what is given back");
    assert_eq!(counts(&mut world).await, (2, 0));
}

async fn a_limit_is_changed_and_removed_while_attempts_are_in_hands(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..7 {
        world.submit(&flow).await;
    }
    let session = world.session(1).await;
    let claimed = world.claim(session, 3).await;
    set(&mut world, &limit(Some(2))).await;
    assert_eq!(counts(&mut world).await, (3, 0), "attempts in flight count already");
    world.succeed(&claimed[0], None).await;
    assert!(world.claim(session, 9).await.is_empty());
    world.succeed(&claimed[1], None).await;
    assert_eq!(world.claim(session, 9).await.len(), 1);
    set(&mut world, &limit(Some(4))).await;
    assert_eq!(world.claim(session, 9).await.len(), 2);
    assert_eq!(counts(&mut world).await, (4, 0));
    let gone = LimitChange { name: name("a-limit"), limit: None };
    assert_eq!(world.commit_one(Change::Limit(gone)).await, Outcome::Committed);
    assert!(states(&mut world).await.is_empty());
    assert_eq!(world.claim(session, 9).await.len(), 1);
}

async fn a_limit_of_a_command_lets_the_others_go_before(mut world: World) {
    let mut other = line("other", 1);
    other.steps[0].run.doer =
        windlass_core::Doer::Worker { module: name("work"), command: name("something-else") };
    let (flow, other) = (world.add_flow(line("flow", 1)).await, world.add_flow(other).await);
    for _ in 0..3 {
        world.submit(&flow).await;
    }
    let last = world.submit(&other).await;
    set(&mut world, &Limit { command: Some(name("do")), ..limit(Some(1)) }).await;
    let session = world.session(1).await;
    let only = ClaimRequest { commands: Some(vec![name("do")]), ..claim_request("work", 9) };
    assert_eq!(world.claim_for(session, &[only]).await.len(), 1);
    assert_eq!(tasks_of(&world.claim(session, 9).await), [last]);
}

async fn a_limit_by_key_counts_each_key_for_itself(mut world: World) {
    let (keyed, plain) = (keyed_flow(&mut world).await, world.add_flow(line("plain", 1)).await);
    let tasks = submit_of(&mut world, &keyed, "aaabbc").await;
    set(&mut world, &Limit { per_key: true, ..limit(Some(1)) }).await;
    let session = world.session(1).await;
    let (order, claimed) = claim_of(&mut world, session, &tasks, 9).await;
    assert_eq!(order, "abc");
    assert_eq!(counts(&mut world).await, (3, 0));
    for _ in 0..2 {
        world.submit(&plain).await;
    }
    assert_eq!(world.claim(session, 9).await.len(), 2, "what has no key is not counted by key");
    world.succeed(&claimed[1], None).await;
    assert_eq!(claim_of(&mut world, session, &tasks, 9).await.0, "b");
    world.release(session, claimed[0].id).await;
    assert_eq!(claim_of(&mut world, session, &tasks, 9).await.0, "a");
    set(&mut world, &Limit { per_key: true, ..limit(Some(2)) }).await;
    assert_eq!(claim_of(&mut world, session, &tasks, 9).await.0, "a");
}

async fn no_more_begin_in_a_span_than_a_limit_allows(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..9 {
        world.submit(&flow).await;
    }
    let starts = Some(Starts { count: 2, per: Millis(1_000) });
    set(&mut world, &Limit { starts, ..limit(None) }).await;
    let session = world.session(1).await;
    let first = world.claim(session, 1).await;
    world.pass(Millis(600));
    assert_eq!(world.claim(session, 9).await.len(), 1);
    world.succeed(&first[0], None).await;
    assert!(world.claim(session, 9).await.is_empty(), "an end makes no room");
    let state = states(&mut world).await.remove(0);
    assert_eq!((state.running, state.started), (1, 2));
    assert_eq!(state.next_start_at, Some(world.now.wall + Millis(400)));
    let now = world.now;
    if let Some(wake) = world.store().next_wake(now) {
        assert!(wake <= Millis(400), "waiting polls must be served again: {wake:?}");
    }
    world.pass(Millis(399));
    assert!(world.claim(session, 9).await.is_empty());
    world.pass(Millis(1));
    assert_eq!(world.claim(session, 9).await.len(), 1, "the first is a span ago");
    world.pass(Millis(600));
    assert_eq!(world.claim(session, 9).await.len(), 1, "and then the second");
    set(&mut world, &Limit { starts: Some(Starts { count: 3, per: Millis(1_000) }), ..limit(None) }).await;
    assert_eq!(world.claim(session, 9).await.len(), 1, "what began before a change counts after it");
}

async fn what_was_given_back_did_not_begin(mut world: World) {
    let flow = keyed_flow(&mut world).await;
    submit_of(&mut world, &flow, "aa").await;
    let starts = Some(Starts { count: 1, per: Millis(1_000) });
    set(&mut world, &Limit { starts, per_key: true, ..limit(None) }).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert!(world.claim(session, 1).await.is_empty());
    world.release(session, claimed.id).await;
    world.claim_one(session).await;
    assert!(world.claim(session, 1).await.is_empty());
    world.pass(Millis(1_000));
    world.claim_one(session).await;
}

async fn only_a_start_that_was_counted_is_taken_back(mut world: World) {
    let mut other = line("other", 1);
    other.steps[0].run.doer =
        windlass_core::Doer::Worker { module: name("work"), command: name("something-else") };
    let (other, flow) = (world.add_flow(other).await, world.add_flow(line("flow", 1)).await);
    let uncounted = world.submit(&other).await;
    for _ in 0..2 {
        world.submit(&flow).await;
    }
    let starts = Some(Starts { count: 1, per: Millis(1_000) });
    set(&mut world, &Limit { starts, command: Some(name("do")), ..limit(None) }).await;
    let session = world.session(1).await;
    // Both at the same time, and only the second one counts.
    let both = world.claim(session, 2).await;
    assert_eq!((both.len(), both[0].id.task), (2, uncounted));
    world.release(session, both[0].id).await;
    assert_eq!(tasks_of(&world.claim(session, 9).await), [uncounted]);
    assert_eq!(counts(&mut world).await, (1, 1));
    world.pass(Millis(1_000));
    assert_eq!(world.claim(session, 9).await.len(), 1, "the start is forgotten after its span");
}

/// A poll that the worker sent before it declined the attempt makes a server adopt it again.
async fn an_adopted_attempt_that_is_given_back_takes_no_other_start_with_it(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..2 {
        world.submit(&flow).await;
    }
    set(&mut world, &Limit { starts: Some(Starts { count: 2, per: Millis(1_000) }), ..limit(None) }).await;
    let session = world.session(1).await;
    // Both at the same time.
    let declined = world.claim(session, 2).await[0].id;
    world.release(session, declined).await;
    assert_eq!(counts(&mut world).await, (1, 1));
    assert_eq!(adopt(&mut world, session, &[declined]).await, [Adoption::Held]);
    world.release(session, declined).await;
    assert_eq!(counts(&mut world).await, (1, 1), "the other one began");
}

async fn what_keeps_an_attempt_back_is_told(mut world: World) {
    let flow = keyed_flow(&mut world).await;
    let tasks = submit_of(&mut world, &flow, "aab").await;
    set(&mut world, &Limit { per_key: true, ..limit(Some(1)) }).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    for (index, kept_back) in [(1, true), (2, false)] {
        let loaded = world.load(tasks[index].1).await;
        let wakeup = Wakeup::Act(windlass_core::ActKey::forward(0));
        let ready = waiting(&loaded.task, wakeup).and_then(|waiting| waiting.ready).expect("it is ready");
        let now = world.now;
        let limits = world.store().keeping_back(&ready, now).await.expect("asking succeeds");
        assert_eq!(limits.len(), usize::from(kept_back), "{index}");
        for state in limits {
            assert_eq!(state.running, 1);
            assert_eq!(state.holders[0].claimed, claimed);
            assert_eq!(state.holders[0].key.as_deref(), Some("a"));
        }
    }
}

async fn limits_and_holders_are_there_after_a_reopening(mut world: World) {
    let flow = keyed_flow(&mut world).await;
    let tasks = submit_of(&mut world, &flow, "aab").await;
    let set_to = Limit {
        command: Some(name("do")),
        starts: Some(Starts { count: 9, per: Millis::from_secs(5) }),
        per_key: true,
        ..limit(Some(1))
    };
    set(&mut world, &set_to).await;
    let gone = Limit { name: name("gone"), ..limit(Some(1)) };
    set(&mut world, &gone).await;
    let gone = LimitChange { name: gone.name, limit: None };
    assert_eq!(world.commit_one(Change::Limit(gone)).await, Outcome::Committed);
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.reopen().await;
    let session = world.session(1).await;
    if !world.keeps_claims() {
        let (early, _) = claim_of(&mut world, session, &tasks, 9).await;
        assert_eq!(early, "", "the attempts in flight are not known yet");
    }
    let now = world.now;
    world.store().adopt(session, &[claimed.id], now).await.expect("adopting succeeds");
    world.pass(ADOPTION_GRACE);
    assert_eq!(claim_of(&mut world, session, &tasks, 9).await.0, "b", "adopted attempts count");
    let states = states(&mut world).await;
    assert_eq!(states.iter().map(|state| &state.limit).collect::<Vec<_>>(), [&set_to]);
    assert_eq!(states[0].running, 2);
}
