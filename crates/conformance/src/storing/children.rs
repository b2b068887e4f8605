//! Child tasks: completed ones roll back when the parent rolls back.

use windlass_core::{
    ActKey, ChildEnd, Command, Ending, Message, Outcome as Ended, Parent, Phase, TaskId, TaskStatus,
};
use windlass_store::{Change, Outcome, TaskQuery};

use crate::{World, history::line, topic};

topic![
    a_child_that_succeeded_goes_back,
    a_child_goes_back_after_a_start_and_is_found_once,
    an_ended_task_that_does_not_go_on_leaves_nothing_behind,
];

/// A child task that ran the first step of another task and succeeded, with its message to the parent.
async fn succeeded(world: &mut World, steps: usize) -> TaskId {
    let flow = match world.store().flow("child", None).await.expect("reading flows succeeds") {
        Some(stored) => stored.flow,
        None => world.add_flow(line("child", steps)).await,
    };
    let parent = Parent { task: TaskId(7), key: ActKey::forward(0), attempt: 1, depth: 1, top: TaskId(7) };
    let id = world.submit_with(&flow, |input| input.parent = Some(parent)).await;
    let session = world.session(1).await;
    for step in 0..steps {
        let claimed = world.claim_one(session).await;
        let result = crate::history::json(&format!("{{\"step{step}\":true}}"));
        world.report(&claimed, Ended::Succeeded(Some(result))).await;
    }
    id
}

async fn status(world: &mut World, id: TaskId) -> Vec<TaskStatus> {
    let query = TaskQuery { limit: 10, ..TaskQuery::default() };
    let page = world.store().tasks(&query).await.expect("listing tasks succeeds");
    let of_task = page.items.into_iter().filter(|loaded| loaded.task.id == id);
    of_task.map(|loaded| windlass_core::task_status(&loaded.task, &loaded.held())).collect()
}

/// Consumes the child's message and returns it.
async fn told(world: &mut World) -> ChildEnd {
    let envelope = world.messages().await.remove(0);
    assert_eq!(world.commit_one(Change::Consume(envelope.id)).await, Outcome::Committed);
    match envelope.message {
        Message::ChildEnded { end, .. } => end,
        other => panic!("a child reports its end: {other:?}"),
    }
}

async fn a_child_that_succeeded_goes_back(mut world: World) {
    let id = succeeded(&mut world, 2).await;
    let done = Some(r#"{"step0":true,"step1":true}"#.into());
    assert_eq!(told(&mut world).await, ChildEnd::Succeeded(done));
    assert_eq!(status(&mut world, id).await, [TaskStatus::Succeeded]);
    let task = world.apply(id, Command::UndoForParent).await;
    assert_eq!(task.state.phase, Phase::Backward);
    assert_eq!(status(&mut world, id).await, [TaskStatus::RollingBack], "it is in one place alone");
    // It still has its results, and its rollbacks are handed out like others.
    assert!(world.load(id).await.task.state.steps[1].forward.result.is_some());
    let session = world.session(2).await;
    for step in [1, 0] {
        let claimed = world.claim_one(session).await;
        assert_eq!((claimed.id.task, claimed.id.key), (id, ActKey::rollback(step)));
        world.succeed(&claimed, None).await;
    }
    assert_eq!(world.load(id).await.task.state.phase, Phase::Ended(Ending::RolledBack));
    assert_eq!(status(&mut world, id).await, [TaskStatus::RolledBack]);
    assert!(matches!(told(&mut world).await, ChildEnd::Undone(_)));
    let events = world.store().events(id, 0, 100).await.expect("reading events succeeds");
    assert_eq!(events.len() as u64, world.load(id).await.task.state.events, "its history goes on");
}

async fn a_child_goes_back_after_a_start_and_is_found_once(mut world: World) {
    let id = succeeded(&mut world, 1).await;
    world.reopen().await;
    world.apply(id, Command::UndoForParent).await;
    assert_eq!(status(&mut world, id).await, [TaskStatus::RollingBack]);
    world.reopen().await;
    world.pass(windlass_store::ADOPTION_GRACE);
    // The grace starts when the store first gets the time.
    let session = world.session(3).await;
    world.due().await;
    world.pass(windlass_store::ADOPTION_GRACE);
    world.due().await;
    let claimed = world.claim_one(session).await;
    assert_eq!((claimed.id.task, claimed.id.key), (id, ActKey::rollback(0)));
    world.succeed(&claimed, None).await;
    world.reopen().await;
    assert_eq!(status(&mut world, id).await, [TaskStatus::RolledBack]);
}

async fn an_ended_task_that_does_not_go_on_leaves_nothing_behind(mut world: World) {
    let id = succeeded(&mut world, 1).await;
    let mut late = world.decide(id, &Command::UndoForParent).await;
    late.before += 1;
    assert_eq!(world.commit_one(late).await, Outcome::Conflict);
    assert_eq!(status(&mut world, id).await, [TaskStatus::Succeeded]);
    world.apply(id, Command::UndoForParent).await;
    assert_eq!(status(&mut world, id).await, [TaskStatus::RollingBack]);
}
