//! Every change has its own outcome: a bad change never makes its neighbours fail.

use windlass_core::{Command, Millis};
use windlass_store::{Change, Loaded, LogLine, Outcome, QueueChange, QueuePause, StoredFlow, SubmitKey};

use crate::{
    World,
    history::{decide, line},
    topic,
    world::work,
};

topic![
    a_bad_change_does_not_fail_its_neighbours,
    a_change_fails_with_the_one_it_was_built_on,
    nothing_to_commit_is_nothing_done,
];

async fn a_bad_change_does_not_fail_its_neighbours(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let key = SubmitKey { scope: [1; 32], fingerprint: [2; 32] };
    let changed = world.submit(&flow).await;
    let late = world.decide(changed, &Command::Cancel { by: None }).await;
    world.apply(changed, Command::Pause { by: None }).await;
    let mut first = world.new_task(&flow, |_| {});
    first.submit_key = Some(key.clone());
    let mut repeated = world.new_task(&flow, |_| {});
    repeated.submit_key = Some(key);
    let last = world.new_task(&flow, |_| {});
    let ids = [first.task.id, repeated.task.id, last.task.id];
    let log = LogLine {
        task: ids[0],
        key: crate::world::FIRST,
        attempt: 1,
        at: world.now.wall,
        line: "line".into(),
    };
    let pause = QueuePause { at: world.now.wall, by: None };
    let skipping = StoredFlow { flow: std::sync::Arc::new(line("other", 1)), created_at: world.now.wall };
    let skipping = StoredFlow {
        flow: std::sync::Arc::new(windlass_core::Flow { version: 3, ..line("other", 1) }),
        ..skipping
    };
    let outcomes = world
        .commit(vec![
            first.into(),
            late.into(),
            Change::Logs(vec![log.clone()]),
            repeated.into(),
            Change::Flow(skipping),
            Change::Queue(QueueChange { name: work(), paused: Some(pause.clone()) }),
            last.into(),
        ])
        .await;
    let taken = Outcome::KeyTaken { task: ids[0], fingerprint: [2; 32] };
    let ok = Outcome::Committed;
    assert_eq!(
        outcomes,
        [ok.clone(), Outcome::Conflict, ok.clone(), taken, Outcome::Conflict, ok.clone(), ok]
    );
    let there: Vec<bool> =
        world.store().load(&ids).await.expect("loading succeeds").iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, true]);
    let logs = world.store().logs(ids[0], 0, 10).await.expect("reading logs succeeds");
    assert_eq!(logs.into_iter().map(|(_, line)| line).collect::<Vec<_>>(), [log]);
    assert!(world.store().flow("other", None).await.expect("reading flows succeeds").is_none());
    let queues = world.store().queues().await.expect("reading queues succeeds");
    assert_eq!(queues.first().and_then(|queue| queue.paused.clone()), Some(pause));
}

/// Two servers decide the same, at different times; one of them continues from there at once.
async fn a_change_fails_with_the_one_it_was_built_on(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let pause = Command::Pause { by: None };
    let theirs = world.decide(id, &pause).await;
    let loaded = world.load(id).await;
    let later = world.now.wall + Millis(1);
    let ours = decide(&loaded, &pause, later).expect("it is paused");
    let built = Loaded { task: ours.task.clone(), ..loaded };
    let resumed = decide(&built, &Command::Resume { by: None }, later).expect("it is resumed");
    assert_eq!(ours.task.state.events, theirs.task.state.events, "both have the same version");
    assert_eq!(world.commit_one(theirs.clone()).await, Outcome::Committed);
    let outcomes = world.commit(vec![ours.into(), resumed.into()]).await;
    assert_eq!(outcomes, [Outcome::Conflict, Outcome::Conflict]);
    assert_eq!(world.load(id).await.task.state, theirs.task.state);
}

async fn nothing_to_commit_is_nothing_done(mut world: World) {
    assert!(world.commit(Vec::new()).await.is_empty());
    assert_eq!(world.commit_one(Change::Logs(Vec::new())).await, Outcome::Committed);
}
