//! The outbox: events to announce are stored with their change, in order, and stay until they are announced.

use std::slice::from_ref;

use windlass_core::{Command, Flow, Millis, TaskId};
use windlass_store::{Announced, Change, Outcome, Retention, SubmitKey, TaskChange, Unannounced};

use crate::{
    World,
    history::{json, line},
    storing::events::without_results,
    topic,
    world::report,
};

topic![
    what_is_announced_comes_with_its_change,
    changes_of_a_task_come_in_their_order,
    changes_of_one_commit_are_told_apart,
    what_is_not_to_be_announced_is_not_in_the_outbox,
    a_change_that_conflicts_leaves_nothing,
    what_was_announced_is_gone_for_good,
    what_is_not_in_the_outbox_may_have_been_announced,
    no_more_is_read_than_asked_for,
    a_task_stays_until_all_of_it_was_announced,
    a_task_that_nobody_announces_goes,
];

const DAY: Millis = Millis::from_secs(24 * 3600);

fn announcing(change: TaskChange) -> TaskChange {
    TaskChange { announces: true, ..change }
}

/// The outbox entry of a change.
fn told(change: &TaskChange) -> Unannounced {
    let events = without_results(change.events.iter().cloned());
    Unannounced { task: change.task.id, after: change.before, events }
}

async fn unannounced(world: &mut World) -> Vec<Unannounced> {
    let found = world.store().unannounced(TaskId::NONE, 1_000).await.expect("reading the outbox succeeds");
    let known = |told: Unannounced| Unannounced { events: without_results(told.events), ..told };
    found.into_iter().map(known).collect()
}

/// Commits the change that `command` makes of a task, with its announcement.
async fn announce(world: &mut World, id: TaskId, command: &Command) -> Unannounced {
    let change = announcing(world.decide(id, command).await);
    let told = told(&change);
    assert_eq!(world.commit_one(change).await, Outcome::Committed);
    told
}

/// Submits a task with its announcement.
async fn submit(world: &mut World, flow: &std::sync::Arc<Flow>) -> Unannounced {
    let change = announcing(world.new_task(flow, |_| {}));
    let told = told(&change);
    assert_eq!(world.commit_one(change).await, Outcome::Committed);
    told
}

async fn announced(world: &mut World, told: &[&Unannounced]) {
    let announced = told.iter().map(|told| told.announced()).collect();
    assert_eq!(world.commit_one(Change::Announced(announced)).await, Outcome::Committed);
}

async fn sweep(world: &mut World, keeps_unannounced: bool) {
    let retention = Retention { tasks: DAY, logs: DAY, audit: DAY, keeps_unannounced, messages_until: None };
    let now = world.now;
    for _ in 0..100 {
        if world.store().sweep(&retention, None, now, 100).await.expect("a sweep succeeds") == 0 {
            return;
        }
    }
    panic!("a sweep never ends");
}

async fn what_is_announced_comes_with_its_change(mut world: World) {
    assert_eq!(unannounced(&mut world).await, []);
    let flow = world.add_flow(line("flow", 1)).await;
    let told = submit(&mut world, &flow).await;
    assert!(!told.events.is_empty());
    assert_eq!(unannounced(&mut world).await, from_ref(&told));
    assert_eq!(unannounced(&mut world).await, from_ref(&told), "it stays until it was announced");
    world.reopen().await;
    assert_eq!(unannounced(&mut world).await, [told]);
}

async fn changes_of_a_task_come_in_their_order(mut world: World) {
    let flow = world.add_flow(line("flow", 12)).await;
    let first = submit(&mut world, &flow).await;
    let second = submit(&mut world, &flow).await;
    assert!(first.task < second.task);
    let session = world.session(1).await;
    let (mut of_first, mut of_second) = (vec![first], vec![second]);
    // More than nine events, alternating between tasks: neither text order nor commit order is the right order.
    for n in 0..10 {
        for claimed in world.claim(session, 2).await {
            let result = json(&format!(r#"{{"n": {n}}}"#));
            let done = report(&claimed, windlass_core::Outcome::Succeeded(Some(result)));
            let told = announce(&mut world, claimed.id.task, &done).await;
            let of = if claimed.id.task == of_first[0].task { &mut of_first } else { &mut of_second };
            of.push(told);
        }
    }
    assert_eq!((of_first.len(), of_second.len()), (11, 11));
    for of in [&of_first, &of_second] {
        let ends = of.iter().map(|told| told.after + told.events.len() as u64);
        let begins = of.iter().skip(1).map(|told| told.after);
        assert!(begins.eq(ends.take(10)), "without a gap");
        let events = world.store().events(of[0].task, 0, 1_000).await.expect("reading events succeeds");
        let events = without_results(events.into_iter().map(|(_, event)| event));
        assert!(of.iter().flat_map(|told| &told.events).eq(&events), "they are those of the history");
    }
    assert_eq!(unannounced(&mut world).await, [of_first, of_second].concat(), "the oldest task first");
}

async fn changes_of_one_commit_are_told_apart(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let new = announcing(world.new_task(&flow, |_| {}));
    let loaded = windlass_store::Loaded::untouched(new.task.clone());
    let (now, generation) = (world.now.wall, world.store().generation());
    let pause = crate::history::decide(&loaded, &Command::Pause { by: None }, now);
    let pause = announcing(TaskChange { generation, ..pause.expect("the rules allow it") });
    let new = TaskChange { generation, ..new };
    let told = [told(&new), told(&pause)];
    let outcomes = world.commit(vec![new.into(), pause.into()]).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Committed]);
    assert_eq!(unannounced(&mut world).await, told);
    announced(&mut world, &[&told[0]]).await;
    assert_eq!(unannounced(&mut world).await, told[1..]);
}

async fn what_is_not_to_be_announced_is_not_in_the_outbox(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    assert_eq!(unannounced(&mut world).await, []);
    let told = announce(&mut world, id, &Command::Pause { by: None }).await;
    assert_eq!(told.after, 2, "earlier events are not announced later");
    world.apply(id, Command::Resume { by: None }).await;
    assert_eq!(unannounced(&mut world).await, [told]);
}

async fn a_change_that_conflicts_leaves_nothing(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let key = Some(SubmitKey { scope: [1; 32], fingerprint: [1; 32] });
    let keyed = |change| TaskChange { submit_key: key.clone(), ..change };
    let first = keyed(world.new_task(&flow, |_| {}));
    let id = first.task.id;
    assert_eq!(world.commit_one(first).await, Outcome::Committed);
    let stale = announcing(world.decide(id, &Command::Cancel { by: None }).await);
    world.apply(id, Command::Pause { by: None }).await;
    let repeated = keyed(announcing(world.new_task(&flow, |_| {})));
    let outcomes = world.commit(vec![stale.into(), repeated.into()]).await;
    assert_eq!(outcomes, [Outcome::Conflict, Outcome::KeyTaken { task: id, fingerprint: [1; 32] }]);
    assert_eq!(unannounced(&mut world).await, []);
}

async fn what_was_announced_is_gone_for_good(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let first = submit(&mut world, &flow).await;
    let second = submit(&mut world, &flow).await;
    let paused = announce(&mut world, first.task, &Command::Pause { by: None }).await;
    announced(&mut world, &[&first, &second]).await;
    assert_eq!(unannounced(&mut world).await, from_ref(&paused));
    world.reopen().await;
    assert_eq!(unannounced(&mut world).await, [paused]);
    let events = world.store().events(first.task, 0, 10).await.expect("reading events succeeds");
    assert_eq!(events.len() as u64, world.load(first.task).await.task.state.events, "the history stays");
}

async fn what_is_not_in_the_outbox_may_have_been_announced(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let told = submit(&mut world, &flow).await;
    let named = told.announced();
    let others = [Announced { after: named.after + 1, ..named }, Announced { task: TaskId(7), ..named }];
    assert_eq!(world.commit_one(Change::Announced(others.to_vec())).await, Outcome::Committed);
    assert_eq!(unannounced(&mut world).await, from_ref(&told));
    announced(&mut world, &[&told]).await;
    announced(&mut world, &[&told]).await;
    announced(&mut world, &[]).await;
    assert_eq!(unannounced(&mut world).await, []);
}

async fn no_more_is_read_than_asked_for(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(submit(&mut world, &flow).await);
    }
    for (limit, count) in [(0, 0), (1, 1), (3, 3), (9, 5)] {
        let some = world.store().unannounced(TaskId::NONE, limit).await.expect("reading the outbox succeeds");
        assert_eq!(some, all[..count]);
    }
    announced(&mut world, &[&all[0], &all[2]]).await;
    let some = world.store().unannounced(TaskId::NONE, 2).await.expect("reading the outbox succeeds");
    assert_eq!(some, [all[1].clone(), all[3].clone()], "what is left comes next");
    for (above, wanted) in
        [(all[0].task, &[1, 3][..]), (all[1].task, &[3, 4]), (all[2].task, &[3, 4]), (all[4].task, &[])]
    {
        let some = world.store().unannounced(above, 2).await.expect("reading the outbox succeeds");
        let wanted: Vec<_> = wanted.iter().map(|place| all[*place].clone()).collect();
        assert_eq!(some, wanted, "above {above}");
    }
}

async fn a_task_stays_until_all_of_it_was_announced(mut world: World) {
    let kept = Flow { retention: Some(DAY), ..line("kept", 1) };
    for flow in [line("flow", 1), kept] {
        let flow = world.add_flow(flow).await;
        let (told, silent) = (submit(&mut world, &flow).await, world.submit(&flow).await);
        let ended = announce(&mut world, told.task, &Command::Cancel { by: None }).await;
        world.apply(silent, Command::Cancel { by: None }).await;
        world.pass(Millis(DAY.0 + 1));
        sweep(&mut world, true).await;
        assert!(world.find(silent).await.is_none(), "nothing is to be announced of it");
        assert!(world.find(told.task).await.is_some());
        announced(&mut world, &[&told]).await;
        sweep(&mut world, true).await;
        assert!(world.find(told.task).await.is_some(), "its end was not announced");
        assert_eq!(unannounced(&mut world).await, from_ref(&ended));
        announced(&mut world, &[&ended]).await;
        sweep(&mut world, true).await;
        assert!(world.find(told.task).await.is_none());
    }
}

async fn a_task_that_nobody_announces_goes(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let (gone, stays) = (submit(&mut world, &flow).await, submit(&mut world, &flow).await);
    announce(&mut world, gone.task, &Command::Cancel { by: None }).await;
    world.pass(Millis(DAY.0 + 1));
    sweep(&mut world, false).await;
    assert!(world.find(gone.task).await.is_none());
    assert_eq!(
        unannounced(&mut world).await,
        from_ref(&stays),
        "its unannounced events are deleted together with it"
    );
    announced(&mut world, &[&gone]).await;
    world.reopen().await;
    assert_eq!(unannounced(&mut world).await, [stays]);
}
