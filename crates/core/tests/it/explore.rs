//! Every way that small tasks can go, to a depth: all orders of what workers, clock and people do.
//!
//! States that differ only in what no rule looks at (absolute times, counts of events, texts) are taken as one.
//! [`World::apply`] checks after every transition what surrounds the task, the rules check their invariants,
//! and from every state reached the task must come to an end once workers succeed and an operator helps.

use std::{
    collections::{HashSet, VecDeque},
    time::Instant,
};

use windlass_core::{
    Act, ActState, Cause, DEATHS_MAX, Ending, LockOwner, Message, Phase, QueueState, Timestamp,
};

use crate::{
    story::play,
    world::{Move, World},
};

/// Deeper than any exploration here goes: all states there are.
const ALL: usize = usize::MAX;

/// More moves than any task here needs to its end when everything succeeds from some state on.
const MOVES_TO_THE_END: usize = 60;

#[test]
fn a_line() {
    let settings = "a: retry 1\n~b: retry 1, backoff none\nb: deadline 5s\nc: no rollback";
    explore("a line", &format!("flow a > b > c\n{settings}\naccept"), ALL, 20_000);
}

#[test]
fn a_line_that_holds() {
    let settings = "on_failure hold\nat 5s\nb: retry 1, deadline 5s\n~a: deadline 5s";
    explore("a line that holds", &format!("flow a > b\n{settings}\naccept"), ALL, 32_000);
}

/// All of it, faults of the engine aside, was 360,899 states when it was run once to its end: too many for
/// every day. Rollback is explored to its end by itself below.
#[test]
fn a_diamond() {
    explore("a diamond", "flow a > b c > d\naccept", 13, 44_000);
}

#[test]
fn a_diamond_on_its_way_back() {
    explore("a diamond, back", "flow a > b c > d\naccept\nok a\nok b\nok c\nfail d boom", ALL, 2400);
}

#[test]
fn a_fan_out_with_two_members() {
    let settings = "a: each list, parallel 1\nb: no rollback\ninput {\"list\":[1,2]}";
    explore("two members", &format!("flow a > b\n{settings}\naccept"), 14, 14_000);
}

#[test]
fn a_fan_out_with_two_members_on_its_way_back() {
    let settings = "a: each list\ninput {\"list\":[1,2]}";
    explore(
        "two members, back",
        &format!("flow a > b\n{settings}\naccept\nok a[1]\nok a[2]\nfinal b boom"),
        16,
        3500,
    );
}

#[test]
fn a_fan_out_that_holds() {
    let settings = "a: each list, on_partial 1, no rollback\non_failure hold\ninput {\"list\":[1,2]}";
    explore("two members that hold", &format!("flow a\n{settings}\naccept"), 12, 4700);
}

#[test]
fn a_join_that_continues() {
    let settings = "a: no rollback\nc: on_partial continue, no rollback";
    explore("a join that continues", &format!("flow a b > c\n{settings}\naccept"), 12, 16_000);
}

#[test]
fn a_line_in_an_exclusive_queue() {
    let settings = "exclusive orders\na: retry 1\nb: no rollback";
    explore("an exclusive queue", &format!("flow a > b\n{settings}\naccept"), 11, 9000);
}

#[test]
fn a_held_line_in_an_exclusive_queue() {
    let settings = "exclusive orders\non_failure hold\nat 5s\ndeadline 60s";
    explore("a held line in an exclusive queue", &format!("flow a > b\n{settings}\naccept"), 11, 10_000);
}

#[test]
fn a_signal_after_a_condition() {
    let settings =
        "a: when x == 1, no rollback\nb: signal go, deadline 5s\nc: no rollback, delay 1s\ndeadline 60s";
    explore("a signal", &format!("flow a > b > c\n{settings}\ninput {{\"x\":1}}\naccept"), 16, 1600);
}

/// What the rules can see of a world.
type Canonical = Vec<u8>;

/// Explores everything that can happen in up to `depth` moves after `story`. Fewer than `least` states mean that moves are
/// not made any more, or that states are taken as one that differ.
fn explore(name: &str, story: &str, depth: usize, least: usize) {
    let begun = Instant::now();
    let start = play(story);
    let mut seen: HashSet<Canonical> = HashSet::from([canonical(&start)]);
    let mut live: HashSet<Canonical> = HashSet::new();
    let mut open = VecDeque::from([(start, 0)]);
    let (mut transitions, mut deepest) = (0_usize, 0_usize);
    while let Some((world, moves)) = open.pop_front() {
        must_end(&world, &mut live);
        deepest = moves;
        if moves == depth {
            continue;
        }
        for next in world.moves() {
            let mut after = world.clone();
            after.play(next);
            transitions += 1;
            if seen.insert(canonical(&after)) {
                open.push_back((after, moves + 1));
            }
        }
    }
    println!(
        "{name}: {} states, {transitions} transitions to depth {deepest} in {:.1?}",
        seen.len(),
        begun.elapsed()
    );
    assert!(seen.len() >= least, "{name}: {} states, and there were {least}", seen.len());
}

/// Lets everything succeed from here on: the task must end, or come to a state from which it was seen to end.
fn must_end(world: &World, live: &mut HashSet<Canonical>) {
    let mut world = world.clone();
    let mut passed = Vec::new();
    for _ in 0..MOVES_TO_THE_END {
        let state = canonical(&world);
        if world.task.is_ended() || live.contains(&state) {
            live.extend(passed);
            return;
        }
        passed.push(state);
        let next = world.best_move().unwrap_or_else(|| panic!("nothing leads on from {:#?}", world.task));
        if let Some(outcome) = world.play(next) {
            let transition = outcome.unwrap_or_else(|rejection| panic!("{next:?} is refused: {rejection}"));
            assert!(
                next == Move::Hear || !transition.events.is_empty(),
                "{next:?} leads nowhere from {:#?}",
                world.task
            );
        }
    }
    panic!("no end in sight of {:#?}", world.task);
}

fn canonical(world: &World) -> Canonical {
    let state = &world.task.state;
    let mut bytes = vec![
        match state.phase {
            Phase::Scheduled => 0,
            Phase::Forward => 1,
            Phase::Backward => 2,
            Phase::Ended(Ending::Succeeded) => 3,
            Phase::Ended(Ending::RolledBack) => 4,
            Phase::Ended(Ending::Failed) => 5,
            Phase::Ended(Ending::Cancelled) => 6,
        },
        state.pause as u8,
        state.stuck.as_ref().map_or(0, |stuck| 1 + stuck.kind as u8),
        state.stuck.as_ref().and_then(|stuck| stuck.step).map_or(0, |step| 1 + small(step)),
        u8::from(matches!(state.cause, Some(Cause::Cancel { .. }))),
        u8::from(state.started_at.is_some()),
    ];
    bytes.push(small(state.signals.len()));
    let place = state.queue;
    bytes.extend(match place.state {
        QueueState::Out => [0, u8::from(place.turn > 0)],
        QueueState::Waiting => [1, 0],
        QueueState::Granted { .. } => [2, 0],
    });
    bytes.push(small(world.said.len()));
    bytes.extend(world.said.iter().map(|message| message_byte(world, message)));
    let queue = world.task.input.exclusive.as_ref().and_then(|queue| world.locks.get(queue));
    bytes.push(queue.map_or(0, |queue| 1 + u8::from(queue.holder.is_some()) + 2 * small(queue.waiting())));
    for step in &state.steps {
        bytes.push(u8::from(step.touched));
        let members = step.members.iter().flat_map(|members| members.iter());
        bytes.extend(members.map(|(_, member)| 2 + u8::from(member.touched)));
    }
    let ahead = world.task.deadline_at().map_or(u64::MAX, |deadline_at| (deadline_at - world.now).0);
    bytes.extend(ahead.to_le_bytes());
    for (key, act) in world.task.acts() {
        // Members come as they begin, so each says which it is.
        bytes.push(u8::from(key.is_member()) * (1 + small(key.member as usize)));
        // What is settled is never looked at again, but for why it failed.
        if act.is_satisfied() {
            bytes.extend([1, u8::from(act.attempt > 0)]);
            continue;
        }
        act_bytes(&mut bytes, act, world.now);
        // A deadline that is not written down yet counts from the claim.
        let since = world.held.get(&key).filter(|_| world.begins_deadline(key));
        bytes.extend(since.map_or(u64::MAX, |(_, since)| (world.now - *since).0).to_le_bytes());
        bytes.push(
            u8::from(world.held.contains_key(&key)) + 2 * u8::from(world.handed_out.contains_key(&key)),
        );
    }
    bytes
}

/// Whether a message of a lock arrives at a task that wants it.
fn message_byte(world: &World, message: &Message) -> u8 {
    let current = |owner: &LockOwner| world.task.queue_owner() == Some(*owner);
    match message {
        Message::Granted { owner, .. } => u8::from(current(owner)),
        Message::Seized { owner, .. } => 2 + u8::from(current(owner)),
        _ => 4,
    }
}

fn act_bytes(bytes: &mut Vec<u8>, act: &Act, now: Timestamp) {
    bytes.push(match act.state {
        ActState::Succeeded | ActState::Skipped => 1,
        ActState::Idle => 2,
        ActState::Ready => 3,
        ActState::Parked => 4,
        ActState::Delayed { .. } => 5,
        ActState::Failed => 6,
        ActState::Awaiting(_) => 7,
        ActState::Fanned => 8,
    });
    // Rules distinguish the first attempt from later ones, and count failures up to the retries and deaths to the most.
    bytes.extend([act.attempt.min(2) as u8, act.failures.min(3) as u8, act.deaths.min(DEATHS_MAX) as u8]);
    bytes.push(u8::from(act.overdue));
    let until = match act.state {
        ActState::Delayed { until } => Some(until),
        _ => None,
    };
    // A time that has come is the same however long ago it came.
    for time in [until, act.deadline_at, act.start_by()] {
        let ahead = time.map_or(u64::MAX, |time| (time - now).0);
        bytes.extend(ahead.to_le_bytes());
    }
}

fn small(number: usize) -> u8 {
    u8::try_from(number).expect("the flows here are small")
}
