//! Queues: their ready and running attempts, and their pauses.

use windlass_core::{Actor, Doer, Millis};
use windlass_store::{Change, Outcome, QueueChange, QueuePause, QueueState};

use crate::{
    World,
    history::{line, name},
    topic,
    world::work,
};

topic![
    what_waits_and_runs_is_counted,
    a_queue_knows_since_when_the_first_in_line_waits,
    a_pause_is_kept_until_it_is_ended,
    an_empty_queue_is_still_listed,
];

async fn queues(world: &mut World) -> Vec<QueueState> {
    world.store().queues().await.expect("listing queues succeeds")
}

async fn counts(world: &mut World) -> Vec<(String, u64, u64)> {
    let states = queues(world).await;
    states.into_iter().map(|queue| (queue.name.to_string(), queue.ready, queue.running)).collect()
}

async fn what_waits_and_runs_is_counted(mut world: World) {
    assert!(queues(&mut world).await.is_empty());
    let mut other = line("other", 1);
    other.steps[0].run.doer = Doer::Worker { module: name("another"), command: name("do") };
    let (flow, other) = (world.add_flow(line("flow", 2)).await, world.add_flow(other).await);
    for _ in 0..3 {
        world.submit(&flow).await;
    }
    world.submit(&other).await;
    let of = |ready, running| vec![("another".to_owned(), 1, 0), ("work".to_owned(), ready, running)];
    assert_eq!(counts(&mut world).await, of(3, 0));
    let session = world.session(1).await;
    let claimed = world.claim(session, 2).await;
    assert_eq!(counts(&mut world).await, of(1, 2));
    world.release(session, claimed[0].id).await;
    assert_eq!(counts(&mut world).await, of(2, 1));
    world.succeed(&claimed[1], None).await;
    assert_eq!(counts(&mut world).await, of(3, 0), "its next step is ready");
    world.apply(claimed[0].id.task, windlass_core::Command::Pause { by: None }).await;
    assert_eq!(counts(&mut world).await, of(2, 0));
}

async fn a_queue_knows_since_when_the_first_in_line_waits(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let first_at = world.now.wall;
    world.submit(&flow).await;
    world.pass(Millis(10));
    let second_at = world.now.wall;
    world.submit(&flow).await;
    let session = world.session(1).await;
    assert_eq!(queues(&mut world).await[0].oldest_ready_at, Some(first_at));
    world.claim_one(session).await;
    assert_eq!(queues(&mut world).await[0].oldest_ready_at, Some(second_at));
    world.claim_one(session).await;
    assert_eq!(queues(&mut world).await[0].oldest_ready_at, None);
}

async fn a_pause_is_kept_until_it_is_ended(mut world: World) {
    let by = Some(Actor { name: "ops".into(), claimed: true });
    let pause = QueuePause { at: world.now.wall, by };
    let change = |paused| Change::Queue(QueueChange { name: work(), paused });
    assert_eq!(world.commit_one(change(Some(pause.clone()))).await, Outcome::Committed);
    world.pass(Millis(10));
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    let states = queues(&mut world).await;
    assert_eq!((states.len(), states[0].ready, states[0].paused.clone()), (1, 1, Some(pause)));
    let later = QueuePause { at: world.now.wall, by: None };
    assert_eq!(world.commit_one(change(Some(later.clone()))).await, Outcome::Committed);
    assert_eq!(queues(&mut world).await[0].paused, Some(later));
    assert_eq!(world.commit_one(change(None)).await, Outcome::Committed);
    assert_eq!(world.commit_one(change(None)).await, Outcome::Committed);
    assert_eq!(queues(&mut world).await[0].paused, None);
}

async fn an_empty_queue_is_still_listed(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert!(world.succeed(&claimed, None).await.is_ended());
    assert_eq!(counts(&mut world).await, [("work".to_owned(), 0, 0)]);
}
