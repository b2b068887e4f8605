//! Idempotency keys of submits.

use windlass_core::{Command, During, Millis, TaskId};
use windlass_store::{Change, KeyChange, Outcome, Retention, SubmitKey, TaskChange};

use crate::{World, history::line, storing::unique, topic};

topic![
    a_key_is_taken_within_its_batch,
    a_key_is_taken_in_later_batches,
    a_key_is_taken_after_its_task_has_ended,
    keys_of_other_scopes_are_free,
    a_refused_submit_takes_no_key,
    a_key_comes_before_a_task_that_is_the_same,
    a_key_names_a_task_that_was_there,
    keys_that_name_other_tasks_are_kept_for_a_day,
];

fn keyed(change: TaskChange, scope: u8, fingerprint: u8) -> TaskChange {
    TaskChange {
        submit_key: Some(SubmitKey { scope: [scope; 32], fingerprint: [fingerprint; 32] }),
        ..change
    }
}

fn taken(task: TaskId, fingerprint: u8) -> Outcome {
    Outcome::KeyTaken { task, fingerprint: [fingerprint; 32] }
}

async fn a_key_is_taken_within_its_batch(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let first = keyed(world.new_task(&flow, |_| {}), 1, 1);
    let same = keyed(world.new_task(&flow, |_| {}), 1, 1);
    let other = keyed(world.new_task(&flow, |_| {}), 1, 2);
    let (id, ids) = (first.task.id, [same.task.id, other.task.id]);
    let outcomes = world.commit(vec![first.into(), same.into(), other.into()]).await;
    assert_eq!(outcomes, [Outcome::Committed, taken(id, 1), taken(id, 1)]);
    for id in ids {
        assert!(world.find(id).await.is_none());
    }
}

async fn a_key_is_taken_in_later_batches(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let first = keyed(world.new_task(&flow, |_| {}), 1, 1);
    let id = first.task.id;
    assert_eq!(world.commit_one(first).await, Outcome::Committed);
    for fingerprint in [1, 2] {
        let again = keyed(world.new_task(&flow, |_| {}), 1, fingerprint);
        let again_id = again.task.id;
        assert_eq!(world.commit_one(again).await, taken(id, 1));
        assert!(world.find(again_id).await.is_none());
    }
    let session = world.session(1).await;
    assert_eq!(world.claim(session, 9).await.len(), 1);
}

async fn a_key_is_taken_after_its_task_has_ended(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let first = keyed(world.new_task(&flow, |_| {}), 1, 1);
    let id = first.task.id;
    assert_eq!(world.commit_one(first).await, Outcome::Committed);
    assert!(world.apply(id, Command::Cancel { by: None }).await.is_ended());
    let again = keyed(world.new_task(&flow, |_| {}), 1, 1);
    assert_eq!(world.commit_one(again).await, taken(id, 1));
}

async fn keys_of_other_scopes_are_free(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let first = keyed(world.new_task(&flow, |_| {}), 1, 1);
    let other = keyed(world.new_task(&flow, |_| {}), 2, 1);
    let without = world.new_task(&flow, |_| {});
    let outcomes = world.commit(vec![first.into(), other.into(), without.into()]).await;
    assert_eq!(outcomes, vec![Outcome::Committed; 3]);
}

async fn a_refused_submit_takes_no_key(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let there = world.new_task(&flow, |_| {});
    assert_eq!(world.commit_one(there.clone()).await, Outcome::Committed);
    // The same task again is a conflict; its idempotency key stays free.
    assert_eq!(world.commit_one(keyed(there, 1, 1)).await, Outcome::Conflict);
    let other = keyed(world.new_task(&flow, |_| {}), 1, 2);
    assert_eq!(world.commit_one(other).await, Outcome::Committed);
}

async fn a_key_comes_before_a_task_that_is_the_same(mut world: World) {
    let flow = unique::flow(&mut world, During::Running).await;
    let first = keyed(unique::new(&mut world, &flow, "a"), 1, 1);
    let other = keyed(unique::new(&mut world, &flow, "a"), 1, 2);
    let id = first.task.id;
    let outcomes = world.commit(vec![first.into(), other.into()]).await;
    assert_eq!(outcomes, [Outcome::Committed, taken(id, 1)]);
    let other = keyed(unique::new(&mut world, &flow, "a"), 1, 2);
    assert_eq!(world.commit_one(other).await, taken(id, 1));
}

/// An idempotency key that names a task which was submitted without it.
fn names(world: &World, task: TaskId, scope: u8) -> Change {
    let key = SubmitKey { scope: [scope; 32], fingerprint: [scope; 32] };
    Change::Key(KeyChange { key, task, at: world.now.wall })
}

async fn a_key_names_a_task_that_was_there(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let (first, second) = (world.new_task(&flow, |_| {}), world.new_task(&flow, |_| {}));
    let (id, second_id) = (first.task.id, second.task.id);
    assert_eq!(world.commit_one(first).await, Outcome::Committed);
    let changes = vec![names(&world, id, 1), names(&world, id, 1), keyed(second, 1, 1).into()];
    assert_eq!(world.commit(changes).await, [Outcome::Committed, taken(id, 1), taken(id, 1)]);
    assert!(world.find(second_id).await.is_none());
    assert!(world.apply(id, Command::Cancel { by: None }).await.is_ended());
    for _ in 0..2 {
        let again = names(&world, second_id, 1);
        assert_eq!(world.commit_one(again).await, taken(id, 1));
        let again = keyed(world.new_task(&flow, |_| {}), 1, 1);
        assert_eq!(world.commit_one(again).await, taken(id, 1));
        world.reopen().await;
    }
}

async fn keys_that_name_other_tasks_are_kept_for_a_day(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let first = world.new_task(&flow, |_| {});
    let id = first.task.id;
    assert_eq!(world.commit_one(first).await, Outcome::Committed);
    let change = names(&world, id, 1);
    assert_eq!(world.commit_one(change).await, Outcome::Committed);
    for (pass, outcome) in [(1, taken(id, 1)), (24 * 3600, Outcome::Committed)] {
        world.pass(Millis::from_secs(pass));
        let now = world.now;
        world.store().sweep(&Retention::default(), None, now, 100).await.expect("a sweep succeeds");
        let change = names(&world, id, 1);
        assert_eq!(world.commit_one(change).await, outcome);
    }
    assert!(world.find(id).await.is_some());
}
