//! Tasks: accepted, changed one change at a time, found again.

use std::sync::Arc;

use windlass_core::{Command, Ending, Json, Phase, TaskId};
use windlass_store::{Loaded, Outcome};

use crate::{
    World,
    history::{decide, json, line},
    topic,
    world::{FIRST, report},
};

topic![
    a_committed_task_is_there,
    loading_keeps_the_order_and_leaves_out_nothing,
    a_task_goes_on_to_its_end,
    a_change_of_an_old_version_is_a_conflict,
    of_two_changes_in_a_batch_the_second_conflicts,
    changes_of_one_task_may_follow_one_another_in_a_batch,
    a_task_is_taken_in_once,
    an_ended_task_stays_as_it_is,
    payloads_are_kept_to_the_letter,
];

async fn a_committed_task_is_there(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let change = world.new_task(&flow, |input| {
        input.params = json(r#"{"size": 3}"#);
        input.labels.insert("customer".to_owned(), "acme".to_owned());
        input.priority = -4;
    });
    let (id, expected) = (change.task.id, change.task.clone());
    assert!(world.find(id).await.is_none());
    assert_eq!(world.commit_one(change).await, Outcome::Committed);
    let loaded = world.load(id).await;
    assert_eq!(loaded.task, expected);
    assert!(loaded.claims.is_empty());
    assert!(loaded.handed_out.is_empty());
}

async fn loading_keeps_the_order_and_leaves_out_nothing(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let (first, second, ended) =
        (world.submit(&flow).await, world.submit(&flow).await, world.submit(&flow).await);
    world.apply(ended, Command::Cancel { by: None }).await;
    let ids = [second, TaskId(7), ended, first, ended, second];
    let loaded = world.store().load(&ids).await.expect("loading succeeds");
    let found: Vec<_> = loaded.iter().map(|loaded| loaded.as_ref().map(|loaded| loaded.task.id)).collect();
    assert_eq!(found, [Some(second), None, Some(ended), Some(first), Some(ended), Some(second)]);
    assert!(world.store().load(&[]).await.expect("loading succeeds").is_empty());
}

async fn a_task_goes_on_to_its_end(mut world: World) {
    let flow = world.add_flow(line("flow", 3)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    for step in 0..3 {
        let claimed = world.claim_one(session).await;
        let result = json(&format!(r#"{{"step{step}": {step}}}"#));
        let task = world.succeed(&claimed, Some(result)).await;
        assert_eq!(world.load(id).await.task, task);
    }
    let ended = world.load(id).await;
    assert_eq!(ended.task.state.phase, Phase::Ended(Ending::Succeeded));
    assert_eq!(ended.task.outcome().as_str(), r#"{"step0":0,"step1":1,"step2":2}"#);
    assert!(ended.claims.is_empty());
    assert!(world.claim(session, 5).await.is_empty());
}

async fn a_change_of_an_old_version_is_a_conflict(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let late = world.decide(id, &Command::Cancel { by: None }).await;
    let paused = world.apply(id, Command::Pause { by: None }).await;
    assert_eq!(world.commit_one(late).await, Outcome::Conflict);
    assert_eq!(world.load(id).await.task, paused);
    let events = world.store().events(id, 0, 100).await.expect("reading events succeeds");
    assert_eq!(events.len() as u64, paused.state.events);
}

async fn of_two_changes_in_a_batch_the_second_conflicts(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let pause = world.decide(id, &Command::Pause { by: None }).await;
    let cancel = world.decide(id, &Command::Cancel { by: None }).await;
    let paused = pause.task.clone();
    let outcomes = world.commit(vec![pause.into(), cancel.into()]).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Conflict]);
    assert_eq!(world.load(id).await.task, paused);
}

async fn changes_of_one_task_may_follow_one_another_in_a_batch(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let new = world.new_task(&flow, |_| {});
    let (id, now) = (new.task.id, world.now.wall);
    let loaded = |task: &Arc<_>| Loaded::untouched(Arc::clone(task));
    let pause = decide(&loaded(&new.task), &Command::Pause { by: None }, now).expect("a task can be paused");
    let resume = decide(&loaded(&pause.task), &Command::Resume { by: None }, now).expect("and resumed");
    let resumed = resume.task.clone();
    let outcomes = world.commit(vec![new.into(), pause.into(), resume.into()]).await;
    assert_eq!(outcomes, vec![Outcome::Committed; 3]);
    assert_eq!(world.load(id).await.task, resumed);
    let session = world.session(1).await;
    assert_eq!(world.claim(session, 5).await.len(), 1, "it is ready once");
}

async fn a_task_is_taken_in_once(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let change = world.new_task(&flow, |_| {});
    let unknown = world.new_task(&flow, |_| {});
    assert_eq!(world.commit_one(change.clone()).await, Outcome::Committed);
    assert_eq!(world.commit_one(change.clone()).await, Outcome::Conflict);
    let session = world.session(1).await;
    assert_eq!(world.claim(session, 5).await.len(), 1);
    // A task that does not exist cannot change.
    let loaded = Loaded::untouched(unknown.task.clone());
    let pause = decide(&loaded, &Command::Pause { by: None }, world.now.wall).expect("a task can be paused");
    assert_eq!(world.commit_one(pause).await, Outcome::Conflict);
    assert!(world.find(unknown.task.id).await.is_none());
}

async fn an_ended_task_stays_as_it_is(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    let late = world.decide(id, &report(&claimed, crate::world::failed())).await;
    let ended = world.succeed(&claimed, Some(json(r#"{"a": 1}"#))).await;
    assert_eq!(world.commit_one(late).await, Outcome::Conflict);
    assert_eq!(world.load(id).await.task, ended);
}

async fn payloads_are_kept_to_the_letter(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let params = r#"{ "z":1.0,  "a":[1e400, "\u00e9\n", {"z":null}] }"#;
    let result = r#"{"big":123456789012345678901234567890,"é":  true}"#;
    let id = world.submit_with(&flow, |input| input.params = json(params)).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.succeed(&claimed, Some(json(result))).await;
    let task = world.load(id).await.task;
    assert_eq!(task.input.params.as_str(), params);
    assert_eq!(task.act(FIRST).and_then(|act| act.result.as_ref()).map(Json::as_str), Some(result));
}
