//! Unique tasks: of tasks with the same unique key, one is accepted.

use std::sync::Arc;

use windlass_core::{Command, During, Expression, Flow, Millis, OnConflict, TaskId, Unique};
use windlass_store::{Outcome, Retention, TaskChange};

use crate::{World, history::line, topic};

topic![
    one_of_a_batch_is_taken_in,
    a_task_stands_until_it_ends,
    a_task_stands_until_it_is_handed_out,
    a_task_stands_for_a_while_after_its_end,
    tasks_stand_after_a_reopening,
    tasks_that_wait_for_their_time_stand,
    what_was_deleted_stands_no_more,
];

pub(crate) async fn flow(world: &mut World, during: During) -> Arc<Flow> {
    let key = Expression::compile("'x'").expect("an expression");
    world
        .add_flow(Flow {
            unique: Some(Unique { key, during, on_conflict: OnConflict::Return }),
            ..line("flow", 1)
        })
        .await
}

/// A new task with a unique key, not committed yet.
pub(crate) fn new(world: &mut World, flow: &Arc<Flow>, key: &str) -> TaskChange {
    world.new_task(flow, |input| input.unique = Some(key.into()))
}

async fn submit(world: &mut World, flow: &Arc<Flow>, key: &str) -> TaskId {
    let change = new(world, flow, key);
    let id = change.task.id;
    assert_eq!(world.commit_one(change).await, Outcome::Committed);
    id
}

/// Asserts that a new task is deduplicated to `first`.
async fn repeats(world: &mut World, flow: &Arc<Flow>, first: TaskId) {
    let again = new(world, flow, "a");
    let id = again.task.id;
    assert_eq!(world.commit_one(again).await, Outcome::Repeats { task: first });
    assert!(world.find(id).await.is_none());
}

async fn one_of_a_batch_is_taken_in(mut world: World) {
    let flow = flow(&mut world, During::Running).await;
    let changes: Vec<TaskChange> = ["a", "a", "b"].map(|key| new(&mut world, &flow, key)).into();
    let (first, second) = (changes[0].task.id, changes[1].task.id);
    let outcomes = world.commit(changes.into_iter().map(Into::into).collect()).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Repeats { task: first }, Outcome::Committed]);
    assert!(world.find(second).await.is_none());
    let session = world.session(1).await;
    assert_eq!(world.claim(session, 9).await.len(), 2);
}

async fn a_task_stands_until_it_ends(mut world: World) {
    let flow = flow(&mut world, During::Running).await;
    let first = submit(&mut world, &flow, "a").await;
    repeats(&mut world, &flow, first).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    repeats(&mut world, &flow, first).await;
    assert!(world.succeed(&claimed, None).await.is_ended());
    let second = submit(&mut world, &flow, "a").await;
    repeats(&mut world, &flow, second).await;
}

async fn a_task_stands_until_it_is_handed_out(mut world: World) {
    let flow = flow(&mut world, During::Pending).await;
    let first = submit(&mut world, &flow, "a").await;
    repeats(&mut world, &flow, first).await;
    let session = world.session(1).await;
    world.claim_one(session).await;
    let second = submit(&mut world, &flow, "a").await;
    repeats(&mut world, &flow, second).await;
}

async fn a_task_stands_for_a_while_after_its_end(mut world: World) {
    let flow = flow(&mut world, During::Finished(Millis(1_000))).await;
    let first = submit(&mut world, &flow, "a").await;
    repeats(&mut world, &flow, first).await;
    assert!(world.apply(first, Command::Cancel { by: None }).await.is_ended());
    world.pass(Millis(999));
    repeats(&mut world, &flow, first).await;
    world.reopen().await;
    repeats(&mut world, &flow, first).await;
    world.pass(Millis(1));
    submit(&mut world, &flow, "a").await;
}

async fn tasks_stand_after_a_reopening(mut world: World) {
    for during in [During::Pending, During::Running] {
        let name = if during == During::Pending { "pending" } else { "running" };
        let key = Expression::compile("'x'").expect("an expression");
        let flow =
            Flow { unique: Some(Unique { key, during, on_conflict: OnConflict::Return }), ..line(name, 1) };
        let flow = world.add_flow(flow).await;
        let first = submit(&mut world, &flow, "a").await;
        world.reopen().await;
        repeats(&mut world, &flow, first).await;
        world.apply(first, Command::Cancel { by: None }).await;
    }
}

async fn tasks_that_wait_for_their_time_stand(mut world: World) {
    let flow = flow(&mut world, During::Running).await;
    let at = world.now.wall + Millis::from_secs(3600);
    let first = world.new_task(&flow, |input| {
        input.unique = Some("a".into());
        input.at = Some(at);
    });
    let id = first.task.id;
    assert_eq!(world.commit_one(first).await, Outcome::Committed);
    repeats(&mut world, &flow, id).await;
    world.reopen().await;
    repeats(&mut world, &flow, id).await;
    world.apply(id, Command::Cancel { by: None }).await;
    submit(&mut world, &flow, "a").await;
}

async fn what_was_deleted_stands_no_more(mut world: World) {
    let flow = flow(&mut world, During::Finished(Millis::from_secs(3600))).await;
    let first = submit(&mut world, &flow, "a").await;
    world.apply(first, Command::Cancel { by: None }).await;
    world.pass(Millis(10));
    let retention = Retention {
        tasks: Millis(5),
        logs: Millis(5),
        audit: Millis(5),
        keeps_unannounced: false,
        messages_until: None,
    };
    let now = world.now;
    world.store().sweep(&retention, None, now, 100).await.expect("a sweep succeeds");
    assert!(world.find(first).await.is_none());
    submit(&mut world, &flow, "a").await;
}
