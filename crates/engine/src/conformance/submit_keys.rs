//! Idempotency keys of submits.

use windlass_core::{Command, TaskId};

use super::{World, history::line, topic};
use crate::ports::{Outcome, SubmitKey, TaskChange};

topic![
    a_key_is_taken_within_its_batch,
    a_key_is_taken_in_later_batches,
    a_key_is_taken_after_its_task_has_ended,
    keys_of_other_scopes_are_free,
    a_refused_submit_takes_no_key,
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
    // The same task again is a conflict; its key stays free.
    assert_eq!(world.commit_one(keyed(there, 1, 1)).await, Outcome::Conflict);
    let other = keyed(world.new_task(&flow, |_| {}), 1, 2);
    assert_eq!(world.commit_one(other).await, Outcome::Committed);
}
